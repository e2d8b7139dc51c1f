"""Commands that run: one policy under one seed, or several side by side."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedtempo.checks import check_seed
from fedtempo.cli.options import (
    HTML,
    JSON,
    Assigned,
    ConfigFile,
    Jobs,
    Preset,
    Ray,
    RecordsOutput,
    Seeds,
    TargetLoss,
    check_ending,
    check_folders,
    check_outputs,
    policy_names,
    seed_range,
    stop_options,
)
from fedtempo.cli.records import check_report, report_on
from fedtempo.cli.terminal import FAILED, Interrupted, compiling_noted, console, print_content, run_notices
from fedtempo.figures import PRINT_DPI, picture_format, save_figure
from fedtempo.files import whole_file

if TYPE_CHECKING:
    from fedtempo.experiments.running.grid import Execution


def run(
    config: ConfigFile,
    policy: Annotated[str, typer.Option(help="Who trains; fedtempo policies lists them.")],
    seed: Annotated[int, typer.Option(help="Of cohorts, batches and the initial model.")] = 0,
    preset: Preset = "paper",
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="Folder of the records.", show_default="runs/CONFIG/POLICY-seedS"),
    ] = None,
    target_loss: Annotated[float | None, typer.Option(help="End at this loss instead of the file's targets.")] = None,
    max_rounds: Annotated[
        int | None, typer.Option(help="End after so many rounds instead of the file's limit.")
    ] = None,
    assignments: Assigned = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with code 1 if the target is not reached.")] = False,
) -> None:
    """Simulate one run: one policy, one seed. A run that was stopped goes on where it was."""
    from fedtempo.experiments.running import runner
    from fedtempo.experiments.running.folders import run_folder
    from fedtempo.experiments.running.notices import warn_first
    from fedtempo.experiments.running.planned import plan_run
    from fedtempo.experiments.running.progress import run_progress
    from fedtempo.experiments.running.results import read_run
    from fedtempo.experiments.running.run_summary import summary_table
    from fedtempo.experiments.settings.assignments import parse_assignments
    from fedtempo.experiments.settings.config_file import load_experiment
    from fedtempo.policies.registry import check_name
    from fedtempo.tables.terminal import show_framed

    check_seed("seed", seed)
    stop = stop_options(target_loss=target_loss, max_rounds=max_rounds)
    assigned = parse_assignments(assignments or ())
    experiment = load_experiment(config, preset, over={"stop": stop}, assignments=assigned)
    check_name(policy)
    folder = output or run_folder(config.stem, experiment, policy, seed, changed=bool(assigned))
    planned = plan_run(experiment, policy, seed, folder)
    with run_notices():
        warn_first(experiment, [policy])
    title = f"{experiment.name}, {policy}"
    with run_progress(title, experiment.stop) as progress, run_notices(), compiling_noted():
        summary = runner.run(planned, progress)
    note = read_run(planned.records).note if summary.pilot_rounds else {}
    table = summary_table(
        summary, experiment.stop, planned.header.data, metric=experiment.metric, estimate=note.get("estimate")
    )
    show_framed(table, console())
    print(f"wrote {folder}")
    if strict and summary.end != "target":
        raise typer.Exit(FAILED)


def compare(
    config: ConfigFile,
    policies: Annotated[str, typer.Option(help="Names, separated by commas; fedtempo policies lists them.")],
    seeds: Seeds = 5,
    first_seed: Annotated[int, typer.Option(help="The first of them.")] = 0,
    preset: Preset = "paper",
    target_loss: TargetLoss = None,
    target_accuracy: Annotated[
        float | None, typer.Option(help="Accuracy, 0 to 1, or metric to reach instead of the file's targets.")
    ] = None,
    time_limit: Annotated[
        float | None, typer.Option(help="Simulated seconds, pilots apart, instead of the file's limits.")
    ] = None,
    assignments: Assigned = None,
    jobs: Jobs = -1,
    ray: Ray = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="Also write each run to a JSON file.")] = None,
    report: Annotated[Path | None, typer.Option(metavar="HTML", help="Also write a report.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Also draw the curves, as .png, .pdf or .svg.")] = None,
    output: RecordsOutput = Path("runs/compare"),
) -> None:
    """Run policies over the same seeds, and show what each takes to the target. Finished runs are not run again."""
    from fedtempo.experiments.comparing import compare as verb
    from fedtempo.experiments.running.folders import experiment_folder
    from fedtempo.experiments.settings.assignments import parse_assignments
    from fedtempo.experiments.settings.config_file import load_experiment

    names, all_seeds = policy_names(policies), seed_range(seeds, first_seed)
    check_outputs(config, json_file, report, plot, what="the experiment's own file")
    check_ending("json_file", json_file, JSON)
    check_ending("report", report, HTML)
    check_folders(output)
    if report is not None:
        check_report()
    drawn_as = None if plot is None else picture_format(plot)
    stop = stop_options(target_loss=target_loss, target_accuracy=target_accuracy, time_limit=time_limit)
    assigned = parse_assignments(assignments or ())
    experiment = load_experiment(config, preset, over={"stop": stop}, assignments=assigned)
    folder = experiment_folder(output, config.stem, preset)
    with shown_runs(jobs, ray) as execution:
        found = verb.compare(experiment, names, all_seeds, folder=folder, execution=execution)
    print_content(found.table())
    if json_file is not None:
        with whole_file(json_file) as stream:
            json.dump([asdict(outcome) for outcome in found.outcomes()], stream, indent=1)
            stream.write("\n")
        print(f"wrote {json_file}")
    if plot is not None and drawn_as is not None:
        with whole_file(plot, "wb") as stream:
            save_figure(found.figure(), stream, drawn_as, dpi=PRINT_DPI)
        print(f"wrote {plot}")
    if report is not None:
        report_on(found.runs, report, found.target)


@contextmanager
def shown_runs(jobs: int, ray: str | None) -> Iterator["Execution"]:
    """Show how the runs of the block get on, and what there is to say of them; Ctrl-C says how far they have come."""
    from fedtempo.experiments.running.grid import Execution, GridInterrupted
    from fedtempo.experiments.running.progress import grid_progress

    try:
        with run_notices(), compiling_noted():
            yield Execution(jobs=jobs, ray=ray, watch=grid_progress)
    except GridInterrupted as stop:
        if not stop.folder.exists():
            raise Interrupted("no run had begun; the same command starts them") from None
        raise Interrupted(f"{stop}; the same command goes on with the others") from None
