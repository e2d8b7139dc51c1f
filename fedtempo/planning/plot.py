"""A plan as a picture: who is drawn how often and why, and what the cohort size does."""

from typing import IO, Any

import numpy as np

from fedtempo.checks import MissingDependencyError, Vector
from fedtempo.planning.plan import Plan, time_against_cohort

MOST_POINTS = 20_000


def check_plotting() -> None:
    """Raise if matplotlib is missing, before any work is done."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise MissingDependencyError("matplotlib", "report", "--plot") from None


def draw_plan(plan: Plan, stream: IO[bytes], file_format: str = "png") -> None:
    """Draw q against c_i and against p_i G_i, and the total time against K."""
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    figure = Figure(figsize=(13, 4.2), layout=ConstrainedLayoutEngine(wspace=0.06), dpi=150)
    by_cost, by_importance, by_cohort = figure.subplots(1, 3)
    columns, importance = plan.columns(), plan.fleet.importance
    shown = np.arange(len(plan.fleet))
    if shown.size > MOST_POINTS:
        shown = np.random.default_rng(plan.settings.seed).choice(shown, MOST_POINTS, replace=False)
    cost, q, importance = columns["round_cost"][shown], plan.sampling_prob[shown], importance[shown]
    uniform = 1 / len(plan.fleet)
    labels = ("round cost $c_i = K t_i/f_{tot} + τ_i$ (s)", "importance $p_i G_i$")
    _scatter(by_cost, cost, q, importance, uniform, labels)
    by_cost.set_title("Slow clients are drawn less")
    _scatter(by_importance, importance, q, cost, uniform, ("importance $p_i G_i$", "round cost $c_i$ (s)"))
    by_importance.set_title("Important clients are drawn more")
    _cohort_curve(by_cohort, plan)
    figure.savefig(stream, format=file_format)


def _scatter(axes: Any, x: Vector, q: Vector, colour: Vector, uniform: float, labels: tuple[str, str]) -> None:  # noqa: ANN401
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


def _cohort_curve(axes: Any, plan: Plan) -> None:  # noqa: ANN401
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

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
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_title("Total time against the cohort size")
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
