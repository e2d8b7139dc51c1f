"""The leaderboard: one procedure for all policies, on small data."""

import csv
import re
import shutil
from collections import Counter
from contextlib import contextmanager

import numpy as np
import pytest

from fedtempo.checks import InputError
from fedtempo.experiments.comparing.statistics import Target, Times
from fedtempo.experiments.ranking import setup_grids
from fedtempo.experiments.ranking.candidates import best_of
from fedtempo.experiments.ranking.chart import draw_ranking
from fedtempo.experiments.ranking.contest import trace_files
from fedtempo.experiments.ranking.leaderboard import LeaderboardRequest, rank, write_ranking
from fedtempo.experiments.ranking.ranking import Ranking
from fedtempo.experiments.ranking.ratios import spread
from fedtempo.experiments.ranking.setup_grids import GRIDS, SetupGrid
from fedtempo.experiments.ranking.standings import EDGES, Standing, standing_of
from fedtempo.experiments.running.grid import Execution
from support.boards import CONFIG, first_table
from support.grids import cells, made_up, trial_of
from support.marks import slow_after
from support.paths import ROOT
from support.runs import command


@pytest.fixture
def small(monkeypatch, tmp_path):
    (tmp_path / "setup2.toml").write_text(CONFIG)
    monkeypatch.setitem(GRIDS, "setup2", SetupGrid((0.01, 0.03), (2, 3), (0.005, 0.01), (2, 3), 200.0))
    monkeypatch.setattr(setup_grids, "MOMENTA", (0.5,))
    return tmp_path


def board(folder, *options):
    arguments = ["leaderboard", "--setups", "setup2", "--policies", "tempo,weighted,fedbuff", "--seeds", "4"]
    arguments += ["--draws", "2", "--jobs", "1", "--configs", str(folder)]
    return command(*arguments, "--records", folder / "records", "-o", folder / "out", *options)


@pytest.mark.parametrize(
    ("channel", "regimes"), [("static", ["plain", "momentum"]), ("fading", ["plain"]), ("absences", ["plain"])]
)
def test_policies_are_ranked_by_time_on_draws_of_their_own(small, channel, regimes):
    assert board(small, "--channels", channel, "--regimes", ",".join(regimes)) == 0
    for regime in regimes:
        table = (small / "out" / f"setup2-{channel}-{regime}.md").read_text()
        lines = [line.split(" | ") for line in first_table(table) if line.startswith("| ")][1:]
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
    tuned = Counter(path.name.split("-")[0] for path in (small / "records").rglob("*-seed1000-*"))
    assert set(tuned.values()) == {2 * 4 * len(regimes)}, "draws × settings of each policy"


class Watching:
    """Keeps the grids that it sees."""

    def __init__(self):
        self.grids = []

    @contextmanager
    def __call__(self, grid):
        self.grids.append(grid)
        yield lambda run: None


def ranked_weighted(folder, watch, **more):
    request = LeaderboardRequest(
        setups=["setup2"], regimes=["plain"], policies=["weighted"], configs=folder, records=folder / "records",
        **({"seeds": 1, "draws": 1} | more),
    )  # fmt: skip
    (ranking,) = rank(request, Execution(jobs=1, watch=watch))
    return ranking


def test_what_has_run_is_not_run_again(small):
    pages = []
    for again in (False, True):
        watch = Watching()
        pages.append(str(ranked_weighted(small, watch, seeds=2).document()))
        assert any(grid.unfinished for grid in watch.grids) is not again
    assert pages[0] == pages[1]


def test_a_policy_is_ranked_beside_those_that_ran_before(small):
    assert board(small, "--regimes", "plain") == 0
    stem = "setup2-static-plain"
    (small / "out").rename(small / "before")
    before = (small / "before" / f"{stem}.md").read_text()
    shutil.rmtree(small / "records")
    assert board(small, "--regimes", "plain", "--policies", "tempo", "--beside", small / "before") == 0
    assert {path.name.split("-")[0] for path in (small / "records").rglob("*-seed*")} == {"tempo"}
    after = (small / "out" / f"{stem}.md").read_text()
    assert cells(after) == cells(before), "the same runs give the same table"
    edges = [sorted(line for line in text.splitlines() if line[:2] == "- ") for text in (before, after)]
    assert edges[0] == edges[1]
    assert "Kept from an earlier setup2-static-plain.csv" in after
    assert "--policies tempo --beside FOLDER` with fedtempo " in after
    csvs = [(small / folder / f"{stem}.csv").read_text() for folder in ("before", "out")]
    assert csvs[0] == csvs[1]
    kept = [(small / folder / stem).with_suffix(EDGES) for folder in ("before", "out")]
    assert kept[1].exists()
    shutil.rmtree(small / "out")
    kept[0].unlink()
    assert board(small, "--regimes", "plain", "--policies", "tempo", "--beside", small / "before") == 0
    without = (small / "out" / f"{stem}.md").read_text()
    assert cells(without) == cells(before), "an earlier leaderboard that kept no edges says nothing of them"


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
def test_runs_that_cannot_stand_beside_are_refused(small, capsys, change, said):
    assert board(small, "--regimes", "plain") == 0
    path = small / "out" / "setup2-static-plain.csv"
    path.write_text(change(path.read_text()))
    arguments = ["--regimes", "plain", "--policies", "tempo", "--beside", small / "out"]
    assert board(small, *arguments) == 2
    assert re.search(said, capsys.readouterr().err)
    path.unlink()
    assert board(small, *arguments) == 2
    assert "--beside must be a folder of leaderboards with setup2" in capsys.readouterr().err


def test_a_leaderboard_of_before_a_channel_was_renamed_is_kept(small):
    """Its files and its runs lie under the former name."""
    assert board(small, "--channels", "fading-untold", "--regimes", "plain", "--policies", "weighted") == 0
    page = (small / "out" / "setup2-fading-unknown-plain.md").read_text()
    assert "--channels fading-unknown --regimes" in page
    (small / "records/setup2/fading-unknown").rename(small / "records/setup2/fading-untold")
    assert board(small, "--channels", "fading-unknown", "--regimes", "plain", "--policies", "weighted") == 0
    assert not (small / "records/setup2/fading-unknown").exists(), "nothing runs again"
    assert (small / "out" / "setup2-fading-unknown-plain.md").read_text() == page
    earlier = small / "out" / "setup2-fading-untold-plain.csv"
    (small / "out" / "setup2-fading-unknown-plain.csv").rename(earlier)
    arguments = ["--channels", "fading-unknown", "--regimes", "plain", "--policies", "uniform"]
    assert board(small, *arguments, "--beside", small / "out") == 0
    rows = cells("\n".join(first_table((small / "out" / "setup2-fading-unknown-plain.md").read_text())))[1:]
    assert sorted(row[0] for row in rows) == ["uniform", "weighted"]


def draw(mean, missed=0):
    reached = np.arange(2) >= missed
    times = Times("made up", (0, 1), np.full(2, mean), np.zeros(2), reached, np.ones(2))
    return Standing({"step_size": 0.1}, times, ("code", "code"))


def test_ratios_are_taken_in_pairs_of_draws():
    usual = [draw(10.0), draw(100.0), draw(1000.0)]
    draws = [draw(10.0), draw(200.0), draw(4000.0)]
    half = 4.302653 * np.log(2) / 3**0.5  # Student's t with 2 degrees of freedom
    bounds = f"{2 / np.exp(half):.2f}–{2 * np.exp(half):.2f}"
    assert [cell.text for cell in spread(draws, usual)] == [bounds, "1.00–4.00"]
    assert [cell.text for cell in spread(draws[:2], usual[:2])] == ["-", "1.00–2.00"]
    bound = spread([*draws[:2], draw(400.0, missed=1)], usual)
    assert [cell.text for cell in bound] == ["-", "-"], "its time is a bound"


def of_draws(policy, *draws):
    """Return the standings of a policy, one for each draw, from when each draw's run ended and how."""
    stop = {"target_loss": 1.0, "max_time": 100.0}
    runs = [made_up(policy, 0, [1.0 if end == "target" else 2.0], seconds, end=end, **stop) for seconds, end in draws]
    return [standing_of(trial_of([run], 0.1, 2), Target(loss=1.0)) for run in runs]


def ranking_of(standings):
    return Ranking(
        file_name="made-up", title="made up", target=Target(loss=1.0), data="nothing", command="fedtempo leaderboard",
        code="none", standings=standings, kept={}, edges=[],
    )  # fmt: skip


def test_who_misses_the_target_is_never_first_however_soon_it_ends(tmp_path):
    standings = {
        "proposed-oracle": of_draws("proposed-oracle", (5.0, "target"), (5.0, "target")),
        "kvib": of_draws("kvib", (1.0, "diverged"), (1.0, "diverged")),
        "fedcs": of_draws("fedcs", (2.0, "max_rounds"), (2.0, "target")),
        "uniform": of_draws("uniform", (90.0, "target"), (90.0, "target")),
        "weighted": of_draws("weighted", (60.0, "target"), (60.0, "target")),
    }
    page = str(ranking_of(standings).document())
    heading, *rows = cells("\n".join(first_table(page)))
    assert heading[2] == "to weighted", "tempo is not there, and the first stands for it"
    assert [row[0] for row in rows] == ["weighted", "uniform", "fedcs", "kvib", "proposed-oracle"]
    assert [row[2] for row in rows] == ["1", "1.50 ×", "> 0.033 ×", "> 1.67 ×", "0.083 ×"]
    assert rows[3][1:5] == ["> 100", "> 1.67 ×", "-", "-"], "diverged runs stand at the limit"
    assert rows[3][5] == ">100 >100"
    assert "Outside the ranking, with pilots taken for granted: proposed-oracle." in page
    ours = ranking_of(standings | {"tempo": of_draws("tempo", (70.0, "target"), (100.0, "max_time"))})
    rows = cells(ours.table())
    assert {row[0]: row[2] for row in rows}["kvib"] == "-", "of two bounds nothing is known"
    draw_ranking(ours, tmp_path / "ranking.png")
    assert (tmp_path / "ranking.png").stat().st_size > 5000
    assert write_ranking(ours, tmp_path / "new").read_text() == f"{ours.document()}\n"


def test_traces_take_the_place_of_upload_times(small):
    traces = small / "traces"
    traces.mkdir()
    (traces / "one.csv").write_text("time,mbps\n0,0.02\n5,0.01\n10,0.02\n")
    assert board(small, "--channels", "traces", "--traces", traces, "--regimes", "plain") == 0
    with pytest.raises(InputError, match=r"traces must be a folder with .up or .csv files .* got none"):
        trace_files(None)


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [("--setups", "setup2,setup9", "--setups must be one of"), ("--channels", "static,radio", "--channels must be one"),
     ("--setups", ",", "--setups must name at least one"), ("--channels", "static,traces", "--traces must be a folder"),
     ("--regimes", "adam", "--regimes must be one of"), ("--draws", "0", "--draws must be a whole number")],
)  # fmt: skip
def test_wrong_choices_get_one_sentence(small, capsys, option, value, said):
    assert board(small, option, value) == 2
    (error,) = capsys.readouterr().err.splitlines()
    assert said in error
    assert not (small / "records").exists(), "nothing has run"


def test_where_everyone_misses_the_target_the_lowest_loss_is_chosen():
    trials = []
    for step_size, loss in ((0.1, 3.0), (0.2, 2.0), (0.3, float("nan"))):
        run = made_up("oort", 0, [loss], 100.0, end="max_time", target_loss=1.0, max_time=100.0)
        trials.append(trial_of([run], step_size))
    assert best_of(trials, Target(loss=1.0))["oort"].choice["step_size"] == 0.2


def test_every_setup_has_a_grid():
    configs = ROOT / "configs"
    assert sorted(GRIDS) == sorted(path.stem for path in configs.glob("*.toml"))
