"""What policies took in the draws of a contest, and the files from which an earlier leaderboard is read back."""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import msgspec
import numpy as np

from fedtempo.checks import InputError
from fedtempo.experiments.comparing.statistics import Target, Times
from fedtempo.experiments.ranking.candidates import Edge, Trial
from fedtempo.experiments.ranking.setup_grids import Choice
from fedtempo.experiments.running.results import code_of
from fedtempo.policies.registry import traits

SIZES = ("step_size", "cohort_size")
# Settings that a regime may bring, and what stands for none of it.
BROUGHT: dict[str, float | str] = {
    "server_momentum": 0.0, "upload_bits": "32", "server_average": "0.0", "server_optimiser": "sgd",
    "server_step_size": 0.0, "local_direction": 0.0,
}  # fmt: skip
ALWAYS = ("policy", "draw", "seed", "reached", "seconds", "of_them_pilots", "cohort_size", "server_momentum",
          "step_size", "code", "data", "target")  # columns of every file, earlier ones too  # fmt: skip
LEVER_NAMES = tuple(name for name in BROUGHT if name != "server_momentum")
EDGES = ".edges.json"  # how the name of the file ends that keeps them
# What earlier files say of the data, and what is said now.
FORMER_WORDS = {"policies are told the times of a round before it": "policies know the times of a round before it"}


@dataclass(frozen=True, eq=False, slots=True)
class Standing:
    """What one policy took in one draw of the data."""

    choice: Choice  # the settings that were chosen for it
    times: Times  # pilots counted
    code: tuple[str, ...]  # that made each run
    slow_loss: tuple[float | None, ...] = ()  # of the slowest clients at the end of each run; (): nobody measured it

    @property
    def mean_slow_loss(self) -> float | None:
        """The mean over the runs, None where it is not known of each."""
        known = [loss for loss in self.slow_loss if loss is not None]
        return float(np.mean(known)) if known and len(known) == len(self.times.seeds) else None


Standings: TypeAlias = dict[str, list[Standing]]  # of each policy, one for each draw


class RankedRun(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a ranking, as its table of all runs has it."""

    policy: str
    draw: int
    seed: int
    reached: bool
    seconds: float  # pilots counted
    of_them_pilots: float
    cohort_size: int
    server_momentum: float
    step_size: float
    code: str
    data: str
    target: str
    upload_bits: str = "32"
    server_average: str = "0.0"
    server_optimiser: str = "sgd"
    server_step_size: float = 0.0
    local_direction: float = 0.0
    slow_loss: float | None = None  # of the slowest clients at its end


class EdgesFile(msgspec.Struct, frozen=True):
    """Which settings of a ranking lie at the edge of what was tried."""

    edges: list[Edge]


@dataclass(frozen=True, eq=False, slots=True)
class EarlierRanking:
    """What is kept of an earlier leaderboard."""

    runs: list[RankedRun]
    standings: Standings
    edges: list[Edge]


def standing_of(trial: Trial, target: Target) -> Standing:
    """Return what a policy took in the runs of a trial."""
    runs = sorted(trial.runs, key=lambda run: run.seed)  # as times are
    slow = tuple(None if run.summary is None else run.summary.get("slow_loss") for run in runs)
    return Standing(trial.choice, trial.times(target), tuple(code_of([run]) for run in runs), slow)


def ranked_runs(standings: Standings, order: Sequence[str], data: str, target: Target) -> list[RankedRun]:
    """Return every run of a ranking, the best policy first."""
    rows = []
    for policy in order:
        for draw, standing in enumerate(standings[policy]):
            times, choice = standing.times, standing.choice
            slow = standing.slow_loss or (None,) * len(times.seeds)
            columns = (times.seeds, times.seconds.tolist(), times.pilots.tolist(), times.reached.tolist(),
                       standing.code, slow)  # fmt: skip
            rows += [
                RankedRun(
                    policy=policy,
                    draw=draw,
                    seed=seed,
                    reached=reached,
                    seconds=round(seconds, 6),
                    of_them_pilots=round(pilots, 6),
                    cohort_size=int(choice["cohort_size"]),
                    server_momentum=float(choice.get("server_momentum", 0.0)),
                    step_size=float(choice["step_size"]),
                    code=code,
                    data=data,
                    target=str(target),
                    upload_bits=str(choice.get("upload_bits", "32")),
                    server_average=str(choice.get("server_average", 0.0)),
                    server_optimiser=str(choice.get("server_optimiser", "sgd")),
                    server_step_size=float(choice.get("server_step_size", 0.0)),
                    local_direction=float(choice.get("local_direction", 0.0)),
                    slow_loss=slow_loss,
                )
                for seed, seconds, pilots, reached, code, slow_loss in zip(*columns, strict=True)
            ]
    return rows


def read_ranked_runs(path: Path) -> list[RankedRun]:
    """Return the runs of an earlier ranking."""
    with path.open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    if missing := [name for name in ALWAYS if not rows or name not in rows[0]]:
        raise InputError(name=path, rule=f"have the column {missing[0]}", got="none", remedy="rank those policies anew")
    try:
        found = [msgspec.convert(_known(row), RankedRun, strict=False) for row in rows]
    except msgspec.ValidationError as error:
        raise InputError(path, "hold the runs of a ranking", f"{error}", "rank those policies anew") from None
    return [msgspec.structs.replace(one, data=_in_present_words(one.data)) for one in found]


def _known(row: Mapping[str, str]) -> dict[str, str]:
    """Return the columns of a row that hold something; what an earlier leaderboard had not, has its default."""
    return {name: row[name] for name in RankedRun.__struct_fields__ if row.get(name) not in (None, "", "None")}


def _in_present_words(data: str) -> str:
    for former, present in FORMER_WORDS.items():
        data = data.replace(former, present)
    return data


def read_edges(path: Path) -> list[Edge]:
    """Return which settings of an earlier ranking lie at the edge of what was tried; none where nobody kept them."""
    if not path.is_file():
        return []
    try:
        return msgspec.json.decode(path.read_bytes(), type=EdgesFile).edges
    except msgspec.DecodeError as error:
        raise InputError(path, "hold the edges of a ranking", f"{error}", "delete it") from None


def read_earlier(path: Path, *, seeds: int, draws: int, without: Sequence[str]) -> EarlierRanking:
    """Return the ranking whose runs are in this file, but for the policies ``without``."""
    everything = read_ranked_runs(path)
    settings = [
        *SIZES,
        *(name for name, none in BROUGHT.items() if any(getattr(run, name) != none for run in everything)),
    ]
    runs = [run for run in everything if run.policy not in without]
    expected = [(draw, seed) for draw in range(draws) for seed in range(draw, seeds, draws)]
    found: Standings = {}
    for policy in dict.fromkeys(run.policy for run in runs):
        own = [run for run in runs if run.policy == policy]
        if sorted((run.draw, run.seed) for run in own) != sorted(expected):
            raise InputError(
                name=path,
                rule=f"have {seeds} seeds over {draws} draws of {policy}",
                got=f"{len(own)} runs over {len({run.draw for run in own})} draws",
                remedy=f"name as many, or rank {policy} anew",
            )
        found[policy] = [_standing([run for run in own if run.draw == draw], settings) for draw in range(draws)]
    edges = [edge for edge in read_edges(path.with_suffix(EDGES)) if edge.policy in found]
    return EarlierRanking(runs, found, edges)


def _standing(runs: Sequence[RankedRun], settings: Sequence[str]) -> Standing:
    first = runs[0]
    times = Times(
        first.policy, tuple(run.seed for run in runs), np.array([run.seconds for run in runs]),
        np.array([run.of_them_pilots for run in runs]), np.array([run.reached for run in runs]),
        np.full(len(runs), np.nan), traits(first.policy).oracle,
    )  # fmt: skip
    slow = tuple(run.slow_loss for run in runs)
    return Standing({name: getattr(first, name) for name in settings}, times, tuple(run.code for run in runs), slow)


def settings_in_words(choice: Choice) -> str:
    """Return the settings of a policy; of levers those that it uses."""
    used = {
        name: value for name, value in choice.items() if name not in LEVER_NAMES or str(value) != str(BROUGHT[name])
    }
    return ", ".join(
        f"{name} {value if isinstance(value, str) else format(value, 'g')}" for name, value in used.items()
    )
