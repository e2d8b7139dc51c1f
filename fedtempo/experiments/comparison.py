"""Policies side by side: what each took to a target, over the same seeds."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import t as student

from fedtempo.checks import InputError, Vector
from fedtempo.experiments.results import Run, by_policy

CONFIDENCE = 0.95
FEWEST_VALUES = 3  # for an interval: with two, Student's t takes 13 deviations to either side
RESAMPLES = 2000


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """What a run is to reach."""

    loss: float | None = None
    accuracy: float | None = None

    def __str__(self) -> str:
        """Say it as a person would."""
        parts = [] if self.loss is None else [f"loss {self.loss:g}"]
        parts += [] if self.accuracy is None else [f"accuracy {100 * self.accuracy:g} %"]
        return " and ".join(parts) or "no target"


def interval_of_mean(values: Vector) -> tuple[float, float] | None:
    """Return the 95 % interval of a mean, by Student's t; None for two values or one."""
    if values.size < FEWEST_VALUES:
        return None
    half = float(student.ppf(0.5 + CONFIDENCE / 2, values.size - 1) * values.std(ddof=1) / values.size**0.5)
    return float(values.mean()) - half, float(values.mean()) + half


@dataclass(frozen=True, eq=False, slots=True)
class Times:
    """Seconds that the runs of one policy took to a target; those that did not reach it stand at their limit."""

    policy: str
    seeds: tuple[int, ...]
    seconds: Vector  # without pilots
    pilots: Vector
    reached: np.ndarray[Any, np.dtype[np.bool_]]
    rounds: Vector

    @property
    def mean(self) -> float:
        """Mean over the seeds."""
        return float(self.seconds.mean())

    @property
    def deviation(self) -> float:
        """Standard deviation over the seeds, 0 for one seed."""
        return float(self.seconds.std(ddof=1)) if self.seconds.size > 1 else 0.0

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % interval of the mean, by Student's t; None for two seeds or one, or where a run missed the target.

        Its lower end may lie below 0, where times cannot: few seeds far apart then bound the mean from above alone.
        """
        return None if self.missed else interval_of_mean(self.seconds)

    @property
    def missed(self) -> int:
        """How many runs did not reach the target."""
        return int((~self.reached).sum())

    def with_pilots(self) -> "Times":
        """Return the same with the time of the pilots added."""
        return Times(self.policy, self.seeds, self.seconds + self.pilots, self.pilots, self.reached, self.rounds)


def times_to(runs: Iterable[Run], target: Target, time_limit: float | None = None) -> dict[str, Times]:
    """Return what each policy took to the target. A run that missed it, or took longer than the limit, counts as late.

    It then enters with the limit, or where there is none with all the time that it trained; one that diverged enters
    with the longest time that any run trained, since it was given more than it took.
    """
    runs, found = list(runs), {}
    longest = max((float(run.time[-1]) for run in runs if run.time.size), default=0.0)
    for policy, group in by_policy(runs).items():
        group = sorted(group, key=lambda run: run.seed)
        took = [run.time_to(loss=target.loss, accuracy=target.accuracy) for run in group]
        reached = np.array([t is not None and (time_limit is None or t <= time_limit) for t in took])
        given = [_given(run, longest) if time_limit is None else time_limit for run in group]
        seconds = np.array([t if ok else limit for t, ok, limit in zip(took, reached, given, strict=True)])
        rounds = [
            min(run.time.size, int(np.searchsorted(run.time, s)) + 1) for run, s in zip(group, seconds, strict=True)
        ]
        found[policy] = Times(
            policy, tuple(run.seed for run in group), seconds.astype(float),
            np.array([run.pilot_time for run in group], dtype=float), reached, np.array(rounds, dtype=float),
        )  # fmt: skip
    return found


def _given(run: Run, longest: float) -> float:
    return longest if run.summary.get("end") == "diverged" or not run.time.size else float(run.time[-1])


def ratio(of: Times, to: Times) -> tuple[float, float, float]:
    """Return mean(of)/mean(to) with a 95 % interval from resampled seeds, in pairs where both have the same ones."""
    value = of.mean / to.mean if to.mean else float("inf")
    if of.seconds.size < 2 or to.seconds.size < 2 or not to.mean:
        return value, float("nan"), float("nan")
    rng = np.random.default_rng(0)
    above = rng.integers(of.seconds.size, size=(RESAMPLES, of.seconds.size))
    below = above if of.seeds == to.seeds else rng.integers(to.seconds.size, size=(RESAMPLES, to.seconds.size))
    spread = of.seconds[above].mean(axis=1) / to.seconds[below].mean(axis=1)
    low, high = np.quantile(spread, [0.5 - CONFIDENCE / 2, 0.5 + CONFIDENCE / 2])
    return value, float(low), float(high)


def as_json(runs: Iterable[Run], target: Target, time_limit: float | None = None) -> list[dict[str, Any]]:
    """Return one object for each run, as scripts read it; the time to the target leaves pilots out."""
    runs = sorted(runs, key=lambda run: (run.policy, run.seed))
    if target.loss is None and target.accuracy is None:
        raise InputError("a comparison must have a target, got neither a loss nor an accuracy")
    rows = []
    for run in runs:
        (times,) = times_to([run], target, time_limit).values()
        losses = run.loss[~np.isnan(run.loss)]
        rows.append({
            "policy": run.policy,
            "seed": run.seed,
            "reached": bool(times.reached[0]),
            "time_to_target": float(times.seconds[0]),
            "pilot_time": run.pilot_time,
            "rounds": int(times.rounds[0]),
            "final_loss": float(losses[-1]) if losses.size else None,
        })  # fmt: skip
    return rows
