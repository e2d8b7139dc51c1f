"""Runs as pictures for print: loss and accuracy against simulated time, loss against rounds, as in Figures 3 to 6."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fedtempo.checks import InputError
from fedtempo.experiments.comparing.curves import AXIS_LABELS, BAND, PANELS, Panel, panel, reaches, thinned
from fedtempo.experiments.comparing.groups import grouped, policy_label
from fedtempo.experiments.comparing.statistics import Target
from fedtempo.experiments.comparing.styles import Style, styles
from fedtempo.experiments.running.results import Run
from fedtempo.figures import PRINT_DPI, check_matplotlib, new_figure, save_figure
from fedtempo.files import whole_files

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

PAGE_WIDTH, HEIGHT = 7.0, 2.75  # inches: both columns of a two-column page
FONT_SIZE = 8
SMALL = {"font.size": FONT_SIZE, "axes.titlesize": FONT_SIZE, "figure.titlesize": FONT_SIZE + 1}
LINES = {"axes.linewidth": 0.6, "lines.linewidth": 1.2, "lines.scale_dashes": True, "pdf.fonttype": 42}
LONG_LABEL = 18  # letters; of longer ones fewer stand in a row of the legend


def draw_comparison(
    runs: Sequence[Run],
    target: Target,
    path_without_suffix: Path,
    *,
    title: str,
    labels: Callable[[Run], str] = policy_label,
) -> list[Path]:
    """Draw loss against time, accuracy against time and loss against rounds as PDF and PNG; return their paths.

    One line for each label: the mean over its runs, with a band of the middle 80 % of them. Equal runs give equal
    bytes.
    """
    paths = [path_without_suffix.with_name(path_without_suffix.name + ending) for ending in (".pdf", ".png")]
    with _settings():
        figure = comparison_figure(runs, target, title=title, labels=labels)
        with whole_files(*((path, "wb") for path in paths)) as (pdf, png):
            save_figure(figure, pdf, "pdf")
            save_figure(figure, png, "png", dpi=PRINT_DPI)
    return paths


def comparison_figure(
    runs: Sequence[Run], target: Target, *, title: str, labels: Callable[[Run], str] = policy_label
) -> "Figure":
    """Return the same as a figure of matplotlib."""
    if not any(np.isfinite(run.loss).any() for run in runs):
        raise InputError(name="a figure", rule="have runs that were evaluated", got="none")
    groups = grouped(runs, labels)
    named = {label: group[0].header.policy if labels is policy_label else label for label, group in groups.items()}
    look, handles = styles(named), dict[str, "Line2D"]()
    with _settings():
        figure = new_figure(PAGE_WIDTH, HEIGHT)
        for axes, letter, (x, y) in zip(figure.subplots(1, 3), "abc", PANELS, strict=True):
            shown = panel(groups, target, x, y)
            handles |= _draw(axes, shown, look)
            if shown.level is not None:
                line = axes.axhline(shown.level, color="0.35", linewidth=0.8, linestyle=(0, (6, 4)), zorder=1)
                handles[f"target: {target}"] = line
            _set_axes(axes, shown)
            axes.set_title(f"({letter}) {shown.y_name} against {x}")
        figure.suptitle(title)
        _add_legend(figure, handles, groups, target)
    return figure


@contextmanager
def _settings() -> Iterator[None]:
    """Have matplotlib draw for print."""
    check_matplotlib()
    import matplotlib

    with matplotlib.rc_context({**SMALL, **LINES}):
        yield


def _draw(axes: "Axes", shown: Panel, look: Mapping[str, Style]) -> dict[str, "Line2D"]:
    """Draw means and bands; return the line of each group."""
    handles = {}
    for label, one in shown.averages.items():
        dashes = (0, look[label].dashes) if look[label].dashes else "solid"
        kept = np.unique(np.concatenate([thinned(values) for values in (one.mean, one.low, one.high)]))
        x, low, high = one.x[kept], one.low[kept], one.high[kept]
        (handles[label],) = axes.plot(x, one.mean[kept], color=look[label].colour, linestyle=dashes)
        axes.fill_between(x, low, high, color=look[label].colour, alpha=0.18, linewidth=0)
    return handles


def _set_axes(axes: "Axes", shown: Panel) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.set(xscale="log" if shown.log_x else "linear", yscale="log" if shown.log_y else "linear")
    if not shown.log_x:
        axes.set_xlim(left=0)
        axes.xaxis.set_major_locator(MaxNLocator(nbins=4, steps=[1, 2, 2.5, 5, 10]))
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,g}")
    if shown.span is not None:
        axes.set_ylim(shown.span)
    axes.set(xlabel=AXIS_LABELS[shown.x], ylabel=shown.y_label)
    axes.grid(alpha=0.3, linewidth=0.4)
    axes.tick_params(width=0.6)


def _add_legend(
    figure: "Figure", handles: Mapping[str, "Line2D"], groups: Mapping[str, Sequence[Run]], target: Target
) -> None:
    keys = sorted(handles, key=lambda label: label not in groups)  # the target comes last
    most = 5 if max(map(len, keys)) <= LONG_LABEL else 3
    figure.legend(
        [handles[key] for key in keys], keys, loc="outside lower center", ncols=min(len(keys), most), frameon=False,
        handlelength=3.2, columnspacing=1.6, title=_explanation(groups.values(), target),
        title_fontsize=FONT_SIZE - 1.5,
    )  # fmt: skip


def _explanation(groups: Iterable[Sequence[Run]], target: Target) -> str:
    """Say what lines and bands are, and what became of runs that have ended."""
    groups = list(groups)
    sizes = sorted({len(group) for group in groups})
    pilots = "; pilots left out" if any(run.pilot_time for group in groups for run in group) else ""
    if sizes == [1]:
        return f"lines: one seed each{pilots}"
    seeds = f"{sizes[0]}" if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"
    text = f"lines: mean over {seeds} seeds; bands: {BAND}"
    if any(reaches(run, target) for group in groups for run in group):
        text += "; a run that has ended at the target keeps its last value"
    return text + pilots
