"""Commands that run: one policy under one seed, or several side by side."""

import json
import os
from pathlib import Path
from typing import Annotated, Any

import typer

from fedtempo.checks import InputError, check_seed
from fedtempo.cli.options import (
    HTML,
    JSON,
    Config,
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
from fedtempo.cli.terminal import FAILED, Interrupted, compiling_noted, console, note, print_markdown, run_notices
from fedtempo.files import whole_file


def run(
    config: Config,
    policy: Annotated[str, typer.Option(help="Who trains; fedtempo policies lists them.")],
    seed: Annotated[int, typer.Option(help="Of cohorts, batches and the initial model.")] = 0,
    preset: Preset = "paper",
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="Folder of the records.", show_default="runs/CONFIG/PRESET/POLICY/seedS"),
    ] = None,
    target_loss: Annotated[float | None, typer.Option(help="End at this loss instead of the file's targets.")] = None,
    max_rounds: Annotated[
        int | None, typer.Option(help="End after so many rounds instead of the file's limit.")
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with code 1 if the target is not reached.")] = False,
) -> None:
    """Simulate one run: one policy, one seed. A run that was stopped goes on where it was."""
    from fedtempo.engine.records import RECORDS
    from fedtempo.experiments import runner
    from fedtempo.experiments.config import read_experiment
    from fedtempo.experiments.display import run_progress, summary_table
    from fedtempo.experiments.results import read_run

    check_seed("--seed", seed)
    stop = stop_options(target_loss=target_loss, max_rounds=max_rounds)
    experiment, table = read_experiment(config, preset, over={"stop": stop})
    folder = output or Path("runs") / config.stem / preset / policy / f"seed{seed}"
    data = runner.load_data(experiment.data).name
    say_first(experiment, [policy])
    title = f"{experiment.name}, {policy}"
    with run_progress(title, experiment.stop) as progress, run_notices(), compiling_noted():
        summary = runner.run(experiment, table, policy=policy, seed=seed, folder=folder, progress=progress)
    told = read_run(folder / RECORDS).note if summary["pilot_rounds"] else {}
    console().print(summary_table(summary, experiment.stop, data, told.get("estimate")))
    print(f"wrote {folder}")
    if strict and summary["end"] != "target":
        raise typer.Exit(FAILED)


def compare(
    config: Config,
    policies: Annotated[str, typer.Option(help="Names, separated by commas; fedtempo policies lists them.")],
    seeds: Seeds = 5,
    first_seed: Annotated[int, typer.Option(help="The first of them.")] = 0,
    preset: Preset = "paper",
    target_loss: TargetLoss = None,
    target_accuracy: Annotated[
        float | None, typer.Option(help="Accuracy to reach instead of the file's targets, 0 to 1, e.g. 0.7.")
    ] = None,
    time_limit: Annotated[
        float | None, typer.Option(help="Simulated seconds, pilots apart, instead of the file's limits.")
    ] = None,
    jobs: Jobs = -1,
    ray: Ray = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="Also write each run to a JSON file.")] = None,
    report: Annotated[Path | None, typer.Option(metavar="HTML", help="Also write a report.")] = None,
    output: RecordsOutput = Path("runs/compare"),
) -> None:
    """Run policies over the same seeds, and show what each takes to the target. Finished runs are not run again."""
    from fedtempo.experiments.comparison import as_json
    from fedtempo.experiments.config import read_experiment
    from fedtempo.experiments.grid import Job
    from fedtempo.experiments.results import read_run
    from fedtempo.experiments.tables import time_table

    names, wanted_seeds = policy_names(policies), seed_range(seeds, first_seed)
    check_outputs(config, json_file, report, what="the experiment's own file")
    check_ending("--json", json_file, JSON)
    check_ending("--report", report, HTML)
    check_folders(output)
    if report is not None:
        check_report()
    stop = stop_options(target_loss=target_loss, target_accuracy=target_accuracy, time_limit=time_limit)
    experiment, table = read_experiment(config, preset, over={"stop": stop})
    target = target_of(config, experiment)
    root = output / config.stem / preset
    grid = [Job(experiment, table, policy, seed, root) for policy in names for seed in wanted_seeds]
    say_first(experiment, names)
    runs = [read_run(path) for path in run_grid(experiment.name, grid, jobs, ray)]
    title = f"{experiment.name}, {runs[0].header['data']}: seconds to {target}"
    limit = experiment.stop.max_time
    print_markdown(f"{title}\n\n{time_table(runs, target, time_limit=limit)}")
    if json_file is not None:
        with whole_file(json_file) as stream:
            json.dump(as_json(runs, target, limit), stream, indent=1)
            stream.write("\n")
        print(f"wrote {json_file}")
    if report is not None:
        report_on(runs, report, target)


def target_of(config: Path, experiment: Any) -> Any:  # noqa: ANN401
    """Return what the runs of an experiment are to reach; without a target there is nothing to compare."""
    from fedtempo.experiments.comparison import Target

    target = Target(loss=experiment.stop.target_loss, accuracy=experiment.stop.target_accuracy)
    if target == Target():
        raise InputError(name=config, rule="have a target under [stop]", got="none", remedy="or give --target-loss")
    return target


def say_first(experiment: Any, policies: list[str]) -> None:  # noqa: ANN401
    """Say what whoever waits for some runs should know: other data than the file names, pilots that go too far."""
    from fedtempo.experiments.display import data_note, pilot_note
    from fedtempo.experiments.runner import load_data

    for said in (
        data_note(experiment.data.kind, load_data(experiment.data).name),
        pilot_note(experiment, policies),
    ):
        if said is not None:
            note(said)


def run_grid(title: str, grid: list[Any], jobs: int, ray: str | None) -> list[Path]:
    """Run what has not ended of a grid, and show how far it is; return the records."""
    from fedtempo.experiments import grid as grids
    from fedtempo.experiments.display import grid_progress

    if jobs == 0:
        raise InputError(name="--jobs", rule="be a number of processes, or -1 for one to each core", got="0")
    try:
        with grid_progress(title, grid), run_notices(), compiling_noted():
            return grids.run_grid(grid, processes=jobs, ray=ray)
    except KeyboardInterrupt:
        folders = {job.folder: job for job in grid}
        ended, where = sum(map(grids.has_ended, folders.values())), os.path.commonpath([job.root for job in grid])
        raise Interrupted(
            f"{ended} of {len(folders)} runs have ended, in {where}; the same command goes on with the others"
        ) from None
