"""Policies side by side: what each took to a target, over the same seeds."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.stats import t as student

from fedtempo.checks import InputError, Vector
from fedtempo.experiments.results import Run, by_policy

CONFIDENCE = 0.95
FEWEST_VALUES = 3  # for an interval: with two, Student's t takes 13 deviations to either side


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
    """Seconds that the runs of one policy took to a target; those that did not reach it stand at what they trained."""

    policy: str
    seeds: tuple[int, ...]
    seconds: Vector  # without pilots
    pilots: Vector
    reached: np.ndarray[Any, np.dtype[np.bool_]]
    rounds: Vector
    oracle: bool = False  # pilots were taken for granted, not left out

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
        return replace(self, seconds=self.seconds + self.pilots)


def time_to(run: Run, target: Target, time_limit: float | None = None) -> float | None:
    """Return the seconds of training to a target; None if it was missed, or reached after the run's limit or this one.

    A round that passes the limit may still reach the target: that is too late, by the same rule for all.
    """
    took, limit = run.time_to(loss=target.loss, accuracy=target.accuracy), _limit(run, time_limit)
    return None if took is None or (limit is not None and took > limit) else took


def times_to(
    runs: Iterable[Run], target: Target, time_limit: float | None = None, *, among: Iterable[Run] = ()
) -> dict[str, Times]:
    """Return what each policy took to the target; a run that missed it, or reached it after its limit, counts as late.

    A late run enters with the time that it trained, but for what lies beyond its limit. One that diverged would never
    have reached the target, however long: it enters with the limit, or where there is none with the longest time that
    any of the runs trained. ``among``: other runs of the same comparison, for that longest time.
    """
    runs, found = list(runs), {}
    longest = max((_trained(run) for run in [*runs, *among]), default=0.0)
    for policy, group in by_policy(runs).items():
        group = sorted(group, key=lambda run: run.seed)
        took = [time_to(run, target, time_limit) for run in group]
        seconds = [_given(run, time_limit, longest) if t is None else t for run, t in zip(group, took, strict=True)]
        rounds = [
            min(run.time.size, int(np.searchsorted(run.time, s)) + 1) for run, s in zip(group, seconds, strict=True)
        ]
        found[policy] = Times(
            policy, tuple(run.seed for run in group), np.array(seconds, dtype=float),
            np.array([run.pilot_time for run in group], dtype=float), np.array([t is not None for t in took]),
            np.array(rounds, dtype=float), all(run.oracle for run in group),
        )  # fmt: skip
    return found


def _limit(run: Run, time_limit: float | None) -> float | None:
    return min((limit for limit in (run.time_limit, time_limit) if limit is not None), default=None)


def _trained(run: Run) -> float:
    return float(run.time[-1]) if run.time.size else 0.0


def _given(run: Run, time_limit: float | None, longest: float) -> float:
    """Return the time with which a late run enters."""
    limit, end = _limit(run, time_limit), run.end
    if limit is None:
        return longest if end == "diverged" else _trained(run)
    return limit if end in ("diverged", "max_time") else min(limit, _trained(run))


def ratio(of: Times, to: Times) -> tuple[float, float, float]:
    """Return mean(of)/mean(to) with its 95 % interval, NaN for one seed.

    Relative deviations xᵢ/x̄ - yᵢ/ȳ, in pairs where both have the same seeds, have mean 0; their standard error is that
    of log(x̄/ȳ), and Student's t over it gives the interval, whose ends are x̄/ȳ times and over one factor. For
    lognormal times with deviations of up to 60 % it holds the ratio in 93 % to 95 % of cases, for 2 seeds as for 20,
    where resampled seeds would hold it in 55 % of cases for 2 seeds and 77 % for 3. Without pairs the two variances
    add, with Welch's degrees of freedom.
    """
    value = of.mean / to.mean if to.mean else float("inf")
    if of.seconds.size < 2 or to.seconds.size < 2 or not (of.mean and to.mean):
        return value, float("nan"), float("nan")
    above, below = of.seconds / of.mean, to.seconds / to.mean
    if of.seeds == to.seeds:
        variance, freedom = float((above - below).var(ddof=1)) / above.size, above.size - 1.0
    else:
        parts = np.array([one.var(ddof=1) / one.size for one in (above, below)])
        weights = np.array([above.size - 1.0, below.size - 1.0])
        variance = float(parts.sum())
        freedom = float(variance**2 / (parts**2 / weights).sum()) if variance else 1.0
    factor = float(np.exp(student.ppf(0.5 + CONFIDENCE / 2, freedom) * variance**0.5))
    return value, value / factor, value * factor


def as_json(runs: Iterable[Run], target: Target, time_limit: float | None = None) -> list[dict[str, Any]]:
    """Return one object for each run, as scripts read it, with the seconds of the tables; they leave pilots out."""
    runs = sorted(runs, key=lambda run: (run.policy, run.seed))
    if target.loss is None and target.accuracy is None:
        raise InputError(name="a comparison", rule="have a target", got="neither a loss nor an accuracy")
    found = times_to(runs, target, time_limit).values()  # in the same order
    told = [row for one in found for row in zip(one.reached, one.seconds, one.rounds, strict=True)]
    rows = []
    for run, (reached, seconds, rounds) in zip(runs, told, strict=True):
        losses = run.loss[~np.isnan(run.loss)]
        rows.append({
            "policy": run.policy,
            "seed": run.seed,
            "reached": bool(reached),
            "time_to_target": float(seconds),
            "pilot_time": run.pilot_time,
            "rounds": int(rounds),
            "final_loss": float(losses[-1]) if losses.size else None,
        })  # fmt: skip
    return rows
