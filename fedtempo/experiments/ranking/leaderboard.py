"""Policies ranked by the time that they take to a target, everything counted, each at its own best settings.

One procedure for all: every policy tries the same grid, on draws of the data and seeds that the ranking does not use,
by successive halving; under the regime of all levers then each lever over the best so far (halving.py). What was best
is run on the draws and seeds of the ranking, which goes by missed runs, then by time.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from fedtempo.checks import InputError, check_choice, check_count
from fedtempo.experiments.paper_numbers import CONFIGS
from fedtempo.experiments.ranking.candidates import Edge, Trial, edges_of_best, try_out
from fedtempo.experiments.ranking.chart import draw_ranking
from fedtempo.experiments.ranking.contest import CHANNELS, FORMER_CHANNELS, Contest, trace_files
from fedtempo.experiments.ranking.halving import Chosen
from fedtempo.experiments.ranking.outlook import Amount, Outlook, Say, amount_of
from fedtempo.experiments.ranking.ranking import Ranking, runs_table
from fedtempo.experiments.ranking.ratios import BASELINES
from fedtempo.experiments.ranking.setup_grids import GRIDS, MOMENTUM, PLAIN, REGIMES
from fedtempo.experiments.ranking.standings import (
    EDGES,
    EarlierRanking,
    EdgesFile,
    Standings,
    read_earlier,
    read_ranked_runs,
    standing_of,
)
from fedtempo.experiments.running.grid import Execution
from fedtempo.experiments.running.notices import warn_first
from fedtempo.experiments.running.results import code_of
from fedtempo.experiments.settings.assignments import Assignments
from fedtempo.experiments.settings.config import DEFAULT_PRESET, FileExperiment
from fedtempo.experiments.settings.config_file import has_preset, load_experiment
from fedtempo.experiments.settings.shipped import find_setup
from fedtempo.files import whole_file
from fedtempo.tables.commands import command_line
from fedtempo.tables.csv_file import write_csv
from fedtempo.tables.markdown import to_markdown

PRESET = "best"
NO_EARLIER = EarlierRanking([], {}, [])


@dataclass(frozen=True, kw_only=True, slots=True)
class LeaderboardRequest:
    """What is to be ranked: every setup on every channel under every regime, and on how many draws and seeds.

    What is None has the default of each setup (setup_grids.py).
    """

    setups: Sequence[str] = ("setup1", "setup2")
    channels: Sequence[str] = ("static",)
    regimes: Sequence[str] | None = None
    policies: Sequence[str] | None = None
    seeds: int | None = None  # dealt out over the draws
    draws: int | None = None  # of the data
    configs: Path = CONFIGS  # folder of setup1.toml and others; where it has none, the package's are taken
    traces: Path | None = None  # folder of the channel traces
    records: Path = Path("runs/leaderboard")
    beside: Path | None = None  # folder of an earlier leaderboard, whose other policies' runs are kept
    assignments: Assignments = ()  # single settings over the configurations

    def policies_of(self, setup: str) -> tuple[str, ...]:
        """Return what is ranked in a setup."""
        return GRIDS[setup].policies if self.policies is None else tuple(self.policies)

    def regimes_of(self, setup: str) -> tuple[str, ...]:
        """Return under which regimes."""
        return GRIDS[setup].regimes if self.regimes is None else tuple(self.regimes)

    def draws_of(self, setup: str) -> int:
        """Return on how many draws of the data."""
        return GRIDS[setup].draws if self.draws is None else self.draws

    def seeds_of(self, setup: str) -> int:
        """Return how many seeds these share."""
        return GRIDS[setup].seeds if self.seeds is None else self.seeds


def rank(request: LeaderboardRequest, execution: Execution, say: Say = lambda text: None) -> Iterator[Ranking]:
    """Tune and rank policies in one contest after another; yield each ranking when it is done.

    Whatever the contests need is looked for before the first of them runs. ``say`` is called with how many runs there
    are, and after each stage with how long the others take.
    """
    contests = contests_of(request)
    for setup, experiment in {contest.setup: contest.experiment for contest in contests}.items():
        warn_first(experiment, request.policies_of(setup))
    kept = [earlier_ranking(contest, request) for contest in contests]
    plain = {contest.place: earlier_plain(contest, request) for contest in contests}
    outlook = Outlook([(contest.title, _amount(contest, request)) for contest in contests], say)
    outlook.begin()
    followed = outlook.execution(execution)
    for number, (contest, earlier) in enumerate(zip(contests, kept, strict=True)):
        chosen = contest.choose_settings(request.policies_of(contest.setup), followed)
        outlook.tuned(number, _share_of_limit(chosen, contest))
        found = rank_contest(contest, chosen, earlier, request, followed)
        outlook.ranked(number)
        if contest.regime == PLAIN:
            plain[contest.place] = found.standings
        yield replace(found, plain=plain[contest.place])


def _share_of_limit(chosen: Mapping[str, Chosen], contest: Contest) -> float:
    """Return which share of the time limit the best settings took, on the mean over policies."""
    return sum(own.best.slowest for own in chosen.values()) / (len(chosen) * contest.time_limit)


def _amount(contest: Contest, request: LeaderboardRequest) -> Amount:
    return amount_of(contest, len(request.policies_of(contest.setup)), request.seeds_of(contest.setup))


def contests_of(request: LeaderboardRequest) -> list[Contest]:
    """Return what is contested; what cannot be ranked is refused."""
    present = {former: name for name, former in FORMER_CHANNELS.items()}
    channels = [present.get(channel, channel) for channel in request.channels]
    _check_names("setups", request.setups, tuple(GRIDS))
    _check_names("channels", channels, CHANNELS)
    for setup in request.setups:
        _check_numbers(setup, request)
    files = trace_files(request.traces) if "traces" in channels else ()
    return [
        Contest(
            setup=setup,
            channel=channel,
            regime=regime,
            experiment=experiment,
            trace_files=files,
            records=request.records,
            assignments=request.assignments,
        )
        for setup, experiment in _experiments(request).items()
        for channel in channels
        for regime in sorted(request.regimes_of(setup), key=REGIMES.index)  # plain first: others are compared with it
    ]


def _check_numbers(setup: str, request: LeaderboardRequest) -> None:
    """Refuse regimes that a setup does not have, and fewer seeds than draws."""
    regimes = request.regimes_of(setup)
    _check_names("regimes", regimes, REGIMES)
    if MOMENTUM in regimes and MOMENTUM not in GRIDS[setup].regimes:
        having = ", ".join(name for name, grid in GRIDS.items() if MOMENTUM in grid.regimes)
        remedy = f"momentum is for {having}; leave --regimes out to take all that {setup} has"
        raise InputError("regimes", f"be of {', '.join(GRIDS[setup].regimes)} on {setup}", MOMENTUM, remedy)
    seeds, draws = request.seeds_of(setup), request.draws_of(setup)
    if check_count("seeds", seeds) < check_count("draws", draws):
        raise InputError(name="seeds", rule="be at least one for each draw", got=f"{seeds} for {draws} draws")


def _experiments(request: LeaderboardRequest) -> Mapping[str, FileExperiment]:
    """Return the experiment of each setup: under the preset of best settings, where its file has one."""
    found = {}
    for setup in request.setups:
        path = find_setup(request.configs, setup)
        preset = PRESET if has_preset(path, PRESET) else DEFAULT_PRESET
        found[setup] = load_experiment(path, preset, assignments=request.assignments)
    return found


def _check_names(name: str, values: Sequence[str], known: tuple[str, ...]) -> None:
    if not values:
        raise InputError(name=name, rule=f"name at least one of {', '.join(known)}", got="none")
    for value in values:
        check_choice(name, value, known)
    if len(set(values)) < len(values):
        raise InputError(name=name, rule="name each once", got=f"{','.join(values)}")


def earlier_ranking(contest: Contest, request: LeaderboardRequest) -> EarlierRanking:
    """Return what is kept of an earlier leaderboard, which must have had the same data and target."""
    if request.beside is None:
        return NO_EARLIER
    paths = [request.beside / f"{contest.file_name(former=former)}.csv" for former in (False, True)]
    path = next((path for path in paths if path.is_file()), None)
    if path is None:
        rule = f"be a folder of leaderboards with {paths[0].name}"
        raise InputError(name="beside", rule=rule, got=f"none in {request.beside}")
    return _read_beside(path, contest, request, request.policies_of(contest.setup))


def earlier_plain(contest: Contest, request: LeaderboardRequest) -> Standings:
    """Return the baselines of the regime plain in an earlier leaderboard; none where there are none."""
    path = None if request.beside is None else request.beside / f"{replace(contest, regime=PLAIN).file_name()}.csv"
    if path is None or not path.is_file():
        return {}
    others = {run.policy for run in read_ranked_runs(path)} - set(BASELINES)
    return _read_beside(path, contest, request, tuple(others)).standings


def _read_beside(path: Path, contest: Contest, request: LeaderboardRequest, without: Sequence[str]) -> EarlierRanking:
    setup = contest.setup
    found = read_earlier(path, seeds=request.seeds_of(setup), draws=request.draws_of(setup), without=without)
    wanted = contest.data, str(contest.target)
    for run in found.runs:
        if (run.data, run.target) != wanted:
            raise InputError(
                name="beside",
                rule=f"hold runs on the same data to the same target, {' to '.join(wanted)}",
                got=f"{run.policy} on {run.data} to {run.target} in {path.name}",
                remedy=f"rank {run.policy} anew",
            )
    return found


def rank_contest(
    contest: Contest,
    chosen: Mapping[str, Chosen],
    earlier: EarlierRanking,
    request: LeaderboardRequest,
    execution: Execution,
) -> Ranking:
    """Rank policies in one contest at their best settings, beside those of an earlier ranking."""
    setup = contest.setup
    tried = [
        candidate
        for policy, own in chosen.items()
        for candidate in contest.ranked(
            policy, own.best.candidate.choice, seeds=request.seeds_of(setup), draws=request.draws_of(setup)
        )
    ]
    trials = try_out(f"{contest.title}: ranking", tried, execution)
    return Ranking(
        file_name=contest.file_name(),
        title=f"{contest.title}: seconds to {contest.target}",
        target=contest.target,
        data=contest.data,
        command=_command(contest, request, beside=bool(earlier.standings)),
        code=code_of([run for trial in trials for run in trial.runs]),
        standings=_standings(trials, contest) | earlier.standings,
        kept=earlier.standings,
        edges=_edges(chosen) + earlier.edges,
    )


def _edges(chosen: Mapping[str, Chosen]) -> list[Edge]:
    """Return which best settings lie at the edge of what was tried."""
    return [
        edge
        for policy, own in chosen.items()
        for edge in edges_of_best(
            policy, own.best.candidate.choice, [one.candidate.choice for one in own.tried], own.as_good
        )
    ]


def _standings(trials: Sequence[Trial], contest: Contest) -> Standings:
    found: Standings = {}
    for trial in trials:
        found.setdefault(trial.policy, []).append(standing_of(trial, contest.target))
    return found


def _command(contest: Contest, request: LeaderboardRequest, *, beside: bool) -> str:
    """Return the command that ranks them."""
    setup, policies = contest.setup, request.policies_of(contest.setup)
    return command_line(
        "leaderboard",
        setups=contest.setup,
        channels=contest.channel,
        regimes=contest.regime,
        seeds=request.seeds_of(setup),
        draws=request.draws_of(setup),
        policies=None if policies == GRIDS[setup].policies else ",".join(policies),
        traces="FOLDER" if contest.channel == "traces" else None,
        beside="FOLDER" if beside else None,
        set=[one.text for one in request.assignments],
    )


def write_ranking(ranking: Ranking, folder: Path) -> Path:
    """Write the page of a ranking, its chart, all runs and the edges; return the page."""
    folder.mkdir(parents=True, exist_ok=True)
    page = folder / f"{ranking.file_name}.md"
    with whole_file(page) as stream:
        stream.write(to_markdown(ranking.document()) + "\n")
    with whole_file(page.with_suffix(".csv")) as stream:
        write_csv(runs_table(ranking.runs()), stream)
    with whole_file(page.with_suffix(EDGES)) as stream:
        stream.write(msgspec.json.encode(EdgesFile(ranking.edges)).decode() + "\n")
    draw_ranking(ranking, page.with_suffix(".png"))
    return page
