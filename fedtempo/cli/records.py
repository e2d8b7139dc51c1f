"""Commands that read records: a page, a fleet, a table."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedtempo.checks import InputError
from fedtempo.cli.options import HTML, check_ending, check_installed, check_outputs, numbers, stop_options
from fedtempo.cli.terminal import note, run_notices, spelling
from fedtempo.fleet_csv import write_fleet

if TYPE_CHECKING:
    from fedtempo.experiments.comparing.statistics import Target
    from fedtempo.experiments.running.results import Run

Runs = Annotated[list[Path], typer.Argument(metavar="DIR...", help="Folders of runs, or of folders of runs.")]


def report(
    runs: Runs,
    output: Annotated[Path, typer.Option("-o", "--output", help="The page, an .html file.")],
    target_loss: Annotated[float | None, typer.Option(help="Compare at this loss.")] = None,
    target_accuracy: Annotated[float | None, typer.Option(help="Compare at this accuracy, 0 to 1, e.g. 0.7.")] = None,
) -> None:
    """Write one page that shows runs side by side: tables, curves, the fleet, and how to run them again."""
    from fedtempo.experiments.comparing.statistics import Target
    from fedtempo.experiments.running.results import read_runs

    stop_options(target_loss=target_loss, target_accuracy=target_accuracy)
    check_outputs(None, output)
    check_ending("output", output, HTML)
    check_report()
    wanted = Target(loss=target_loss, accuracy=target_accuracy)
    with run_notices():
        found = read_runs(runs)
    report_on(found, output, None if wanted == Target() else wanted)


def check_report() -> None:
    """Raise if there is nothing to make a report with, before any work is done."""
    for package in ("plotly", "jinja2"):
        check_installed(package, "a report")


def report_on(runs: "list[Run]", path: Path, target: "Target | None") -> None:
    """Write the page about some runs, and say where."""
    from fedtempo.experiments.report.page import write_report

    write_report(runs, path, target=target)
    print(f"wrote {path}")


def estimate(
    context: typer.Context,
    runs: Runs,
    output: Annotated[Path, typer.Option("-o", "--output", help="The fleet as CSV, for fedtempo plan.")],
    losses: Annotated[
        str | None,
        typer.Option(
            help="Losses to count rounds to, for β/α, separated by commas.", show_default="those that the runs name"
        ),
    ] = None,
) -> None:
    """Read times, gradient bounds and β/α back out of records.

    Example: fedtempo estimate runs/compare -o fleet.csv --losses 1.2,1.1,1.0
    """
    from fedtempo.engine.records import find_runs
    from fedtempo.experiments.estimate import estimate_fleet

    wanted = None if losses is None else numbers("losses", losses, float)
    if wanted == []:
        raise InputError(name="losses", rule="hold at least one loss", got="none")
    with run_notices():
        paths = find_runs(runs)
    found = estimate_fleet(paths, wanted)
    write_fleet(output, found.fleet)
    if found.unseen:
        note(f"{found.unseen} of {len(found.fleet)} clients never trained: they have the medians of the others")
    print(found.beta_over_alpha if found.missing is None else found.missing.sentence(spelling(context)))
    print(f"wrote {output}")


def export(
    runs: Runs, output: Annotated[Path, typer.Option("-o", "--output", help="A .parquet or .csv file.")]
) -> None:
    """Write the rounds of some runs as one table."""
    from fedtempo.engine.records import find_runs
    from fedtempo.experiments.export import export_rounds

    with run_notices():
        paths = find_runs(runs)
    rows = export_rounds(paths, output)
    print(f"wrote {output}, {rows} rounds")
