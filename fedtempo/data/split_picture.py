"""A split as a picture: how much each client holds, and of which classes."""

from typing import TYPE_CHECKING

import numpy as np

from fedtempo.checks import Integers, Vector
from fedtempo.data.split_summary import SplitSummary
from fedtempo.figures import new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure

MOST_COLUMNS = 1200  # of a picture; where there are more clients, neighbours share one
MOST_NAMES = 30  # of clients or classes along an axis
LONGEST_NAME = 16
COLOUR = "#31688e"


def draw_split(summary: SplitSummary) -> "Figure":
    """Draw the sizes of the clients above the shares of the classes in each; clients with the same main class together.

    Within a main class, clients with the largest share of it come first. Where labels are no classes, clients stand in
    the order of their sizes.
    """
    classes = 0 if summary.counts is None else len(summary.class_names)
    height = 3.0 if not classes else 2.2 + min(6.0, max(1.6, 0.28 * classes))
    figure = new_figure(9.0, height)
    figure.suptitle(_title(summary), fontsize=11)
    order = _order(summary)
    if summary.mixes is None:
        _draw_sizes(figure.subplots(), summary.sizes[order])
        _name_clients(figure.axes[0], order, "largest first")
        return figure
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(1, max(1.2, (height - 2.2) / 1.2)))
    _draw_sizes(above, summary.sizes[order])
    _draw_classes(below, summary.mixes[order], summary.class_names)
    _name_clients(below, order, "by their main class")
    return figure


def _title(summary: SplitSummary) -> str:
    if summary.distance_to_all is None:
        return summary.title
    return f"{summary.title}\nmean distance of a client's classes from those of all: {summary.distance_to_all:.2f}"


def _order(summary: SplitSummary) -> Integers:
    if summary.mixes is None:
        return np.argsort(-summary.sizes, kind="stable")
    main = summary.mixes.argmax(axis=1)
    return np.lexsort((-summary.mixes.max(axis=1), main))


def _draw_sizes(axes: "Axes", sizes: Integers) -> None:
    values, edges = _columns(sizes.astype(np.float64)[:, np.newaxis])
    wide = edges[1] - edges[0] >= 1 and sizes.size <= 60
    gap = 0.15 if wide else 0.0
    axes.bar(edges[:-1] + 0.5 * np.diff(edges), values[:, 0], np.diff(edges) * (1 - gap), color=COLOUR, linewidth=0)
    if sizes.max() > 30 * np.median(sizes):
        axes.set_yscale("log")
        axes.set_ylim(0.5, None)
        axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.set_ylabel("samples")
    axes.margins(x=0)
    axes.tick_params(axis="x", length=0)
    axes.spines[["top", "right"]].set_visible(False)


def _draw_classes(axes: "Axes", mixes: Vector, names: tuple[str, ...]) -> None:
    values, edges = _columns(mixes)
    rows = np.arange(len(names) + 1) - 0.5
    shares = axes.pcolormesh(edges, rows, values.T, cmap=_colours(), vmin=0, vmax=1, linewidth=0, rasterized=True)
    axes.invert_yaxis()
    step = -(-len(names) // MOST_NAMES)
    axes.set_yticks(np.arange(0, len(names), step), [_short(name) for name in names[::step]])
    axes.tick_params(axis="y", length=0, labelsize=8)
    axes.set_ylabel("class")
    bar = axes.figure.colorbar(shares, ax=axes, location="bottom", fraction=0.05, pad=0.03, aspect=50, format="{x:.0%}")
    bar.set_label("share of the client's samples", fontsize=9)
    bar.ax.tick_params(labelsize=8)
    bar.outline.set_visible(False)


def _name_clients(axes: "Axes", order: Integers, how: str) -> None:
    shared = f"; each column is the mean of {order.size / MOST_COLUMNS:.1f}" if order.size > MOST_COLUMNS else ""
    axes.set_xticks([])
    axes.set_xlabel(f"{order.size:,} clients, {how}{shared}")
    if order.size <= MOST_NAMES:
        axes.set_xticks(np.arange(order.size), [str(client) for client in order], fontsize=8)
        axes.set_xlabel(f"client, {how}")
    axes.tick_params(axis="x", length=0)


def _columns(values: Vector) -> tuple[Vector, Vector]:
    """Return the means of neighbours where there are too many clients to show each, and the edges of the columns."""
    count = min(len(values), MOST_COLUMNS)
    starts = np.arange(count) * len(values) // count
    sums: Vector = np.add.reduceat(values, starts, axis=0)
    edges = np.append(starts, len(values)).astype(np.float64)
    return sums / np.diff(edges)[:, np.newaxis], edges - 0.5


def _colours() -> "Colormap":
    """Return colours from white, for a class that a client lacks, to dark; small shares can be told from none."""
    from matplotlib.colors import LinearSegmentedColormap

    stops = ((0.0, "#ffffff"), (0.002, "#e3edf6"), (0.2, "#a4c8e3"), (0.5, "#4b8dbd"), (1.0, "#0b2a45"))
    return LinearSegmentedColormap.from_list("shares", stops)


def _short(name: str) -> str:
    return name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…"
