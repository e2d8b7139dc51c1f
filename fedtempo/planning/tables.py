"""A plan as tables: the policies, the clients, the sensitivity."""

from typing import TYPE_CHECKING

import numpy as np

from fedtempo.checks import Integers, Vector
from fedtempo.tables.table import EMPTY, Cell, Column, Table, number_cell

if TYPE_CHECKING:
    from fedtempo.planning.values import Forecast, Plan

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
LEGEND = (
    "round: mean seconds of a round, with the bounds of Theorem 2; surrogate: as the optimisation counts it; "
    "clients: different ones in a round, on average; time ×: rounds × mean round time, relative to this plan; "
    "weight: the largest p/(K q) of one draw."
)


def policy_table(plan: "Plan") -> Table:
    """Return what each policy costs, the plan itself first."""
    settings = plan.settings
    columns = ["policy", "round", "lower", "upper", "surrogate", "clients", "rounds ×", "time ×", "weight"]
    columns += [] if settings.rounds_weighted is None else ["rounds", "hours"]
    title = (
        f"{len(plan.fleet):,} client{'' if len(plan.fleet) == 1 else 's'}, {plan.cohort_size:,} drawn a round, β/α = "
        f"{settings.beta_over_alpha:g} beside a sampling noise of {plan.forecasts[0].noise:.3g}"
    )
    rows = [_policy_row(plan, forecast) for forecast in plan.forecasts]
    notes = [LEGEND, *plan.words_on_bits()]
    return Table.from_rows([_column(name) for name in columns], rows, title=title, notes=notes, marked=0)


def _policy_row(plan: "Plan", forecast: "Forecast") -> list[str | Cell]:
    row: list[str | Cell] = [forecast.policy, number_cell(forecast.round_time.mean, ".4g")]
    row += [EMPTY] * 2 if forecast.bounds is None else [number_cell(bound, ".4g") for bound in forecast.bounds]
    row += [
        number_cell(forecast.surrogate, ".4g"),
        number_cell(forecast.distinct_clients, ".3g"),
        number_cell(plan.relative_rounds(forecast), ".2f"),
        number_cell(plan.relative_time(forecast), ".2f"),
        number_cell(forecast.largest_weight, ".3g"),
    ]
    hours = plan.hours(forecast)
    if forecast.rounds is not None and hours is not None:
        row += [number_cell(forecast.rounds, ",.0f"), number_cell(hours, ",.2f")]
    return row


def client_table(plan: "Plan", most: int = MOST_CLIENTS) -> Table:
    """Return the clients that are drawn most."""
    shown: Integers = np.argsort(-plan.sampling_prob, kind="stable")[:most]
    title = "Draws of each client"
    if len(plan.fleet) > most:
        title = f"The {most} clients drawn most, with {plan.sampling_prob[shown].sum():.0%} of the draws"
    fleet, columns = plan.fleet, plan.columns()
    numbers: dict[str, tuple[Vector | Integers, str]] = {
        "data share": (fleet.data_share, ".3g"),
        "G": (fleet.gradient_bound, ".3g"),
        "compute s": (fleet.compute_time, ".3g"),
        "upload s": (fleet.upload_time, ".3g"),
        "cost s": (columns["round_cost"], ".3g"),
        "draw prob. q": (columns["sampling_prob"], ".4g"),
        "weight": (columns["aggregation_weight"], ".3g"),
    }
    if plan.upload_bits is not None:
        numbers["upload_bits"] = (plan.upload_bits, "d")
    cells: dict[str | Column, list[str | Cell]] = {_column("client"): [_name(fleet.name(i)) for i in shown.tolist()]}
    for name, (values, style) in numbers.items():
        cells[_column(name)] = [number_cell(value, style) for value in values[shown].tolist()]
    return Table.from_columns(cells, title=title)


def sensitivity_table(plan: "Plan") -> Table:
    """Return what the plan costs if β/α is in truth another."""
    cases = plan.sensitivities
    columns: dict[str | Column, list[str | Cell]] = {
        "true β/α": [number_cell(case.beta_over_alpha, ".3g") for case in cases],
        "this plan takes": [number_cell(case.excess_time, "+z.1%") for case in cases],
        "draws that would move": [number_cell(case.moved, ".1%") for case in cases],
    }
    if plan.settings.cohort_size is None:
        columns["best K"] = [Cell(str(case.best_cohort), case.best_cohort) for case in cases]
    return Table.from_columns(columns, title="If β/α is in truth another")


def _column(name: str) -> Column:
    dispensable = len(LEAST_NEEDED) - LEAST_NEEDED.index(name) if name in LEAST_NEEDED else 0
    return Column(name, align="left" if name in ("policy", "client") else "right", dispensable=dispensable)


def _name(name: str) -> Cell:
    """Return the name of a client, as much of it as a table has room for."""
    plain = "".join(letter if letter.isprintable() else "?" for letter in name)
    return Cell(plain if len(plain) <= LONGEST_NAME else f"{plain[: LONGEST_NAME - 1]}…", name)
