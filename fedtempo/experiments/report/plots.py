"""All that the page's script draws of one section; fields have the names that the script reads."""

from collections.abc import Iterable, Mapping, Sequence

import msgspec
import numpy as np

from fedtempo.checks import Vector
from fedtempo.experiments.comparing.curves import (
    AXIS_LABELS,
    MOST_POINTS,
    PANELS,
    Average,
    XAxis,
    YAxis,
    panel,
    thinned,
)
from fedtempo.experiments.comparing.statistics import Target
from fedtempo.experiments.comparing.styles import Style
from fedtempo.experiments.report.client_points import ClientsPlot, clients_plot, short
from fedtempo.experiments.report.sections import SectionRuns
from fedtempo.experiments.running.results import Run

SEED_POINTS = 240  # of the curve of one seed, a thin line among many
WHISKERS = (0.05, 0.25, 0.5, 0.75, 0.95)  # of the round times

Points = list[list[float]]  # x and y


class GroupPlot(msgspec.Struct, frozen=True):
    """A group of runs, and how it looks."""

    name: str
    colour: str
    dashes: list[float]
    marker: str
    runs: int


class SeedCurve(msgspec.Struct, frozen=True):
    """The curve of one run."""

    seed: int
    points: Points


class GroupCurve(msgspec.Struct, frozen=True):
    """The mean of a group, the outline of its band, and its runs one by one."""

    mean: Points
    band: Points
    seeds: list[SeedCurve]


class PanelPlot(msgspec.Struct, frozen=True):
    """The curves of all groups against one axis."""

    x: str
    y: str
    log_x: bool
    log_y: bool
    range: list[float] | None
    target: float | None
    curves: list[GroupCurve]


class RoundTimes(msgspec.Struct, frozen=True, omit_defaults=True):
    """How long the rounds of a group took."""

    rounds: int
    mean: float | None = None
    quantiles: list[float] = []


class Plots(msgspec.Struct, frozen=True):
    """One section; lists have an entry for each group, in the order of ``groups``."""

    groups: list[GroupPlot]
    panels: list[PanelPlot]
    fleet: ClientsPlot | None
    rounds: list[RoundTimes]


def plots(section: SectionRuns, look: Mapping[str, Style]) -> Plots:
    """Return the diagrams of a section."""
    groups = section.groups
    return Plots(
        groups=[
            GroupPlot(label, look[label].colour, list(look[label].dashes), look[label].marker, len(group))
            for label, group in groups.items()
        ],
        panels=[_panel(groups, section.target, x, y) for x, y in PANELS],
        fleet=clients_plot(groups),
        rounds=[_round_times(group) for group in groups.values()],
    )


def clock_name(runs: Iterable[Run]) -> str:
    """Return what measured the times of some runs: simulated, real, or both."""
    return " and ".join(sorted({run.clock for run in runs}, reverse=True))


def _panel(groups: Mapping[str, Sequence[Run]], target: Target, x: XAxis, y: YAxis) -> PanelPlot:
    shown = panel(groups, target, x, y)
    drawn = [
        GroupCurve(
            mean=_points(shown.averages[label].x, shown.averages[label].mean),
            band=_outline(shown.averages[label]) if len(group) > 1 else [[], []],
            seeds=[
                SeedCurve(run.seed, _points(one.x, one.y, SEED_POINTS))
                for run, one in zip(group, shown.curves[label], strict=True)
            ],
        )
        for label, group in groups.items()
    ]
    runs = [run for group in groups.values() for run in group]
    pilots = ", pilots left out" if any(run.pilot_time for run in runs) else ""
    return PanelPlot(
        x=(f"{clock_name(runs)} time (s)" if x == "time" else AXIS_LABELS[x]) + pilots,
        y=shown.y_label,
        log_x=shown.log_x,
        log_y=shown.log_y,
        range=None if shown.span is None else short(np.array(shown.span)),
        target=shown.level,
        curves=drawn,
    )


def _outline(one: Average) -> Points:
    """Return the band of an average as a closed line: along its lower edge, and back along the upper."""
    low, high = thinned(one.low), thinned(one.high)[::-1]
    return [short(np.concatenate([one.x[low], one.x[high]])), short(np.concatenate([one.low[low], one.high[high]]))]


def _round_times(group: Sequence[Run]) -> RoundTimes:
    times = np.array([record.round_time for run in group for record in run.trained])
    if not times.size:
        return RoundTimes(0)
    return RoundTimes(times.size, float(times.mean()), short(np.quantile(times, WHISKERS)))


def _points(x: Vector, y: Vector, most: int = MOST_POINTS) -> Points:
    shown = thinned(y, most)
    return [short(x[shown]), short(y[shown])]
