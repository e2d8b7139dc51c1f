"""The leaderboard: one procedure for all policies, on small data."""

import csv
import shutil
from collections import Counter, defaultdict

import numpy as np
import pytest
from typer.testing import CliRunner

from fedtempo.checks import InputError
from fedtempo.cli import app
from fedtempo.experiments import leaderboard
from fedtempo.experiments.comparison import Target
from fedtempo.experiments.grid import has_ended, run_grid
from fedtempo.experiments.leaderboard import GRIDS, SetupGrid, rank
from fedtempo.experiments.results import read_run
from fedtempo.experiments.toml import merged
from fedtempo.experiments.tuning import Candidate, best_of
from support.grids import cells, made_up
from support.marks import slow_after
from support.paths import ROOT

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
    monkeypatch.setitem(GRIDS, "setup2", SetupGrid((0.01, 0.03), (2, 3), (0.005, 0.01), (2, 3), 200.0))
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
        places = [(int(line[6].split()[0]), float(line[1].strip("> ").replace(",", ""))) for line in lines]
        assert places == sorted(places), "by missed runs, then by time"
        assert all(len(line[5].split()) == 2 for line in lines)  # every draw is shown
        assert all("of 4" in line[6] for line in lines)
        assert "--seeds 4 --draws 2 --policies tempo,weighted,fedbuff` with fedtempo " in table
        runs = list(csv.DictReader((small / "out" / f"setup2-{channel}-{regime}.csv").read_text().splitlines()))
        assert [(run["policy"], run["draw"], run["seed"]) for run in runs] == [
            (line[0].strip("| "), draw, seed) for line in lines for draw, seed in ("00", "02", "11", "13")
        ]
        for line in lines:
            own = [run for run in runs if run["policy"] == line[0].strip("| ")]
            means = [np.mean([float(run["seconds"]) for run in own if run["draw"] == draw]) for draw in "01"]
            assert [float(one.strip(">").replace(",", "")) for one in line[5].split()] == pytest.approx(means, rel=0.01)
        assert (small / "out" / f"setup2-{channel}-{regime}.png").stat().st_size > 5000
    tuned = Counter(limit_of(path) for path in (small / "records").rglob("*-seed1000-*"))
    assert tuned[12.5] == 3 * 2 * 4 * len(regimes)  # policies × draws × settings
    counts = [tuned[limit] for limit in sorted(tuned)]
    assert counts == sorted(counts, reverse=True), "fewer policies have to try for longer"


def limit_of(folder):
    return read_run(folder / "records.jsonl").header["config"]["stop"]["max_time"]


def test_settings_are_tried_for_no_longer_than_one_takes_to_the_target(small, monkeypatch):
    monkeypatch.setitem(GRIDS, "setup2", SetupGrid((0.01, 0.03), (2, 3), (0.005,), (2,), 60.0))
    folders = {"configs": small, "records": small / "records", "output": small / "out", "traces": None}
    stages = []

    def run(stage, grid):
        stages.append(stage)
        run_grid(grid, processes=1)

    path = rank("setup2", "static", "plain", ["weighted"], seeds=1, draws=1, run_grid=run, **folders)
    *settings, last = stages
    assert settings == [f"setup2, static, plain: settings, part {i + 1} of at most 3" for i in range(len(settings))]
    assert last == "setup2, static, plain: ranking"
    assert "over 1 draw of the data" in path.read_text()
    reached = defaultdict(list)  # of each limit and setting, in each draw
    for folder in (small / "records").rglob("*-seed1000-*"):
        own = read_run(folder / "records.jsonl")
        training, limit = own.header["config"]["policy"]["weighted"]["training"], limit_of(folder)
        reached[limit, *training.values()].append((own.summary["time_to_loss"] or np.inf) <= limit)
    *shorter, last = sorted({limit for limit, *_ in reached})
    assert shorter, "the shortest limit was too short for each"
    assert not any(all(ends) for (limit, *_), ends in reached.items() if limit in shorter)
    assert last < 60
    assert any(all(ends) for (limit, *_), ends in reached.items() if limit == last)


def test_what_has_run_is_not_run_again(small):
    def run(_stage, grid):
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


def test_a_policy_is_ranked_beside_those_that_ran_before(small):
    assert board(small, "--regimes", "plain").exit_code == 0
    stem = "setup2-static-plain"
    (small / "out").rename(small / "before")
    before = (small / "before" / f"{stem}.md").read_text()
    shutil.rmtree(small / "records")
    assert board(small, "--regimes", "plain", "--policies", "tempo", "--beside", str(small / "before")).exit_code == 0
    assert {path.name.split("-")[0] for path in (small / "records").rglob("*-seed*")} == {"tempo"}
    after = (small / "out" / f"{stem}.md").read_text()
    assert cells(after) == cells(before), "the same runs give the same table"
    edges = [sorted(line for line in text.splitlines() if line[:2] == "- ") for text in (before, after)]
    assert edges[0] == edges[1]
    assert "Kept from an earlier setup2-static-plain.csv" in after
    assert "--policies tempo --beside FOLDER` with fedtempo " in after
    csvs = [(small / folder / f"{stem}.csv").read_text() for folder in ("before", "out")]
    assert csvs[0] == csvs[1]


@pytest.mark.parametrize(
    ("change", "said"),
    slow_after(2, [
        (lambda text: text.replace("code", "cod", 1), "must have the column code"),
        (lambda text: "", "the column policy"),
        (lambda text: text.replace("weighted,0,0", "weighted,0,9"), "must have 4 seeds over 2 draws of weighted"),
        (lambda text: text + text[text.index("weighted") :], "must have 4 seeds over 2 draws of weighted"),
        (lambda text: text.replace("of_them_pilots", "pilots"), "must have the column of_them_pilots"),
        (lambda text: text.replace("loss 1.9", "loss 1.8"), "same data .*loss 1.9, got fedbuff on .* loss 1.8"),
        (lambda text: text.replace("Synthetic", "Other"), "got fedbuff on Other"),
    ]),
)  # fmt: skip
def test_runs_that_cannot_stand_beside_are_refused(small, change, said):
    assert board(small, "--regimes", "plain").exit_code == 0
    path = small / "out" / "setup2-static-plain.csv"
    path.write_text(change(path.read_text()))
    with pytest.raises(InputError, match=said):
        board(small, "--regimes", "plain", "--policies", "tempo", "--beside", str(small / "out"))
    path.unlink()
    with pytest.raises(InputError, match="--beside must be a folder of leaderboards with setup2"):
        board(small, "--regimes", "plain", "--policies", "tempo", "--beside", str(small / "out"))


def test_ratios_are_taken_in_pairs_of_draws():
    class Draw:
        def __init__(self, mean, missed=0):
            self.mean, self.missed = mean, missed

        def times(self, target):
            return self

    usual = [Draw(10.0), Draw(100.0), Draw(1000.0)]
    draws = [Draw(10.0), Draw(200.0), Draw(4000.0)]
    half = 4.302653 * np.log(2) / 3**0.5  # Student's t with 2 degrees of freedom
    bounds = f"{2 / np.exp(half):.2f}–{2 * np.exp(half):.2f}"
    assert leaderboard._ratios(draws, usual, None) == (bounds, "1.00–4.00")
    assert leaderboard._ratios(draws[:2], usual[:2], None) == ("-", "1.00–2.00")
    assert leaderboard._ratios([*draws[:2], Draw(400.0, missed=1)], usual, None) == ("-", "-"), "its time is a bound"


def of_draws(policy, *draws):
    """Return the candidates of a policy, one for each draw, from whether each draw's run reached loss 1 and when."""
    found = []
    for seconds, end in draws:
        run = made_up(policy, 0, [1.0 if end == "target" else 2.0], seconds, end=end)
        run.header["config"]["stop"] = {"target_loss": 1.0, "max_time": 100.0}
        found.append(Candidate(policy, {"step_size": 0.1}, 2, []))
        found[-1].__dict__["runs"] = [run]
    return found


def test_who_misses_the_target_is_never_first_however_soon_it_ends(tmp_path):
    ranked = {
        "proposed-oracle": of_draws("proposed-oracle", (5.0, "target"), (5.0, "target")),
        "kvib": of_draws("kvib", (1.0, "diverged"), (1.0, "diverged")),
        "fedcs": of_draws("fedcs", (2.0, "max_rounds"), (2.0, "target")),
        "uniform": of_draws("uniform", (90.0, "target"), (90.0, "target")),
        "weighted": of_draws("weighted", (60.0, "target"), (60.0, "target")),
    }
    table = leaderboard.ranking_table(ranked, Target(loss=1.0))
    heading, *rows = cells(table)
    assert heading[2] == "to weighted", "tempo is not there, and the first stands for it"
    assert [row[0] for row in rows] == ["weighted", "uniform", "fedcs", "kvib", "proposed-oracle"]
    assert [row[2] for row in rows] == ["1", "1.50 ×", "> 0.033 ×", "> 1.67 ×", "0.083 ×"]
    assert rows[3][1:5] == ["> 100", "> 1.67 ×", "-", "-"], "diverged runs stand at the limit"
    assert rows[3][5] == ">100 >100"
    assert "Outside the ranking, with pilots taken for granted: proposed-oracle." in table
    ours = ranked | {"tempo": of_draws("tempo", (70.0, "target"), (100.0, "max_time"))}
    rows = cells(leaderboard.ranking_table(ours, Target(loss=1.0)))
    assert {row[0]: row[2] for row in rows}["kvib"] == "-", "of two bounds nothing is known"
    leaderboard.draw_ranking(ours, Target(loss=1.0), "made up", tmp_path / "ranking.png")
    assert (tmp_path / "ranking.png").stat().st_size > 5000


def test_traces_take_the_place_of_upload_times(small):
    traces = small / "traces"
    traces.mkdir()
    (traces / "one.csv").write_text("time,mbps\n0,0.02\n5,0.01\n10,0.02\n")
    assert board(small, "--channels", "traces", "--traces", str(traces), "--regimes", "plain").exit_code == 0
    with pytest.raises(InputError, match="--traces must be a folder"):
        leaderboard._world("traces", 0, None)


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [("--setups", "setup2,setup9", "--setups must be one of"), ("--channels", "static,radio", "--channels must be one"),
     ("--setups", ",", "--setups must name at least one"), ("--channels", "static,traces", "--traces must be a folder"),
     ("--regimes", "adam", "--regimes must be one of"), ("--draws", "0", "--draws must be a whole number")],
)  # fmt: skip
def test_wrong_choices_get_one_sentence(small, option, value, said):
    with pytest.raises(InputError, match=said):
        board(small, option, value)
    assert not (small / "records").exists(), "nothing has run"


def test_where_everyone_misses_the_target_the_lowest_loss_is_chosen():
    target, found = Target(loss=1.0), []
    for step_size, loss in ((0.1, 3.0), (0.2, 2.0), (0.3, float("nan"))):
        run = made_up("oort", 0, [loss], 100.0, end="max_time")
        run.header["config"]["stop"] = {"target_loss": 1.0, "max_time": 100.0}
        run.summary["loss"] = loss
        found.append(Candidate("oort", {"step_size": step_size}, 2, []))
        found[-1].__dict__["runs"] = [run]
    assert best_of(found, target)["oort"].training == {"step_size": 0.2}


def test_none_takes_a_setting_away():
    assert merged({"times": {"upload": 1, "seed": 2}}, {"times": {"upload": None}}) == {"times": {"seed": 2}}


def test_every_setup_has_a_grid():
    configs = ROOT / "configs"
    assert sorted(GRIDS) == sorted(path.stem for path in configs.glob("setup*.toml"))
