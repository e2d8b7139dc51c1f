"""Policies ranked by the time that they take to a target, everything counted, each at its own best settings.

One procedure for all: every policy tries the same grid of step sizes and cohort sizes, where momentum is allowed of
momenta too (none is one of them), on draws of the data and seeds that the ranking does not use; what missed the target
least often, then took least time, is run on the draws and seeds of the ranking. A policy's settings have a short time
at first, and longer ones only until one of them reached the target in each run; what would have been faster on average
but slower in one run loses by that. The ranking goes by the same two: missed runs, then time.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import msgspec

from fedtempo.checks import InputError, check_choice, check_count
from fedtempo.experiments.paper_numbers import CONFIGS
from fedtempo.experiments.ranking.candidates import Trial, try_out
from fedtempo.experiments.ranking.chart import draw_ranking
from fedtempo.experiments.ranking.contest import CHANNELS, FORMER_CHANNELS, Contest, trace_files
from fedtempo.experiments.ranking.ranking import Ranking, runs_table
from fedtempo.experiments.ranking.setup_grids import GRIDS, REGIMES
from fedtempo.experiments.ranking.standings import (
    EDGES,
    EarlierRanking,
    EdgesFile,
    Standings,
    read_earlier,
    standing_of,
)
from fedtempo.experiments.running.grid import Execution
from fedtempo.experiments.running.notices import warn_first
from fedtempo.experiments.running.results import code_of
from fedtempo.experiments.settings.assignments import Assignments
from fedtempo.experiments.settings.config_file import load_experiment
from fedtempo.experiments.settings.shipped import find_setup
from fedtempo.files import whole_file
from fedtempo.policies.builtin import BUILT_IN
from fedtempo.tables.commands import command_line
from fedtempo.tables.csv_file import write_csv
from fedtempo.tables.markdown import to_markdown

PRESET = "best"
UNRANKED = ("full",)  # it needs all clients in each round
DEFAULT_POLICIES = tuple(policy for policy in BUILT_IN if policy not in UNRANKED)
NO_EARLIER = EarlierRanking([], {}, [])


@dataclass(frozen=True, kw_only=True, slots=True)
class LeaderboardRequest:
    """What is to be ranked: every setup on every channel under every regime, and on how many draws and seeds."""

    setups: Sequence[str] = ("setup1", "setup2")
    channels: Sequence[str] = ("static",)
    regimes: Sequence[str] = REGIMES
    policies: Sequence[str] = DEFAULT_POLICIES
    seeds: int = 20  # dealt out over the draws
    draws: int = 5  # of the data
    configs: Path = CONFIGS  # folder of setup1.toml to setup3.toml; where it has none, the package's are taken
    traces: Path | None = None  # folder of the channel traces
    records: Path = Path("runs/leaderboard")
    beside: Path | None = None  # folder of an earlier leaderboard, whose other policies' runs are kept
    assignments: Assignments = ()  # single settings over the configurations


def rank(request: LeaderboardRequest, execution: Execution) -> Iterator[Ranking]:
    """Tune and rank policies in one contest after another; yield each ranking when it is done.

    Whatever the contests need is looked for before the first of them runs.
    """
    contests = contests_of(request)
    for experiment in {contest.setup: contest.experiment for contest in contests}.values():
        warn_first(experiment, request.policies)
    kept = [earlier_ranking(contest, request) for contest in contests]
    for contest, earlier in zip(contests, kept, strict=True):
        yield rank_contest(contest, earlier, request, execution)


def contests_of(request: LeaderboardRequest) -> list[Contest]:
    """Return what is contested; what cannot be ranked is refused."""
    present = {former: name for name, former in FORMER_CHANNELS.items()}
    channels = [present.get(channel, channel) for channel in request.channels]
    _check_names("setups", request.setups, tuple(GRIDS))
    _check_names("channels", channels, CHANNELS)
    _check_names("regimes", request.regimes, REGIMES)
    if check_count("seeds", request.seeds) < check_count("draws", request.draws):
        got = f"{request.seeds} for {request.draws} draws"
        raise InputError(name="seeds", rule="be at least one for each draw", got=got)
    files = trace_files(request.traces) if "traces" in channels else ()
    paths = {setup: find_setup(request.configs, setup) for setup in request.setups}
    experiments = {
        setup: load_experiment(path, PRESET, assignments=request.assignments) for setup, path in paths.items()
    }
    return [
        Contest(
            setup=setup,
            channel=channel,
            regime=regime,
            experiment=experiments[setup],
            trace_files=files,
            records=request.records,
            assignments=request.assignments,
        )
        for setup, channel, regime in product(request.setups, channels, request.regimes)
    ]


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
    found = read_earlier(path, seeds=request.seeds, draws=request.draws, without=request.policies)
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
    contest: Contest, earlier: EarlierRanking, request: LeaderboardRequest, execution: Execution
) -> Ranking:
    """Tune and rank policies in one contest, beside those of an earlier ranking."""
    chosen, edges = contest.choose_settings(request.policies, execution)
    tried = [
        candidate
        for policy, best in chosen.items()
        for draw in range(request.draws)
        for candidate in contest.candidates(
            [policy],
            {name: [value] for name, value in best.choice.items()},
            draws=[draw],
            seeds=range(draw, request.seeds, request.draws),
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
        edges=edges + earlier.edges,
    )


def _standings(trials: Sequence[Trial], contest: Contest) -> Standings:
    found: Standings = {}
    for trial in trials:
        found.setdefault(trial.policy, []).append(standing_of(trial, contest.target))
    return found


def _command(contest: Contest, request: LeaderboardRequest, *, beside: bool) -> str:
    """Return the command that ranks them."""
    return command_line(
        "leaderboard",
        setups=contest.setup,
        channels=contest.channel,
        regimes=contest.regime,
        seeds=request.seeds,
        draws=request.draws,
        policies=None if tuple(request.policies) == DEFAULT_POLICIES else ",".join(request.policies),
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
