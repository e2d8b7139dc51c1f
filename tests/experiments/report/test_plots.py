"""Plots: what was drawn, how long it took, and the names that the page's script reads."""

import re
from dataclasses import replace
from importlib.resources import files

import msgspec
import numpy as np
import pytest

from fedtempo.experiments.comparing.styles import styles
from fedtempo.experiments.report.plots import plots
from fedtempo.experiments.report.sections import sections
from fedtempo.experiments.running.results import read_runs
from support.reports import TARGET, run_small, written


def test_plots_show_what_was_drawn_and_how_long_it_took(runs):
    (section,) = sections(runs, TARGET)
    data = plots(section, styles(section.policies))
    fleet = data.fleet
    noted = [group.noted for group in fleet.groups]
    assert noted == [True, False]
    uniform = [run for run in runs if run.policy == "uniform"]
    draws = np.zeros(10)
    for run in uniform:
        for record in run.trained:
            for member, count in zip(record.members, record.counts, strict=True):
                draws[member] += count
    assert fleet.groups[1].draws == draws[fleet.client].tolist()
    np.testing.assert_allclose(fleet.groups[1].share, (draws / draws.sum())[fleet.client], rtol=1e-4)
    record = uniform[0].trained[0]
    place = fleet.client.index(record.members[0])
    assert fleet.compute[place] == pytest.approx(record.compute_time[0], rel=1e-4)
    assert fleet.seconds == sorted(fleet.seconds)
    times = np.concatenate([np.diff(run.time, prepend=0) for run in uniform])
    assert data.rounds[1].quantiles[2] == pytest.approx(np.median(times), rel=1e-4)


def test_runs_of_different_fleets_share_no_scatter_plot(runs, tmp_path):
    run_small(tmp_path, policies=["uniform"], seeds=[0], over={"data": {"clients": 12}})
    both = [*runs, *read_runs([tmp_path])]
    (section,) = sections(both)
    assert list(section.groups)[-1] == "uniform, data.clients 12"
    assert plots(section, styles(section.policies)).fleet is None
    assert "there is no one fleet to show" in written(both, tmp_path)


def test_the_script_finds_the_names_that_it_reads(runs):
    (section,) = sections(runs, TARGET)
    data = msgspec.to_builtins(plots(section, styles(section.policies)))
    script = files("fedtempo.experiments.report").joinpath("report.js").read_text(encoding="utf-8")
    read = set(re.findall(r"\b(?:fleet|panel|curve|group|times|one)\.([a-z_]+)\b(?!\()", script))
    names, level = set(), [data]
    while level:
        one = level.pop()
        names |= set(one) if isinstance(one, dict) else set()
        level += [part for part in (one.values() if isinstance(one, dict) else one) if isinstance(part, (dict, list))]
    assert read - {"flat"} <= names
    assert data["rounds"][0].keys() == {"rounds", "mean", "quantiles"}


def test_runs_without_rounds_have_no_times(runs):
    (section,) = sections([replace(run, records=[]) for run in runs], TARGET)
    data = plots(section, styles(section.policies))
    assert msgspec.to_builtins(data.rounds) == [{"rounds": 0}] * 2
    assert data.fleet is None
