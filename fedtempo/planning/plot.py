"""A plan as a picture: who is drawn how often and why, and what the cohort size does."""

from typing import TYPE_CHECKING

import numpy as np

from fedtempo.checks import Integers, Vector
from fedtempo.figures import check_matplotlib, new_figure
from fedtempo.planning.plan import time_against_cohort
from fedtempo.planning.values import Plan
from fedtempo.theory.round_time import round_cost

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

MOST_POINTS = 20_000
EXTREMES = 100


def plan_figure(plan: Plan) -> "Figure":
    """Return q against c_i and against p_i G_i, and the total time against K, as a figure of matplotlib."""
    check_matplotlib()
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    figure = new_figure(13, 4.2, layout=ConstrainedLayoutEngine(wspace=0.06))
    by_cost, by_importance, by_cohort = figure.subplots(1, 3)
    costs, importance = round_cost(plan.sent, cohort_size=plan.cohort_size), plan.fleet.importance
    shown = _shown(plan)
    cost, q, importance = costs[shown], plan.sampling_prob[shown], importance[shown]
    uniform = 1 / len(plan.fleet)
    labels = ("round cost $c_i = K t_i/f_{tot} + τ_i$ (s)", "importance $p_i G_i$")
    _scatter(by_cost, cost, q, importance, uniform, labels)
    by_cost.set_title("Draws against cost")
    _scatter(by_importance, importance, q, cost, uniform, ("importance $p_i G_i$", "round cost $c_i$ (s)"))
    by_importance.set_title("Draws against importance")
    if shown.size < len(plan.fleet):
        figure.suptitle(f"{shown.size:,} of {len(plan.fleet):,} clients shown, with those drawn most and least")
    _cohort_curve(by_cohort, plan)
    return figure


def _shown(plan: Plan) -> Integers:
    """Return the clients to draw: all, or the extremes and a sample of the rest."""
    everyone = np.arange(len(plan.fleet))
    if everyone.size <= MOST_POINTS:
        return everyone
    extremes = np.argsort(plan.sampling_prob)[[*range(EXTREMES), *range(-EXTREMES, 0)]]
    sample = np.random.default_rng(plan.settings.seed).choice(everyone, MOST_POINTS, replace=False)
    return np.union1d(extremes, sample)


def _scatter(axes: "Axes", x: Vector, q: Vector, colour: Vector, uniform: float, labels: tuple[str, str]) -> None:
    from matplotlib.colors import LogNorm

    many = x.size > 1000
    points = axes.scatter(
        x, q, c=colour, s=6 if many else 26, cmap="viridis", norm=LogNorm() if np.ptp(colour) > 0 else None,
        edgecolors="none" if many else "0.25", linewidths=0.4, alpha=0.9,
    )  # fmt: skip
    if np.ptp(colour) > 0:
        axes.figure.colorbar(points, ax=axes, label=labels[1])
    axes.axhline(uniform, color="0.4", linewidth=0.8, linestyle=":", label="uniform sampling")
    axes.legend(frameon=False)
    axes.set(xscale="log", yscale="log", xlabel=labels[0], ylabel="probability of a draw $q_i$")
    _plain_ticks(axes.xaxis)


def _cohort_curve(axes: "Axes", plan: Plan) -> None:
    sizes, times, best = time_against_cohort(plan)
    axes.plot(sizes, times, color="#0072B2", label="best q for each K")
    if best is not None and best != plan.cohort_size:
        least = times[sizes.index(best)]
        axes.plot(best, least, "o", color="#009E73", markersize=8, label=f"optimum: K = {best}, {least:.2f} × the time")
    chosen = "optimum" if best == plan.cohort_size else "this plan"
    axes.plot(plan.cohort_size, 1.0, "*", color="#D55E00", markersize=14, label=f"{chosen}: K = {plan.cohort_size}")
    axes.set(xscale="log", xlabel="clients drawn a round, $K$", ylabel="total time, relative to this plan")
    if times.max() > 10 * times.min():
        axes.set_yscale("log")
    _plain_ticks(axes.xaxis)
    axes.set_title("Total time against the cohort size")
    axes.grid(alpha=0.3)
    axes.margins(y=0.05)
    low, high = axes.get_ylim()
    axes.set_ylim(low, high + 0.35 * (high - low))  # room for the legend above the curve
    axes.legend(frameon=False, loc="upper center")


def _plain_ticks(axis: "Axis") -> None:
    """Label a logarithmic axis with 1, 2, 5, 10, or with powers of ten where it is long."""
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    axis.axes.autoscale_view()
    low, high = axis.get_view_interval()
    if high < 300 * low:
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axis.set_minor_formatter(NullFormatter())
