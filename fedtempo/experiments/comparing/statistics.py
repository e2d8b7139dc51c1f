"""Policies side by side: what each took to a target, over the same seeds."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import numpy as np
from scipy.stats import t as student

from fedtempo.checks import Booleans, InputError, Vector
from fedtempo.experiments.running.results import Run, by_policy

CONFIDENCE = 0.95
FEWEST_VALUES = 3  # for an interval: with two, Student's t takes 13 deviations to either side


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """What a run is to reach."""

    loss: float | None = None
    accuracy: float | None = None
    metric: str | None = field(default=None, compare=False)  # what stands in place of the accuracy, by its name

    def __str__(self) -> str:
        """Say it as a person would."""
        parts = [] if self.loss is None else [f"loss {self.loss:g}"]
        if self.accuracy is not None:
            share = self.metric is None and 0 <= self.accuracy <= 1
            name = self.metric or "metric"
            parts.append(f"accuracy {100 * self.accuracy:g} %" if share else f"{name} {self.accuracy:g}")
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
    reached: Booleans
    rounds: Vector
    oracle: bool = False  # pilots were taken for granted, not left out
    diverged: int = 0  # of the runs that missed the target

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
    longest = max((run.time_trained for run in [*runs, *among]), default=0.0)
    for policy, group in by_policy(runs).items():
        group = sorted(group, key=lambda run: run.seed)
        took = [time_to(run, target, time_limit) for run in group]
        seconds = [
            _time_of_late(run, time_limit, longest) if t is None else t for run, t in zip(group, took, strict=True)
        ]
        rounds = [
            min(run.time.size, int(np.searchsorted(run.time, s)) + 1) for run, s in zip(group, seconds, strict=True)
        ]
        found[policy] = Times(
            policy, tuple(run.seed for run in group), np.array(seconds, dtype=float),
            np.array([run.pilot_time for run in group], dtype=float), np.array([t is not None for t in took]),
            np.array(rounds, dtype=float), all(run.oracle for run in group),
            sum(run.end == "diverged" and t is None for run, t in zip(group, took, strict=True)),
        )  # fmt: skip
    return found


def _limit(run: Run, time_limit: float | None) -> float | None:
    return min((limit for limit in (run.time_limit, time_limit) if limit is not None), default=None)


def _time_of_late(run: Run, time_limit: float | None, longest: float) -> float:
    """Return the time with which a run enters that missed the target."""
    limit, end = _limit(run, time_limit), run.end
    if limit is None:
        return longest if end == "diverged" else run.time_trained
    return limit if end in ("diverged", "max_time") else min(limit, run.time_trained)


def ratio(times: Times, reference: Times) -> tuple[float, float, float]:
    """Return how many times the reference's mean a mean is, x̄/ȳ, with its 95 % interval, NaN for two seeds or one.

    Relative deviations xᵢ/x̄ - yᵢ/ȳ, in pairs where both have the same seeds, have mean 0; their standard error is that
    of log(x̄/ȳ), and Student's t over it gives the interval, whose ends are x̄/ȳ times and over one factor. For
    lognormal times with deviations of up to 60 % it holds the ratio in 93 % to 95 % of cases, for 3 seeds as for 20,
    where resampled seeds would hold it in 77 % of cases for 3. From two seeds it would reach over several orders of
    magnitude. Without pairs the two variances add, with Welch's degrees of freedom.
    """
    value = times.mean / reference.mean if reference.mean else float("inf")
    if min(times.seconds.size, reference.seconds.size) < FEWEST_VALUES or not (times.mean and reference.mean):
        return value, float("nan"), float("nan")
    above, below = times.seconds / times.mean, reference.seconds / reference.mean
    if times.seeds == reference.seeds:
        variance, freedom = float((above - below).var(ddof=1)) / above.size, above.size - 1.0
    else:
        parts = np.array([one.var(ddof=1) / one.size for one in (above, below)])
        weights = np.array([above.size - 1.0, below.size - 1.0])
        variance = float(parts.sum())
        freedom = float(variance**2 / (parts**2 / weights).sum()) if variance else 1.0
    factor = float(np.exp(student.ppf(0.5 + CONFIDENCE / 2, freedom) * variance**0.5))
    return value, value / factor, value * factor


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """What one run took to a target, as scripts read it; the seconds are those of the tables, without pilots."""

    policy: str
    seed: int
    reached: bool
    time_to_target: float
    time_with_pilots: float
    pilot_time: float
    rounds: int
    final_loss: float | None


def outcomes(runs: Iterable[Run], target: Target, time_limit: float | None = None) -> list[RunOutcome]:
    """Return what each run took, by policy in the given order, and by seed."""
    runs = list(runs)
    order = list(dict.fromkeys(run.policy for run in runs))
    runs = sorted(runs, key=lambda run: (order.index(run.policy), run.seed))
    if target == Target():
        raise InputError(name="a comparison", rule="have a target", got="neither a loss nor an accuracy")
    found = times_to(runs, target, time_limit).values()  # in the same order
    each = [one for times in found for one in zip(times.reached, times.seconds, times.rounds, strict=True)]
    return [
        RunOutcome(
            policy=run.policy,
            seed=run.seed,
            reached=bool(reached),
            time_to_target=float(seconds),
            time_with_pilots=float(seconds) + run.pilot_time,
            pilot_time=run.pilot_time,
            rounds=int(rounds),
            final_loss=_final_loss(run),
        )
        for run, (reached, seconds, rounds) in zip(runs, each, strict=True)
    ]


def _final_loss(run: Run) -> float | None:
    losses = run.loss[~np.isnan(run.loss)]
    return float(losses[-1]) if losses.size else None
