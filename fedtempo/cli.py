"""The command line: parse, call one function, print."""

import json
import sys
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import click
import typer
from rich.console import Console

from fedtempo.checks import InputError, check_choice
from fedtempo.files import whole_file
from fedtempo.fleet_csv import FleetNotice, read_fleet, write_fleet
from fedtempo.planning.plan import PlanSettings, plan_fleet
from fedtempo.planning.plot import check_plotting, draw_plan
from fedtempo.planning.tables import plan_tables
from fedtempo.theory.bandwidth import LinkMode
from fedtempo.theory.round_time import Duplicates

app = typer.Typer(
    no_args_is_help=True, add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False,
    help="Who trains, how often and with what bandwidth, so that federated learning ends soonest.",
)  # fmt: skip

FAILED, BAD_INPUT, INTERRUPTED = 1, 2, 130
WRONG_PATH = (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError)


@app.callback(invoke_without_command=True)
def common(show_version: Annotated[bool, typer.Option("--version", help="Print the version and end.")] = False) -> None:
    """Take the options that belong to no command."""
    if show_version:
        print(version("fedtempo"))
        raise typer.Exit


@app.command()
def plan(
    fleet_csv: Annotated[Path, typer.Argument(metavar="CSV", help="The fleet: one line for each client.")],
    cohort_size: Annotated[int | None, typer.Option(help="K, how many clients are drawn a round.")] = None,
    optimise_cohort: Annotated[bool, typer.Option("--optimise-cohort", help="Choose K as well.")] = False,
    max_cohort: Annotated[int | None, typer.Option(help="The largest K to choose.")] = None,
    beta_over_alpha: Annotated[
        float | None,
        typer.Option(
            help="β/α of the convergence bound: how much progress costs beside the sampling noise. [default: 0]"
        ),
    ] = None,
    model_size: Annotated[
        float | None, typer.Option(metavar="MB", help="Megabytes of one upload, for a column uplink_mbps.")
    ] = None,
    total_bandwidth: Annotated[float, typer.Option(help="Units of bandwidth that the clients share.")] = 1.0,
    floor: Annotated[float, typer.Option(help="Mix this share of the data shares into q: bounds the weights.")] = 0.0,
    rounds_weighted: Annotated[
        float | None, typer.Option(help="Rounds that weighted sampling is known to need: predicts rounds and hours.")
    ] = None,
    link: Annotated[LinkMode, typer.Option(help="How uploads share the link.")] = "paper",
    duplicates: Annotated[
        Duplicates, typer.Option(help="Count a client drawn twice in the round time once (physical) or twice (paper).")
    ] = "physical",
    draws: Annotated[int, typer.Option(help="Cohorts drawn for each expected round time.")] = 10_000,
    seed: Annotated[int, typer.Option(help="Seed of those draws.")] = 0,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Write q and more of each client as CSV.")
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw the plan (.png, .pdf or .svg).")] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the whole plan as JSON.")] = None,
) -> None:
    """Plan a fleet: which clients to draw how often, how many a round, and how long training takes."""
    console = Console(width=None if sys.stdout.isatty() else 120)
    if (cohort_size is None) != optimise_cohort:
        raise InputError("the cohort size must be given once: either --cohort-size K or --optimise-cohort")
    settings = PlanSettings(
        cohort_size=cohort_size, max_cohort=max_cohort, beta_over_alpha=beta_over_alpha or 0.0, floor=floor,
        link=link, duplicates=duplicates, rounds_weighted=rounds_weighted, draws=draws, seed=seed,
    )  # fmt: skip
    picture_format = None if plot is None else _picture_format(plot)
    with _notices():
        fleet = read_fleet(fleet_csv, total_bandwidth=total_bandwidth, model_megabytes=model_size)
    if beta_over_alpha is None:
        _note("no --beta-over-alpha: 0 assumed, which plans for sampling noise alone")
    result = plan_fleet(fleet, settings)
    # All files are written before the first takes its place.
    with ExitStack() as files:
        if output is not None:
            write_fleet(files.enter_context(whole_file(output)), fleet, result.columns())
        if json_file is not None:
            json.dump(result.as_json(), files.enter_context(whole_file(json_file)), indent=1, allow_nan=False)
        if plot is not None and picture_format is not None:
            draw_plan(result, files.enter_context(whole_file(plot, "wb")), picture_format)
    for table in plan_tables(result):
        console.print(table)
    for path in (output, json_file, plot):
        if path is not None:
            print(f"wrote {path}")


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; bad input ends with one sentence and code 2, a failed run with code 1."""
    try:
        code = app(arguments, standalone_mode=False) or 0
    except InputError as error:
        code = _fail(str(error), BAD_INPUT)
    except click.ClickException as error:
        code = _fail(error.format_message(), BAD_INPUT)
    except click.Abort:
        code = _fail("interrupted; nothing was written", INTERRUPTED)
    except BrokenPipeError:
        sys.stderr.close()  # the reader of our output has left: nothing to say, and nobody to say it to
        code = FAILED
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        code = _fail(f"{where}{error.strerror}", BAD_INPUT if isinstance(error, WRONG_PATH) else FAILED)
    except ArithmeticError as error:
        code = _fail(str(error), FAILED)
    sys.exit(code)


def _picture_format(path: Path) -> str:
    check_plotting()
    return check_choice("the ending of --plot", path.suffix.lower().removeprefix("."), ("png", "pdf", "svg"))


@contextmanager
def _notices() -> Iterator[None]:
    """Show what a reader assumed or passed over as notes, not as warnings."""
    with warnings.catch_warnings(record=True, action="always", category=FleetNotice) as caught:
        yield
    for notice in caught or ():
        _note(str(notice.message))


def _note(message: str) -> None:
    print(f"note: {message}", file=sys.stderr)


def _fail(message: str, code: int) -> int:
    print(f"fedtempo: {message}", file=sys.stderr)
    return code
