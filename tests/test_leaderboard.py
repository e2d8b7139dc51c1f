"""The leaderboard: one procedure for all policies, on small data."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from fedtempo.checks import InputError
from fedtempo.cli import app
from fedtempo.experiments import leaderboard
from fedtempo.experiments.leaderboard import GRIDS, SetupGrid, rank
from fedtempo.experiments.toml import merged

CONFIG = """
name = "small"
[data]
kind = "synthetic"
clients = 8
samples = 600
seed = 0
[model]
kind = "softmax"
[times]
compute = { kind = "exponential", mean = 1.0 }
upload = { kind = "exponential", mean = 1.0 }
[training]
cohort_size = 3
local_steps = 5
step_size = 0.02
schedule = "constant"
[stop]
target_loss = 1.9
max_rounds = 400
[presets.best.training]
link = "shared"
duplicates = "physical"
"""


@pytest.fixture
def small(monkeypatch, tmp_path):
    (tmp_path / "setup2.toml").write_text(CONFIG)
    monkeypatch.setitem(GRIDS, "setup2", SetupGrid((0.01, 0.03), (2, 3), (0.005, 0.01), 200.0))
    monkeypatch.setattr(leaderboard, "MOMENTA", (0.5,))
    return tmp_path


def board(folder, *options):
    arguments = ["leaderboard", "--setups", "setup2", "--policies", "tempo,weighted,fedbuff", "--seeds", "4"]
    arguments += ["--draws", "2", "--jobs", "1", "--configs", str(folder)]
    arguments += ["--records", str(folder / "records"), "-o", str(folder / "out"), *options]
    return CliRunner().invoke(app, arguments, catch_exceptions=False)


@pytest.mark.parametrize(
    ("channel", "regimes"), [("static", ["plain", "momentum"]), ("fading", ["plain"]), ("absences", ["plain"])]
)
def test_policies_are_ranked_by_time_on_draws_of_their_own(small, channel, regimes):
    result = board(small, "--channels", channel, "--regimes", ",".join(regimes))
    assert result.exit_code == 0
    for regime in regimes:
        table = (small / "out" / f"setup2-{channel}-{regime}.md").read_text()
        lines = [line.split(" | ") for line in table.splitlines() if line.startswith("| ")][1:]
        assert sorted(line[0].strip("| ") for line in lines) == ["fedbuff", "tempo", "weighted"]
        seconds = [float(line[1].strip("> ").replace(",", "")) for line in lines]
        assert seconds == sorted(seconds)
        assert all(len(line[4].split()) == 2 for line in lines)  # every draw is shown
        assert all("of 4" in line[5] for line in lines)
        assert (small / "out" / f"setup2-{channel}-{regime}.png").stat().st_size > 5000
    tuned = [path.name for path in (small / "records").rglob("*-seed1000-*")]
    assert len(tuned) == 3 * 2 * 4 * len(regimes)  # policies × draws × settings


def test_what_has_run_is_not_run_again(small):
    def run(grid):
        from fedtempo.experiments.grid import has_ended, run_grid

        started.extend(job for job in grid if not has_ended(job))
        run_grid(grid, processes=1)

    folders = {"configs": small, "records": small / "records", "output": small / "out", "traces": None}
    for again in (False, True):
        started: list[object] = []
        path = rank("setup2", "static", "plain", ["weighted"], seeds=2, draws=1, run_grid=run, **folders)
        assert bool(started) is not again
        text = path.read_text()
        shutil.copy(path, small / f"{again}.md")
    assert text == (small / "False.md").read_text()


def test_the_interval_of_a_geometric_mean_is_one_of_logarithms():
    class Draw:
        def __init__(self, mean, missed=0):
            self.mean, self.missed = mean, missed

        def times(self, target):
            return self

    draws = [Draw(100.0), Draw(200.0), Draw(400.0)]
    half = 4.302653 * np.log(2) / 3**0.5  # Student's t with 2 degrees of freedom
    assert leaderboard._interval_of(draws, None) == f"{200 / np.exp(half):,.0f}–{200 * np.exp(half):,.0f}"
    assert leaderboard._interval_of(draws[:2], None) == "-"
    assert leaderboard._interval_of([*draws, Draw(400.0, missed=1)], None) == "-", "its time is a bound"


def test_traces_take_the_place_of_upload_times(small):
    traces = small / "traces"
    traces.mkdir()
    (traces / "one.csv").write_text("time,mbps\n0,0.02\n5,0.01\n10,0.02\n")
    assert board(small, "--channels", "traces", "--traces", str(traces), "--regimes", "plain").exit_code == 0
    with pytest.raises(InputError, match="--traces must be a folder"):
        leaderboard._world("traces", 0, None)


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [("--setups", "setup9", "--setups must be one of"), ("--channels", "radio", "--channels must be one of"),
     ("--regimes", "adam", "--regimes must be one of"), ("--draws", "0", "--draws must be a whole number")],
)  # fmt: skip
def test_wrong_choices_get_one_sentence(small, option, value, said):
    with pytest.raises(InputError, match=said):
        board(small, option, value)


def test_none_takes_a_setting_away():
    assert merged({"times": {"upload": 1, "seed": 2}}, {"times": {"upload": None}}) == {"times": {"seed": 2}}


def test_every_setup_has_a_grid():
    configs = Path(__file__).resolve().parents[1] / "configs"
    assert sorted(GRIDS) == sorted(path.stem for path in configs.glob("setup*.toml"))
