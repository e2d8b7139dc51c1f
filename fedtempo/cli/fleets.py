"""The command that plans a fleet."""

import json
from pathlib import Path
from typing import Annotated

import typer

from fedtempo.checks import InputError, check_choice
from fedtempo.cli.options import JSON, check_ending, check_outputs
from fedtempo.cli.terminal import console, fleet_notices, note
from fedtempo.files import whole_files
from fedtempo.fleet_csv import dump_fleet, read_fleet
from fedtempo.planning.plan import PlanSettings, plan_fleet
from fedtempo.planning.plot import check_plotting, draw_plan
from fedtempo.planning.tables import plan_tables
from fedtempo.theory.bandwidth import LinkMode
from fedtempo.theory.round_time import Duplicates


def plan(
    fleet_csv: Annotated[Path, typer.Argument(metavar="CSV", help="The fleet: one line for each client.")],
    cohort_size: Annotated[int | None, typer.Option(help="K, how many clients are drawn a round.")] = None,
    optimise_cohort: Annotated[bool, typer.Option("--optimise-cohort", help="Choose K as well.")] = False,
    max_cohort: Annotated[int | None, typer.Option(help="The largest K to choose.")] = None,
    beta_over_alpha: Annotated[
        float | None,
        typer.Option(
            help="β/α of the convergence bound: how much progress costs beside the sampling noise; 0 if left out."
        ),
    ] = None,
    model_megabytes: Annotated[
        float | None,
        typer.Option("--model-size", metavar="MB", help="Megabytes of one upload, for a column uplink_mbps."),
    ] = None,
    total_bandwidth: Annotated[float, typer.Option(help="Units of bandwidth that the clients share.")] = 1.0,
    floor: Annotated[float, typer.Option(help="Mix this share of the data shares into q: bounds the weights.")] = 0.0,
    rounds_weighted: Annotated[
        float | None, typer.Option(help="Rounds that weighted sampling is known to need: predicts rounds and hours.")
    ] = None,
    weighted_cohort: Annotated[int | None, typer.Option(help="K of that known run, if it is not the plan's.")] = None,
    link: Annotated[LinkMode, typer.Option(help="How uploads share the link.")] = "paper",
    duplicates: Annotated[
        Duplicates, typer.Option(help="Count a client drawn twice as two uploads (paper) or one (physical).")
    ] = "paper",
    draws: Annotated[
        int | None, typer.Option(help="Cohorts drawn for each mean round time; at most 10,000 if left out.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of those draws.")] = 0,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Write q and more of each client as CSV.")
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw the plan (.png, .pdf or .svg).")] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the whole plan as JSON.")] = None,
) -> None:
    """Plan a fleet: which clients to draw how often, how many a round, and how long training takes."""
    fleet_csv.stat()  # a file that is not there is what to say first
    if (cohort_size is None) != optimise_cohort:
        raise InputError(name="the cohort size", rule="be given once: either --cohort-size K or --optimise-cohort")
    picture_format = _picture_format(plot) if plot else ""
    check_outputs(fleet_csv, output, plot, json_file)
    check_ending("--json", json_file, JSON)
    settings = PlanSettings(
        cohort_size=cohort_size,
        max_cohort=max_cohort,
        beta_over_alpha=beta_over_alpha or 0.0,
        floor=floor,
        link=link,
        duplicates=duplicates,
        rounds_weighted=rounds_weighted,
        weighted_cohort=weighted_cohort,
        draws=draws,
        seed=seed,
    )
    with fleet_notices():
        fleet = read_fleet(fleet_csv, total_bandwidth=total_bandwidth, model_megabytes=model_megabytes)
    result = plan_fleet(fleet, settings)
    if beta_over_alpha is None:
        note("no --beta-over-alpha: 0 assumed, which plans for sampling noise alone")
    for assumed in result.notes():
        note(assumed)
    wanted = [(path, mode) for path, mode in ((output, "w"), (json_file, "w"), (plot, "wb")) if path is not None]
    with whole_files(*wanted) as opened:
        streams = iter(opened)
        if output is not None:
            dump_fleet(next(streams), fleet, result.columns())
        if json_file is not None:
            json.dump(result.as_json(), next(streams), indent=1, allow_nan=False)
        if plot is not None:
            draw_plan(result, next(streams), picture_format)
    terminal = console()
    for table in plan_tables(result, terminal):
        terminal.print(table)
    for path, _ in wanted:
        print(f"wrote {path}")


def _picture_format(path: Path) -> str:
    check_plotting()
    return check_choice("the ending of --plot", path.suffix.lower().removeprefix("."), ("png", "pdf", "svg"))
