"""Policies under several choices of training settings: run, and judged by one procedure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice, product
from pathlib import Path
from typing import Literal

from fedtempo.engine.settings import TrainingSettings
from fedtempo.experiments.comparing.statistics import Target, Times, times_to
from fedtempo.experiments.ranking.setup_grids import Choice, Choices
from fedtempo.experiments.running.grid import Execution, run_grid
from fedtempo.experiments.running.planned import PlannedRun, Policies, by_name, plan_runs
from fedtempo.experiments.running.results import Run
from fedtempo.experiments.settings.assignments import Assignments, KeyPath, paths_in, refuse_assigned
from fedtempo.experiments.settings.changes import changed
from fedtempo.experiments.settings.config import Experiment
from fedtempo.experiments.settings.decode import SettingsTable, merged

FIRST_SEED = 1000  # of tuning: comparisons use others
LARGEST_STEP = 3.0  # times beyond the edge of what was tried
SIZES = ("step_size", "cohort_size")  # whose edges are told: those of other settings are their natural ends


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class SearchSpace:
    """Where candidates come from: an experiment, and what is tried over it."""

    experiment: Experiment
    choices: Choices
    seeds: Sequence[int]
    stop: SettingsTable  # targets and limits in place of the experiment's
    root: Path  # folder of the records
    worlds: Sequence[SettingsTable] = ({},)  # tables that lie over the experiment, such as other draws of the data
    assignments: Assignments = ()  # single settings over all of these, none of which may be one that is tried


@dataclass(frozen=True, eq=False, slots=True)
class Candidate:
    """One policy under one choice of settings, and the runs that are to judge it."""

    policy: str
    choice: Choice
    training: TrainingSettings  # all of them
    runs: list[PlannedRun]


@dataclass(frozen=True, eq=False, slots=True)
class Trial:
    """A candidate, and what its runs came to."""

    candidate: Candidate
    runs: list[Run]

    @property
    def policy(self) -> str:
        """The policy that was tried."""
        return self.candidate.policy

    @property
    def choice(self) -> Choice:
        """The settings that it was tried with."""
        return self.candidate.choice

    def times(self, target: Target, among: Sequence[Run] = ()) -> Times:
        """Return what its runs took, pilots counted; ``among``: the runs that they are compared with."""
        (found,) = times_to(self.runs, target, among=among).values()
        return found.with_pilots()


@dataclass(frozen=True, order=True, slots=True)
class Score:
    """How bad a trial is."""

    missed: int  # runs that did not reach the target
    diverged: int
    seconds: float  # on the mean, pilots counted
    losses: float  # at the end; where everyone misses the target, all have taken the same time


@dataclass(frozen=True, slots=True)
class Edge:
    """A best setting that lies at the edge of what was tried."""

    policy: str
    setting: str
    value: float
    end: Literal["smallest", "largest"]
    beyond: float  # what to try next

    def __str__(self) -> str:
        """Say it as a person would."""
        tried = f"{self.policy}: {self.setting} {self.value:g} is the {self.end} that was tried"
        return f"{tried}; try {self.beyond:g} too"


def candidates(policies: Policies, space: SearchSpace) -> list[Candidate]:
    """Return every policy with every choice of settings, in every world."""
    chosen: list[KeyPath] = [("training", name) for name in space.choices]
    chosen += [("policy", policy, *path) for policy in policies for path in chosen]
    refuse_assigned(space.assignments, chosen, "values of it are tried")
    refuse_assigned(space.assignments, (path for world in space.worlds for path in paths_in(world)), "draws set it")
    found = []
    for (name, policy), values in product(by_name(policies).items(), product(*space.choices.values())):
        choice = dict(zip(space.choices, values, strict=True))
        own: dict[str, object] = {"policy": {name: {"training": choice}}}
        runs = []
        for world in space.worlds:
            over = merged(world, own | ({"stop": space.stop} if space.stop else {}))
            experiment = changed(space.experiment, over, space.assignments)
            runs += plan_runs(experiment, {name: policy}, space.seeds, space.root)
        found.append(Candidate(name, choice, runs[0].training, runs))
    return found


def try_out(title: str, tried: Sequence[Candidate], execution: Execution) -> list[Trial]:
    """Run all candidates as one grid."""
    runs = iter(run_grid(title, [run for one in tried for run in one.runs], execution))
    return [Trial(one, list(islice(runs, len(one.runs)))) for one in tried]


def scores(trials: Sequence[Trial], target: Target) -> list[Score]:
    """Return how bad each trial is, by the same procedure for all."""
    everything = [run for trial in trials for run in trial.runs]
    found = []
    for trial in trials:
        times = trial.times(target, everything)
        diverged = sum(run.end == "diverged" for run in trial.runs)
        losses = sum(map(_last_loss, trial.runs)) if times.missed else 0.0
        found.append(Score(times.missed, diverged, times.mean, losses))
    return found


def _last_loss(run: Run) -> float:
    loss = None if run.summary is None else run.summary.loss
    return math.inf if loss is None or math.isnan(loss) else loss


def best_of(trials: Sequence[Trial], target: Target) -> dict[str, Trial]:
    """Return the best trial of each policy: the fewest missed runs, then the shortest mean time."""
    best: dict[str, tuple[Score, Trial]] = {}
    for trial, score in zip(trials, scores(trials, target), strict=True):
        if trial.policy not in best or score < best[trial.policy][0]:
            best[trial.policy] = score, trial
    return {policy: trial for policy, (_, trial) in best.items()}


def edges_of(trials: Sequence[Trial], target: Target) -> list[Edge]:
    """Return which best settings of each policy lie at the edge of what was tried, and what to try next.

    That is as far beyond the edge as its neighbour lies within, or a factor of three where that is further away.
    """
    found, scored = [], dict(zip(map(id, trials), scores(trials, target), strict=True))
    for policy, best in best_of(trials, target).items():
        own = [one for one in trials if one.policy == policy]
        as_good = [one.choice for one in own if scored[id(one)] == scored[id(best)]]
        found += edges_of_best(policy, best.choice, [one.choice for one in own], as_good)
    return found


def edges_of_best(policy: str, best: Choice, tried: Sequence[Choice], as_good: Sequence[Choice]) -> list[Edge]:
    """Return which of the best settings of one policy lie at the edge; ``as_good``: what came to the same as the best.

    What was tried with server momentum is a grid of its own. Equals on both sides of an edge leave it nothing to say.
    """
    found = []
    for setting in (name for name in SIZES if name in best):
        values, equals = (
            sorted({_number(one[setting]) for one in choices if _has_momentum(one) == _has_momentum(best)})
            for choices in (tried, as_good)
        )
        edge = None if len(equals) > 1 else _edge(policy, setting, _number(best[setting]), values)
        found += [] if edge is None else [edge]
    return found


def _number(value: float | str) -> float:
    if isinstance(value, str):
        raise TypeError(f"edges are of numbers, got {value!r}")
    return value


def _edge(policy: str, setting: str, value: float, tried: Sequence[float]) -> Edge | None:
    """Return how a value lies at the edge of what was tried, None if it does not."""
    if len(tried) == 1 or value not in (tried[0], tried[-1]):
        return None
    neighbour = tried[1] if value == tried[0] else tried[-2]
    ratio = min(max(value / neighbour, 1 / LARGEST_STEP), LARGEST_STEP)
    beyond = max(1, round(value * ratio)) if isinstance(value, int) else float(f"{value * ratio:.2g}")
    if beyond == value:
        return None
    return Edge(policy, setting, value, "smallest" if value == tried[0] else "largest", beyond)


def _has_momentum(choice: Choice) -> bool:
    return choice.get("server_momentum", 0.0) != 0
