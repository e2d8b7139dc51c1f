"""Runs as curves: what each evaluated, their mean over seeds, and how much of them an axis should show."""

import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from fedtempo.checks import Integers, Vector
from fedtempo.experiments.comparing.statistics import Target, time_to
from fedtempo.experiments.running.results import Run

XAxis: TypeAlias = Literal["time", "rounds"]
YAxis: TypeAlias = Literal["loss", "accuracy"]

PANELS: tuple[tuple[XAxis, YAxis], ...] = (("time", "loss"), ("time", "accuracy"), ("rounds", "loss"))
AXIS_LABELS = {"time": "simulated time (s)", "rounds": "rounds", "loss": "loss", "accuracy": "accuracy (%)"}
PERCENT = 100.0
BAND = "middle 80 % of the seeds"
BAND_EDGES = 0.1, 0.9
MOST_POINTS = 800  # of a curve: more cannot be seen
LOG_FROM = 10.0  # an axis that covers a larger ratio than this is logarithmic
LOSSES_SHOWN, ACCURACIES_SHOWN = 2.0, 0.5  # times the target: what came before would press the rest together


@dataclass(frozen=True, eq=False, slots=True)
class Curve:
    """What one run evaluated; entry k of ``y`` holds from ``x[k]`` to the next evaluation."""

    x: Vector
    y: Vector
    reached: bool  # the target: then the last value holds ever after


@dataclass(frozen=True, eq=False, slots=True)
class Average:
    """Mean of some curves, with the range that the middle 80 % of them cover."""

    x: Vector
    mean: Vector
    low: Vector
    high: Vector


@dataclass(frozen=True, eq=False, slots=True)
class Panel:
    """The curves of some groups in one diagram, and what its axes should show."""

    x: XAxis
    y: YAxis
    y_name: str  # loss, accuracy or the metric in its place
    y_label: str  # the same with its unit
    curves: dict[str, list[Curve]]  # of each group, one for each run
    averages: dict[str, Average]
    level: float | None  # of the target on the y axis, None where it has none
    log_x: bool
    log_y: bool
    span: tuple[float, float] | None  # of a linear y axis; None: all


def panel(groups: Mapping[str, Sequence[Run]], target: Target, x: XAxis, y: YAxis) -> Panel:
    """Return the diagram of some groups of runs."""
    curves = {label: [curve(run, x, y, target) for run in group] for label, group in groups.items()}
    averages = {label: average(some) for label, some in curves.items()}
    metric = next((run.metric for group in groups.values() for run in group if run.metric is not None), None)
    wanted = level(target, y, 1.0 if metric else PERCENT)
    log_x, log_y = log_axes(averages.values(), y)
    span = shown_range(averages.values(), y, wanted)
    own = metric if y == "accuracy" else None
    return Panel(x, y, own or y, own or AXIS_LABELS[y], curves, averages, wanted, log_x, log_y and span is None, span)


def curve(run: Run, x: XAxis, y: YAxis, target: Target) -> Curve:
    """Return the loss or the accuracy (%), or the metric in its place, of a run, where it was evaluated."""
    positions = run.time if x == "time" else np.arange(1.0, run.time.size + 1)
    values = run.loss if y == "loss" else (PERCENT if run.metric is None else 1.0) * run.accuracy
    evaluated = np.isfinite(values)
    return Curve(positions[evaluated], values[evaluated], reaches(run, target))


def reaches(run: Run, target: Target) -> bool:
    """Return whether a run reached the target in its time; where there is none, it did not."""
    return target != Target() and time_to(run, target) is not None


def level(target: Target, y: YAxis, unit: float = PERCENT) -> float | None:
    """Return the loss or the accuracy of a target in its unit, None where it has none."""
    if y == "loss":
        return target.loss
    return None if target.accuracy is None else unit * target.accuracy


def average(curves: Sequence[Curve]) -> Average:
    """Return mean and range wherever one of the curves has an evaluation.

    Between evaluations a curve keeps its last value. The average begins where all curves have begun. A curve that
    reached the target keeps its last value when it ends; the average ends with the first one to end without, or with
    the last one of all.
    """
    curves = [one for one in curves if one.x.size]
    if not curves:
        return Average(*(np.empty(0) for _ in range(4)))
    begin = max(one.x[0] for one in curves)
    end = min((one.x[-1] for one in curves if not one.reached), default=max(one.x[-1] for one in curves))
    x = np.unique(np.concatenate([one.x for one in curves]))
    x = x[(x >= begin) & (x <= end)]
    values = np.array([one.y[np.searchsorted(one.x, x, side="right") - 1] for one in curves])
    low, high = np.quantile(values, BAND_EDGES, axis=0)
    return Average(x, values.mean(axis=0), low, high)


def thinned(values: Vector, most: int = MOST_POINTS) -> Integers:
    """Return which points of a curve to draw: the first, the last, and the extremes of each stretch.

    Half of the stretches have equal lengths, half grow with the distance from the start, where curves fall steeply and
    logarithmic axes show much.
    """
    size = values.size
    if size <= most:
        return np.arange(size)
    parts = most // 4
    edges = np.concatenate([np.linspace(0, size, parts), np.geomspace(1, size, parts)]).astype(np.int64)
    stretches = itertools.pairwise(np.unique(edges))
    kept = [int(i) for a, b in stretches for i in (a + values[a:b].argmin(), a + values[a:b].argmax())]
    return np.unique([0, *kept, size - 1])


def shown_range(averages: Iterable[Average], y: YAxis, wanted: float | None) -> tuple[float, float] | None:
    """Return from where to where a linear axis should show losses or accuracies: near the target, and where curves end.

    None: all of them. Without a target the best end stands for it; an end far from it is left out of sight.
    """
    drawn = [one for one in averages if one.x.size]
    if not drawn:
        return None
    ends, lowest = np.array([one.mean[-1] for one in drawn]), min(float(one.low.min()) for one in drawn)
    highest = max(float(one.high.max()) for one in drawn)
    if y == "accuracy":
        reference = float(ends.max()) if wanted is None else wanted
        if reference <= 0:  # of a metric that is no share
            return None
        low = min(ACCURACIES_SHOWN * reference, 0.95 * float(ends.min()))
        high = max(highest, reference)
        return (low, high + 0.04 * (high - low)) if lowest < low else None
    reference = float(ends.min()) if wanted is None else wanted
    near = ends[ends <= LOG_FROM * reference]
    high = 1.05 * max(LOSSES_SHOWN * reference, float(near.max(initial=0.0)))
    return (0.9 * min(lowest, reference), high) if highest > high > 0 else None


def log_axes(averages: Collection[Average], y: YAxis) -> tuple[bool, bool]:
    """Return whether x and y should be logarithmic, so that all of some curves can be seen.

    Where all curves end at like times a linear axis shows them best, however early they begin. Accuracies are linear.
    """
    drawn = [one for one in averages if one.x.size]
    ends, values = np.array([one.x[-1] for one in drawn]), [one.mean for one in drawn]
    return is_wide(ends), y == "loss" and bool(drawn) and is_wide(np.concatenate(values))


def is_wide(values: Vector) -> bool:
    """Return whether positive values cover such a range that only a logarithmic axis shows all of them."""
    return bool(values.size and values.min() > 0 and values.max() > LOG_FROM * values.min())
