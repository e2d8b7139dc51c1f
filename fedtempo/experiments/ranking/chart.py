"""A ranking as a picture."""

from pathlib import Path
from typing import TYPE_CHECKING

from fedtempo.experiments.ranking.ranking import Ranking
from fedtempo.experiments.ranking.ratios import mean_time, missed
from fedtempo.figures import check_matplotlib, new_figure, save_figure
from fedtempo.files import whole_file
from fedtempo.policies.registry import traits

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOUR, COLOUR_OF_OURS = "#0072B2", "#D55E00"


def draw_ranking(ranking: Ranking, path: Path) -> None:
    """Draw the figure of a ranking into a file."""
    figure = ranking_figure(ranking)
    with whole_file(path, "wb") as stream:
        save_figure(figure, stream, "png", dpi=200)


def ranking_figure(ranking: Ranking) -> "Figure":
    """Return each policy's mean and its draws on one line, the best on top; means of which runs missed are open."""
    check_matplotlib()
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    order = ranking.order[::-1]
    figure = new_figure(6.5, 1.1 + 0.26 * len(order))
    axes = figure.add_subplot()
    for y, policy in enumerate(order):
        standings = ranking.standings[policy]
        colour = COLOUR_OF_OURS if traits(policy).ours else COLOUR
        each = [one.times.mean for one in standings]
        axes.plot([min(each), max(each)], [y, y], color=colour, linewidth=1)
        axes.plot(each, [y] * len(each), "|", color=colour, markersize=8)
        axes.plot(mean_time(standings), y, "o", color=colour, mfc="white" if missed(standings) else colour)
    axes.set_xscale("log")
    axes.set_ylim(-0.6, len(order) - 0.4)
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    granted = [policy for policy in order if ranking.standings[policy][0].times.oracle]
    axes.set_yticks(range(len(order)), [f"{policy}*" if policy in granted else policy for policy in order])
    axes.grid(axis="x", color="#dddddd", linewidth=0.5)
    axes.set_axisbelow(True)
    footnote = "; * pilots taken for granted" if granted else ""
    points = f"points: means, open where runs missed the target; bars: {ranking.over}s"
    axes.set_xlabel(f"simulated seconds, pilots counted{footnote}\n{points}", fontsize=8)
    axes.set_title(ranking.title, fontsize=9)
    return figure
