"""Runs to report on."""

import pytest

from fedtempo.experiments.running.results import read_runs
from support.reports import run_small


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    run_small(folder)
    return folder


@pytest.fixture(scope="module")
def runs(folder):
    return read_runs([folder])
