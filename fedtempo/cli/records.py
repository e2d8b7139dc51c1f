"""Commands that read records: a page, a fleet, a table."""

from pathlib import Path
from typing import Annotated, Any

import typer

from fedtempo.checks import check_fraction, check_positive
from fedtempo.cli.terminal import note
from fedtempo.fleet_csv import write_fleet

Runs = Annotated[list[Path], typer.Argument(metavar="DIR...", help="Folders of runs.")]


def report(
    runs: Runs,
    output: Annotated[Path, typer.Option("-o", "--output", help="The page, an .html file.")],
    target_loss: Annotated[float | None, typer.Option(help="Compare at this loss.")] = None,
    target_accuracy: Annotated[float | None, typer.Option(help="Compare at this accuracy.")] = None,
) -> None:
    """Write one page that shows runs side by side: tables, curves, the fleet, and how to run them again."""
    from fedtempo.experiments.comparison import Target
    from fedtempo.experiments.results import read_runs

    if target_loss is not None:
        check_positive("--target-loss", target_loss)
    if target_accuracy is not None:
        check_fraction("--target-accuracy", target_accuracy)
    wanted = Target(loss=target_loss, accuracy=target_accuracy)
    report_on(read_runs(runs), output, None if wanted == Target() else wanted)


def report_on(runs: list[Any], path: Path, target: Any) -> None:  # noqa: ANN401
    """Write the page about some runs, and say where."""
    from fedtempo.experiments.report import write_report

    write_report(runs, path, target=target)
    print(f"wrote {path}")


def estimate(
    runs: Runs, output: Annotated[Path, typer.Option("-o", "--output", help="The fleet as CSV, for fedtempo plan.")]
) -> None:
    """Read times, gradient bounds and β/α back out of records."""
    from fedtempo.engine.records import find_runs
    from fedtempo.experiments.readback import estimate_fleet

    found = estimate_fleet(find_runs(runs))
    write_fleet(output, found.fleet)
    if found.unseen:
        note(f"{found.unseen} of {len(found.fleet)} clients never trained: they have the medians of the others")
    print(
        found.beta_over_alpha
        or "β/α needs records of uniform and weighted sampling, or of pilots, and the losses of [policy.proposed]"
    )
    print(f"wrote {output}")


def export(
    runs: Runs, output: Annotated[Path, typer.Option("-o", "--output", help="A .parquet or .csv file.")]
) -> None:
    """Write the rounds of some runs as one table."""
    from fedtempo.engine.records import find_runs
    from fedtempo.experiments.readback import export_runs

    rows = export_runs(find_runs(runs), output)
    print(f"wrote {output}, {rows} rounds")
