"""What is ranked where: regimes, policies and numbers of each setup, and all levers on small data."""

import csv

import pytest

from fedtempo.checks import InputError
from fedtempo.experiments.ranking import setup_grids
from fedtempo.experiments.ranking.leaderboard import LeaderboardRequest, contests_of, rank
from fedtempo.experiments.ranking.setup_grids import GRIDS, Lever, SetupGrid
from fedtempo.experiments.ranking.standings import ALWAYS, RankedRun, read_ranked_runs
from fedtempo.experiments.running.grid import Execution, unwatched
from fedtempo.policies.builtin import BUILT_IN
from support.boards import CONFIG, first_table
from support.paths import ROOT
from support.runs import command

NETWORKS = ("setup3", "fashion", "cifar10", "shakespeare")


@pytest.fixture
def small(monkeypatch, tmp_path):
    (tmp_path / "setup2.toml").write_text(CONFIG)
    grid = SetupGrid((0.01, 0.03), (2,), (0.01,), (2,), 100.0, first_part=0.25, tuning_draws=1, draws=3, seeds=3)
    monkeypatch.setitem(GRIDS, "setup2", grid)
    stages = (
        (Lever({"upload_bits": 4}), Lever({"upload_bits": 4}, larger_cohort=True)),
        (Lever({"server_average": 0.5}),),
    )
    monkeypatch.setattr(setup_grids, "LEVER_STAGES", stages)
    return tmp_path


def board(folder, *options):
    arguments = ["leaderboard", "--setups", "setup2", "--policies", "tempo,weighted", "--jobs", "1"]
    return command(*arguments, "--configs", folder, "--records", folder / "records", "-o", folder / "out", *options)


def test_all_levers_start_from_the_best_in_plain_and_are_compared_with_it(small, capsys):
    assert board(small, "--regimes", "levers,plain") == 0
    said = capsys.readouterr().err
    assert "setup2, static, plain: at most 10 runs, 4 of them for settings (2 for each policy)" in said
    assert "setup2, static, all levers: at most 16 runs, 10 of them for settings (5 for each policy)" in said
    assert "of computing; about" in said
    plain, levers = ((small / "out" / f"setup2-static-{name}.md").read_text() for name in ("plain", "levers"))
    assert levers.startswith("# setup2, static, all levers: seconds to loss 1.9")
    settings = {line.split(" | ")[0].strip("| "): line for line in first_table(levers)}
    assert "upload_bits 4" in settings["weighted"], "an eighth of each upload"
    assert "server_optimiser" not in settings["weighted"], "levers that bring nothing are not named"
    rows = [line for line in levers.splitlines() if line.startswith("| best ")]
    assert [row.split(":")[0] for row in rows] == ["| best baseline in plain", "| best other here"]
    time = next(line.split(" | ")[1] for line in first_table(plain) if line.startswith("| weighted"))
    assert f"weighted | {time} |" in rows[0]
    assert "The loss of the tenth of clients that upload slowest" in levers
    runs = read_ranked_runs(small / "out" / "setup2-static-levers.csv")
    assert {run.upload_bits for run in runs if run.policy == "weighted"} == {"4"}
    assert all(run.slow_loss is not None and run.slow_loss > 0 for run in runs)


def test_all_levers_alone_take_the_baselines_of_an_earlier_leaderboard(small):
    assert board(small, "--regimes", "plain,levers") == 0
    before = (small / "out" / "setup2-static-levers.md").read_text()
    (small / "out").rename(small / "before")
    assert board(small, "--regimes", "levers", "--policies", "tempo", "--beside", small / "before") == 0
    after = (small / "out" / "setup2-static-levers.md").read_text()
    tables = [[line for line in page.splitlines() if line.startswith("|")] for page in (before, after)]
    assert tables[0] == tables[1]


def test_stopped_at_any_stage_it_goes_on_to_the_same_ranking(small):
    def ranked(records, watch=None):
        request = LeaderboardRequest(
            setups=["setup2"], regimes=["plain", "levers"], policies=["weighted"], configs=small, records=records
        )
        execution = Execution(jobs=1) if watch is None else Execution(jobs=1, watch=watch)
        return [str(one.document()) for one in rank(request, execution)]

    whole, stages = ranked(small / "whole"), []

    class StopError(Exception):
        pass

    def watch_until(number):
        def watch(grid):
            stages.append(grid.title)
            if len(stages) > number:
                raise StopError
            return unwatched(grid)

        return watch

    for number in range(3):
        stages.clear()
        with pytest.raises(StopError):
            ranked(small / "parts", watch_until(number))
    assert ranked(small / "parts") == whole


def test_what_is_ranked_by_default():
    for setup in NETWORKS:
        wanted = ["tempo", "uniform", "weighted", "clustered", "fedbuff", "fedcs"]
        assert [policy for policy in GRIDS[setup].policies if policy != "ca2fl"] == wanted
    for setup in ("setup1", "setup2"):
        assert set(GRIDS[setup].policies) == set(BUILT_IN) - {"full"}
    numbers = {setup: (grid.draws, grid.seeds) for setup, grid in GRIDS.items()}
    assert numbers == {
        "setup1": (5, 20), "setup2": (5, 20), "setup3": (10, 10), "fashion": (5, 5), "cifar10": (3, 3),
        "shakespeare": (3, 3),
    }  # fmt: skip
    request = LeaderboardRequest(setups=list(GRIDS), regimes=None)
    regimes = {}
    for contest in contests_of(request):
        regimes.setdefault(contest.setup, []).append(contest.regime)
    assert regimes == {
        setup: ["plain", "levers"] if setup in NETWORKS[1:] else ["plain", "momentum", "levers"] for setup in GRIDS
    }


def test_momentum_is_refused_where_it_is_not_ranked():
    with pytest.raises(InputError, match=r"regimes must be of plain, levers on fashion, got momentum; .*setup3"):
        contests_of(LeaderboardRequest(setups=["setup3", "fashion"], regimes=["momentum"]))


@pytest.mark.parametrize("setup", ["fashion", "cifar10", "shakespeare"])
def test_missing_data_are_told_with_the_command_that_fetches_them(tmp_path, monkeypatch, capsys, setup):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("FEDTEMPO_DATA", str(tmp_path))
    monkeypatch.setattr("fedtempo.data.sources.DEBIAN_FOLDER", tmp_path)
    monkeypatch.chdir(tmp_path)
    assert command("leaderboard", "--setups", setup, "--regimes", "plain") == 2
    name = "fashion-mnist" if setup == "fashion" else setup
    assert f"run: fedtempo fetch {name}" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists(), "nothing has run"


def test_published_rankings_are_readable():
    for path in (ROOT / "docs" / "leaderboard").glob("*.csv"):
        runs = read_ranked_runs(path)
        assert runs
        with path.open(encoding="utf-8", newline="") as stream:
            there = set(csv.DictReader(stream).fieldnames)
        assert set(ALWAYS) <= there <= set(RankedRun.__struct_fields__)


def test_a_larger_cohort_is_the_next_of_the_grid_or_twice_the_largest():
    grid, lever = GRIDS["setup3"], Lever({"upload_bits": 4}, larger_cohort=True)
    sizes = {size: grid.with_lever({"step_size": 0.1, "cohort_size": size}, lever) for size in (2, 4, 10)}
    assert {size: choice["cohort_size"] for size, choice in sizes.items()} == {2: 4, 4: 10, 10: 20}
    assert all(choice["upload_bits"] == 4 and choice["step_size"] == 0.1 for choice in sizes.values())
