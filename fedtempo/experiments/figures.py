"""Runs as pictures for print: loss and accuracy against simulated time, loss against rounds, as in Figures 3 to 6."""

import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedtempo.checks import InputError, Integers, MissingDependencyError, Vector
from fedtempo.experiments.comparison import Target, time_to
from fedtempo.experiments.results import Run
from fedtempo.files import whole_files

PAGE_WIDTH, HEIGHT = 7.0, 2.75  # inches: both columns of a two-column page
FONT_SIZE = 8
LOG_FROM = 10.0  # an axis that covers a larger ratio than this is logarithmic
MOST_POINTS = 800  # of a curve: more cannot be seen

# Okabe and Ito's colours, which the colour-blind tell apart; yellow comes last, since paper is white.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442")
# On and off lengths in widths of the line, so that curves differ without colour too; () is solid.
SOLID, LONG, DASH_DOT, DOTTED, DASH_DOT_DOT = (), (5.0, 1.5), (5.0, 1.5, 1.0, 1.5), (1.0, 1.2), (8, 1.5, 1, 1.5, 1, 1.5)
DASHES: tuple[tuple[float, ...], ...] = (SOLID, LONG, DASH_DOT, DOTTED, DASH_DOT_DOT)
MARKERS = ("circle", "square", "diamond", "triangle-up", "x", "cross", "pentagon", "hexagon")  # by plotly's names
SHADES = (0.0, 0.4, -0.35, 0.65)  # of variants of a policy: how far towards white, or black where negative
DARK_PAGE, LEAST_CONTRAST = "#1a2126", 4.0

PANELS = (("time", "loss"), ("time", "accuracy"), ("rounds", "loss"))
AXIS_LABELS = {"time": "simulated time (s)", "rounds": "rounds", "loss": "loss", "accuracy": "accuracy (%)"}
BAND = "middle 80 % of the seeds"
BAND_EDGES = 0.1, 0.9
LOSSES_SHOWN, ACCURACIES_SHOWN = 2.0, 0.5  # times the target: what came before would press the rest together


@dataclass(frozen=True, slots=True)
class Style:
    """How the curves of one group look."""

    colour: str
    dashes: tuple[float, ...]
    marker: str


# The paper's policies and ours have the clearest colours. Most of the rivals' are Paul Tol's, for the colour-blind too.
LOOKS = {
    "tempo": Style("#D55E00", SOLID, "star"),
    "proposed": Style("#0072B2", SOLID, "circle"),
    "proposed-oracle": Style("#56B4E9", DASH_DOT_DOT, "square"),
    "uniform": Style("#009E73", DASH_DOT, "triangle-up"),
    "weighted": Style("#E69F00", LONG, "x"),
    "statistical": Style("#CC79A7", DOTTED, "diamond"),
    "full": Style("#000000", LONG, "cross"),
    "oort": Style("#882255", LONG, "pentagon"),
    "power-of-choice": Style("#999933", DASH_DOT, "hexagon"),
    "fedcs": Style("#661100", DOTTED, "triangle-down"),
    "tifl": Style("#332288", DASH_DOT_DOT, "triangle-left"),
    "ocs": Style("#AA4499", DASH_DOT, "triangle-right"),
    "clustered": Style("#44AA99", LONG, "hourglass"),
    "kvib": Style("#CC6677", DASH_DOT_DOT, "bowtie"),
    "fedbuff": Style("#777777", SOLID, "star-square"),
}


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


def curve(run: Run, x: str, y: str, target: Target) -> Curve:
    """Return the loss or the accuracy (%) of a run against time or rounds, where it was evaluated."""
    positions = run.time if x == "time" else np.arange(1.0, run.time.size + 1)
    values = run.loss if y == "loss" else 100 * run.accuracy
    there = np.isfinite(values)
    return Curve(positions[there], values[there], reaches(run, target))


def reaches(run: Run, target: Target) -> bool:
    """Return whether a run reached the target in its time; where there is none, it did not."""
    return target != Target() and time_to(run, target) is not None


def level(target: Target, y: str) -> float | None:
    """Return the loss or the accuracy (%) of a target, None where it has none."""
    if y == "loss":
        return target.loss
    return None if target.accuracy is None else 100 * target.accuracy


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


def styles(labels: Iterable[str]) -> dict[str, Style]:
    """Return a style for each label; policies of this package look the same wherever they are drawn.

    Variants of one, such as "uniform, cohort_size 5", have shades of its colour and other dashes. Other labels take
    what is free.
    """
    found: dict[str, Style] = {}
    labels, variants = list(dict.fromkeys(labels)), Counter[str]()
    for label in labels:
        policy = label.partition(",")[0]
        if policy in LOOKS:
            found[label] = _variant(LOOKS[policy], variants[policy])
            variants[policy] += 1
    taken = {style.colour for style in found.values()}
    places = range(len(COLOURS) * len(DASHES))
    free = [
        Style(COLOURS[place % len(COLOURS)], DASHES[place % len(DASHES)], MARKERS[place % len(MARKERS)])
        for place in places
    ]
    free.sort(key=lambda style: style.colour in taken)
    known = {(style.colour, style.dashes) for style in found.values()}
    others = itertools.cycle(style for style in free if (style.colour, style.dashes) not in known)
    return {label: found[label] if label in found else next(others) for label in labels}


def _variant(style: Style, number: int) -> Style:
    """Return the look of one of the variants of a policy, of the first its own."""
    share = SHADES[number % len(SHADES)]
    dashes = DASHES[(DASHES.index(style.dashes) + number) % len(DASHES)]
    return Style(_mixed(style.colour, "#ffffff" if share > 0 else "#000000", abs(share)), dashes, style.marker)


def on_dark(colour: str) -> str:
    """Return a colour to be seen on a dark page: the same, or with as much white as it takes."""
    shares = np.arange(0.0, 1.0, 0.05)
    page = _luminance(DARK_PAGE) + 0.05
    return next(
        mixed
        for mixed in (_mixed(colour, "#ffffff", float(share)) for share in shares)
        if (_luminance(mixed) + 0.05) / page >= LEAST_CONTRAST
    )


def _mixed(colour: str, other: str, share: float) -> str:
    if not share:
        return colour
    mixed = (1 - share) * _channels(colour) + share * _channels(other)
    return "#" + "".join(f"{round(255 * part):02X}" for part in mixed.tolist())


def _luminance(colour: str) -> float:
    """Return the relative luminance of sRGB, as contrasts between colours are measured by."""
    parts = _channels(colour)
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    return float(linear @ np.array([0.2126, 0.7152, 0.0722]))


def _channels(colour: str) -> Vector:
    return np.array([int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)])


def shown_range(averages: Iterable[Average], y: str, wanted: float | None) -> tuple[float, float] | None:
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
        low = min(ACCURACIES_SHOWN * reference, 0.95 * float(ends.min()))
        high = max(highest, reference)
        return (low, high + 0.04 * (high - low)) if lowest < low else None
    reference = float(ends.min()) if wanted is None else wanted
    near = ends[ends <= LOG_FROM * reference]
    high = 1.05 * max(LOSSES_SHOWN * reference, float(near.max(initial=0.0)))
    return (0.9 * min(lowest, reference), high) if highest > high > 0 else None


def log_axes(averages: Iterable[Average], y: str) -> tuple[bool, bool]:
    """Return whether x and y should be logarithmic, so that all of some curves can be seen.

    Where all curves end at like times a linear axis shows them best, however early they begin. Accuracies are linear.
    """
    drawn = [one for one in averages if one.x.size]
    ends, values = np.array([one.x[-1] for one in drawn]), [one.mean for one in drawn]
    return is_wide(ends), y == "loss" and bool(drawn) and is_wide(np.concatenate(values))


def is_wide(values: Vector) -> bool:
    """Return whether positive values cover such a range that only a logarithmic axis shows all of them."""
    return bool(values.size and values.min() > 0 and values.max() > LOG_FROM * values.min())


def policy_name(run: Run) -> str:
    """Return the label that runs are grouped by unless another is asked for."""
    return run.policy


def grouped(runs: Iterable[Run], labels: Callable[[Run], str] = policy_name) -> dict[str, list[Run]]:
    """Return runs by label, in the order of their names, where K = 5 comes before K = 10."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(labels(run), []).append(run)
    return {label: groups[label] for label in sorted(groups, key=_by_numbers)}


def _by_numbers(label: str) -> list[tuple[float, str]]:
    parts = re.split(r"(\d+(?:\.\d+)?)", label)
    return [(float(part), "") if place % 2 else (-1.0, part) for place, part in enumerate(parts)]


def draw_comparison(
    runs: list[Run],
    target: Target,
    path_without_suffix: Path,
    *,
    title: str,
    labels: Callable[[Run], str] = policy_name,
) -> list[Path]:
    """Draw loss against time, accuracy against time and loss against rounds as PDF and PNG; return their paths.

    One line for each label: the mean over its runs, with a band of the middle 80 % of them. Equal runs give equal
    bytes.
    """
    if not any(np.isfinite(run.loss).any() for run in runs):
        raise InputError(name="a figure", rule="have runs that were evaluated", got="none")
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingDependencyError("matplotlib", "report", "a figure") from None
    small = {"font.size": FONT_SIZE, "axes.titlesize": FONT_SIZE, "figure.titlesize": FONT_SIZE + 1}
    lines = {"axes.linewidth": 0.6, "lines.linewidth": 1.2, "lines.scale_dashes": True, "pdf.fonttype": 42}
    paths = [path_without_suffix.with_name(path_without_suffix.name + ending) for ending in (".pdf", ".png")]
    with matplotlib.rc_context({**small, **lines}):
        figure = Figure(figsize=(PAGE_WIDTH, HEIGHT), layout="constrained")
        _draw(figure, grouped(runs, labels), target, title)
        with whole_files(*((path, "wb") for path in paths)) as (pdf, png):
            figure.savefig(pdf, format="pdf", metadata={"CreationDate": None})
            figure.savefig(png, format="png", dpi=300, metadata={"Software": None})
    return paths


def _draw(figure: Any, groups: dict[str, list[Run]], target: Target, title: str) -> None:  # noqa: ANN401
    look, handles = styles(groups), {}
    for axes, letter, (x, y) in zip(figure.subplots(1, 3), "abc", PANELS, strict=True):
        averages = {label: average([curve(run, x, y, target) for run in group]) for label, group in groups.items()}
        for label, one in averages.items():
            dashes = (0, look[label].dashes) if look[label].dashes else "solid"
            shown = np.unique(np.concatenate([thinned(values) for values in (one.mean, one.low, one.high)]))
            x_shown, low, high = one.x[shown], one.low[shown], one.high[shown]
            (handles[label],) = axes.plot(x_shown, one.mean[shown], color=look[label].colour, linestyle=dashes)
            axes.fill_between(x_shown, low, high, color=look[label].colour, alpha=0.18, linewidth=0)
        if (wanted := level(target, y)) is not None:
            line = axes.axhline(wanted, color="0.35", linewidth=0.8, linestyle=(0, (6, 4)), zorder=1)
            handles[f"target: {target}"] = line
        _set_axes(axes, x, y, averages.values())
        if (span := shown_range(averages.values(), y, wanted)) is not None:
            axes.set(yscale="linear", ylim=span)
        axes.set_title(f"({letter}) {y} against {x}")
    keys = sorted(handles, key=lambda label: label not in groups)  # the target comes last
    figure.suptitle(title)
    most = 5 if max(map(len, keys)) <= 18 else 3
    figure.legend(
        [handles[key] for key in keys], keys, loc="outside lower center", ncols=min(len(keys), most), frameon=False,
        handlelength=3.2, columnspacing=1.6, title=_explanation(groups.values(), target),
        title_fontsize=FONT_SIZE - 1.5,
    )  # fmt: skip


def _set_axes(axes: Any, x: str, y: str, averages: Iterable[Average]) -> None:  # noqa: ANN401
    log_x, log_y = log_axes(averages, y)
    axes.set(xscale="log" if log_x else "linear", yscale="log" if log_y else "linear")
    if not log_x:
        axes.set_xlim(left=0)
        axes.xaxis.set_major_locator(_few_ticks())
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,g}")
    axes.set(xlabel=AXIS_LABELS[x], ylabel=AXIS_LABELS[y])
    axes.grid(alpha=0.3, linewidth=0.4)
    axes.tick_params(width=0.6)


def _few_ticks() -> Any:  # noqa: ANN401
    from matplotlib.ticker import MaxNLocator

    return MaxNLocator(nbins=4, steps=[1, 2, 2.5, 5, 10])


def _explanation(groups: Iterable[list[Run]], target: Target) -> str:
    """Say what lines and bands are, and what became of runs that have ended."""
    groups = list(groups)
    sizes = sorted({len(group) for group in groups})
    pilots = "; pilots left out" if any(run.pilot_time for group in groups for run in group) else ""
    if sizes == [1]:
        return f"lines: one seed each{pilots}"
    seeds = f"{sizes[0]}" if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"
    said = f"lines: mean over {seeds} seeds; bands: {BAND}"
    if any(reaches(run, target) for group in groups for run in group):
        said += "; a run that has ended at the target keeps its last value"
    return said + pilots
