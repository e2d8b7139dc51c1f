"""The command that plans a fleet."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, cast

import typer

from fedtempo.checks import InputError, check_positive
from fedtempo.cli.options import JSON, check_ending, check_outputs
from fedtempo.cli.terminal import console, fleet_notices, note, spelling
from fedtempo.figures import picture_format
from fedtempo.fleet_csv import read_fleet
from fedtempo.planning.files import PlanFiles, write_plan
from fedtempo.planning.plan import plan_fleet
from fedtempo.planning.settings import PlanSettings
from fedtempo.planning.values import Plan
from fedtempo.policies.policy import UploadBits
from fedtempo.tables.terminal import show_framed
from fedtempo.theory.bandwidth import LinkMode
from fedtempo.theory.round_time import Duplicates


def plan(
    context: typer.Context,
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
    bits: Annotated[
        str, typer.Option(help="Bits of a number in an upload: 2, 3, 4, 8, 16 or 32; auto: each client its own.")
    ] = "32",
    noise: Annotated[
        str | None,
        typer.Option(metavar="SIZES", help="Noise ω of sizes, as 4=0.1,8=0.0003; if left out, that of normal numbers."),
    ] = None,
    largest_noise: Annotated[float | None, typer.Option(help="The largest ω that auto may choose.")] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Write q and more of each client as CSV.")
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw the plan (.png, .pdf or .svg).")] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the whole plan as JSON.")] = None,
) -> None:
    """Plan a fleet: which clients to draw how often, how many a round, and how long training takes."""
    fleet_csv.stat()  # a file that is not there is what to say first
    if (cohort_size is None) != optimise_cohort:
        raise InputError(name="the cohort size", rule="be given once: either {cohort_size} K or {optimise_cohort}")
    check_positive("total_bandwidth", total_bandwidth)
    if model_megabytes is not None:
        check_positive("model_megabytes", model_megabytes)
    if plot is not None:
        picture_format(plot)
    check_outputs(fleet_csv, output, plot, json_file)
    check_ending("json_file", json_file, JSON)
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
        bits=_bits(bits),
        noise=None if noise is None else _noise(noise),
        largest_noise=largest_noise,
        model_megabytes=model_megabytes,
    )
    with fleet_notices():
        fleet = read_fleet(fleet_csv, total_bandwidth=total_bandwidth, model_megabytes=model_megabytes)
    result = plan_fleet(fleet, settings)
    if beta_over_alpha is None:
        note("no --beta-over-alpha: 0 assumed, which plans for sampling noise alone")
    for thought in result.notes(spelling(context)):
        note(thought)
    wanted = PlanFiles(csv=output, json=json_file, plot=plot)
    write_plan(result, wanted, spelling(context))
    _show(result)
    for path in wanted.paths:
        print(f"wrote {path}")


def _bits(text: str) -> UploadBits:
    """Return what --bits says; whether there is such a size is checked with the other settings."""
    return cast("UploadBits", int(text) if text.isdecimal() else text)


def _noise(text: str) -> dict[int, float]:
    """Read sizes and their noise, as 4=0.1,8=0.0003."""
    try:
        pairs = [part.split("=") for part in text.split(",")]
        return {int(size): float(value) for size, value in pairs}
    except ValueError:
        raise InputError("noise", "name sizes and their noise, as 4=0.1,8=0.0003", repr(text)) from None


def _show(result: Plan) -> None:
    clients, terminal = result.client_table(), console()
    if len(clients.rows) < len(result.fleet):
        clients = replace(clients, title=f"{clients.title}; -o writes all of them")
    for table in (result.table(), clients, result.sensitivity_table()):
        show_framed(table, terminal)
