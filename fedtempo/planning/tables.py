"""A plan as tables for the terminal."""

from collections.abc import Iterator

import numpy as np
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from fedtempo.planning.plan import Plan

MOST_CLIENTS = 15


def plan_tables(plan: Plan) -> Iterator[RenderableType]:
    """Yield what a person wants to read: the policies, the clients, the sensitivity."""
    yield _policies(plan)
    yield Text(
        "round: mean seconds of a round over drawn cohorts, with the bounds of Theorem 2; time ×: the total time that\n"
        "the plan minimises (rounds × surrogate round time), relative to it; weight: the largest p/(K q) of one draw.",
        style="dim",
    )
    yield _clients(plan)
    yield _sensitivity(plan)


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold")
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index == 0 else "right", no_wrap=True)
    return table


def _policies(plan: Plan) -> Table:
    settings = plan.settings
    title = f"{len(plan.fleet):,} clients, {plan.cohort_size} drawn a round, β/α = {settings.beta_over_alpha:g}"
    predicted = ["rounds", "hours"] if settings.rounds_weighted is not None else []
    table = _table(title, "policy", "round", "lower", "upper", "surrogate", "rounds ×", "time ×", "weight", *predicted)
    for forecast in plan.forecasts:
        cells = [
            f"{forecast.round_time.mean:.4g}",
            f"{forecast.bounds.lower:.4g}",
            f"{forecast.bounds.upper:.4g}",
            f"{forecast.surrogate:.4g}",
            f"{forecast.relative_rounds:.2f}",
            f"{forecast.relative_time:.2f}",
            f"{forecast.largest_weight:.3g}",
        ]
        if forecast.rounds is not None and forecast.hours is not None:
            cells += [f"{forecast.rounds:,.0f}", f"{forecast.hours:,.2f}"]
        table.add_row(forecast.policy, *cells, style="bold green" if forecast.policy == "optimal" else None)
    return table


def _clients(plan: Plan) -> Table:
    fleet, q = plan.fleet, plan.sampling_prob
    shown = np.argsort(-q, kind="stable")[:MOST_CLIENTS]
    title = "Draws of each client"
    if len(fleet) > MOST_CLIENTS:
        title = f"The {MOST_CLIENTS} clients drawn most, with {q[shown].sum():.0%} of the draws; -o writes all of them"
    table = _table(title, "client", "data share", "G", "compute s", "upload s", "cost s", "draw prob. q", "weight")
    columns = plan.columns()
    for i in shown.tolist():
        table.add_row(
            fleet.name(i),
            f"{fleet.data_share[i]:.3g}",
            f"{fleet.gradient_bound[i]:.3g}",
            f"{fleet.compute_time[i]:.3g}",
            f"{fleet.upload_time[i]:.3g}",
            f"{columns['round_cost'][i]:.3g}",
            f"{q[i]:.4g}",
            f"{columns['aggregation_weight'][i]:.3g}",
        )
    return table


def _sensitivity(plan: Plan) -> Table:
    optimised = plan.settings.cohort_size is None
    table = _table(
        "If β/α is in truth another",
        "true β/α",
        "this plan takes",
        "draws that would move",
        *(["best K"] if optimised else []),
    )
    for case in plan.sensitivities:
        cells = [f"{case.excess_time:+.1%}", f"{case.moved:.1%}"]
        table.add_row(f"{case.beta_over_alpha:.3g}", *cells, *([str(case.best_cohort)] if optimised else []))
    return table
