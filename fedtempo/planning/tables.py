"""A plan as tables for the terminal."""

from collections.abc import Iterator

import numpy as np
from rich.console import Console, RenderableType
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from fedtempo.planning.plan import Plan

MOST_CLIENTS = 15
LONGEST_NAME = 24
# What a narrow terminal leaves out first; the numbers that stay are never cut.
LEAST_NEEDED = (
    "surrogate",
    "lower",
    "upper",
    "weight",
    "upload s",
    "compute s",
    "G",
    "rounds ×",
    "data share",
    "clients",
)

Columns = dict[str, list[str]]


def plan_tables(plan: Plan, console: Console) -> Iterator[RenderableType]:
    """Yield what a person wants to read: the policies, the clients, the sensitivity."""
    title = (
        f"{_count(len(plan.fleet), 'client')}, {plan.cohort_size:,} drawn a round, β/α = "
        f"{plan.settings.beta_over_alpha:g} beside a sampling noise of {plan.forecasts[0].noise:.3g}"
    )
    yield _fitting(console, title, _policies(plan), marked=0)
    yield Text(
        "round: mean seconds of a round, with the bounds of Theorem 2; surrogate: as the optimisation counts it; "
        "clients: different ones in a round, on average; time ×: rounds × mean round time, relative to this plan; "
        "weight: the largest p/(K q) of one draw.",
        style="dim",
    )
    shown = np.argsort(-plan.sampling_prob, kind="stable")[:MOST_CLIENTS]
    title = "Draws of each client"
    if len(plan.fleet) > MOST_CLIENTS:
        share = plan.sampling_prob[shown].sum()
        title = f"The {MOST_CLIENTS} clients drawn most, with {share:.0%} of the draws; -o writes all of them"
    yield _fitting(console, title, _clients(plan, shown))
    yield _fitting(console, "If β/α is in truth another", _sensitivities(plan))


def _count(number: int, word: str) -> str:
    return f"{number:,} {word}" if number == 1 else f"{number:,} {word}s"


def _fitting(console: Console, title: str, columns: Columns, marked: int | None = None) -> Table:
    """Return the table, without the columns that are least needed if the terminal is too narrow for all."""
    while True:
        table = Table(title=title, title_justify="left", title_style="bold")
        for index, name in enumerate(columns):
            table.add_column(name, justify="left" if index == 0 else "right", no_wrap=True)
        for index, row in enumerate(zip(*columns.values(), strict=True)):
            table.add_row(*row, style="bold green" if index == marked else None)
        dropped = next((name for name in LEAST_NEEDED if name in columns), None)
        unlimited = console.options.update(width=10_000)
        if dropped is None or Measurement.get(console, unlimited, table).maximum <= console.width:
            return table
        del columns[dropped]


def _policies(plan: Plan) -> Columns:
    forecasts = plan.forecasts
    columns = {
        "policy": [forecast.policy for forecast in forecasts],
        "round": [f"{forecast.round_time.mean:.4g}" for forecast in forecasts],
        "lower": ["-" if forecast.bounds is None else f"{forecast.bounds.lower:.4g}" for forecast in forecasts],
        "upper": ["-" if forecast.bounds is None else f"{forecast.bounds.upper:.4g}" for forecast in forecasts],
        "surrogate": [f"{forecast.surrogate:.4g}" for forecast in forecasts],
        "clients": [f"{forecast.distinct_clients:.3g}" for forecast in forecasts],
        "rounds ×": [f"{plan.relative_rounds(forecast):.2f}" for forecast in forecasts],
        "time ×": [f"{plan.relative_time(forecast):.2f}" for forecast in forecasts],
        "weight": [f"{forecast.largest_weight:.3g}" for forecast in forecasts],
    }
    if plan.settings.rounds_weighted is not None:
        columns["rounds"] = [f"{forecast.rounds:,.0f}" for forecast in forecasts]
        columns["hours"] = [f"{plan.hours(forecast):,.2f}" for forecast in forecasts]
    return columns


def _clients(plan: Plan, shown: np.ndarray) -> Columns:
    fleet, columns = plan.fleet, plan.columns()
    names = [fleet.name(i) for i in shown.tolist()]
    numbers = {
        "data share": (fleet.data_share, ".3g"),
        "G": (fleet.gradient_bound, ".3g"),
        "compute s": (fleet.compute_time, ".3g"),
        "upload s": (fleet.upload_time, ".3g"),
        "cost s": (columns["round_cost"], ".3g"),
        "draw prob. q": (columns["sampling_prob"], ".4g"),
        "weight": (columns["aggregation_weight"], ".3g"),
    }
    plain = ["".join(c if c.isprintable() else "?" for c in name) for name in names]
    short = [name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…" for name in plain]
    return {"client": short} | {
        title: [f"{x:{style}}" for x in values[shown].tolist()] for title, (values, style) in numbers.items()
    }


def _sensitivities(plan: Plan) -> Columns:
    cases = plan.sensitivities
    columns = {
        "true β/α": [f"{case.beta_over_alpha:.3g}" for case in cases],
        "this plan takes": [f"{case.excess_time:+.1%}" for case in cases],
        "draws that would move": [f"{case.moved:.1%}" for case in cases],
    }
    if plan.settings.cohort_size is None:
        columns["best K"] = [str(case.best_cohort) for case in cases]
    return columns
