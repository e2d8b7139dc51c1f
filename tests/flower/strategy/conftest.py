"""The small experiment, with options for every policy."""

import pytest

from support.runs import SMALL


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "small.toml"
    path.write_text(SMALL + "[policy.statistical]\nlosses = [2.2, 2.1]\nmax_rounds = 4\n")
    return path
