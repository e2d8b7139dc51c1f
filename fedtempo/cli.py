"""The command line: parse, call one function, print."""

import json
import os
import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from fedtempo import __version__
from fedtempo.checks import InputError, check_choice, check_count, check_fraction, check_positive, check_seed
from fedtempo.files import whole_file, whole_files
from fedtempo.fleet_csv import FleetNotice, dump_fleet, read_fleet, write_fleet
from fedtempo.planning.plan import PlanSettings, plan_fleet
from fedtempo.planning.plot import check_plotting, draw_plan
from fedtempo.planning.tables import plan_tables
from fedtempo.theory.bandwidth import LinkMode
from fedtempo.theory.round_time import Duplicates

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Who trains, how often and with what bandwidth, so that federated learning ends soonest.",
)

FAILED, BAD_INPUT, INTERRUPTED = 1, 2, 130
WRONG_PATH = (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError)
PIPED_WIDTH = 120


@app.callback(invoke_without_command=True)
def common(
    context: typer.Context,
    show_version: Annotated[bool, typer.Option("--version", help="Print the version and end.")] = False,
) -> None:
    """Take the options that belong to no command."""
    if show_version:
        print(__version__)
    elif context.invoked_subcommand is None:
        print(context.get_help())


@app.command()
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
    model_size: Annotated[
        float | None, typer.Option(metavar="MB", help="Megabytes of one upload, for a column uplink_mbps.")
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
    if (cohort_size is None) != optimise_cohort:
        raise InputError("the cohort size must be given once: either --cohort-size K or --optimise-cohort")
    picture_format = _picture_format(plot) if plot else ""
    _check_outputs(fleet_csv, output, plot, json_file)
    with _options_named():
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
        with _notices():
            fleet = read_fleet(fleet_csv, total_bandwidth=total_bandwidth, model_megabytes=model_size)
        result = plan_fleet(fleet, settings)
    if beta_over_alpha is None:
        _note("no --beta-over-alpha: 0 assumed, which plans for sampling noise alone")
    for note in result.notes():
        _note(note)
    wanted = [(path, mode) for path, mode in ((output, "w"), (json_file, "w"), (plot, "wb")) if path is not None]
    with whole_files(*wanted) as opened:
        streams = iter(opened)
        if output is not None:
            dump_fleet(next(streams), fleet, result.columns())
        if json_file is not None:
            json.dump(result.as_json(), next(streams), indent=1, allow_nan=False)
        if plot is not None:
            draw_plan(result, next(streams), picture_format)
    console = _console()
    for table in plan_tables(result, console):
        console.print(table)
    for path, _ in wanted:
        print(f"wrote {path}")


@app.command()
def run(
    config: Annotated[Path, typer.Argument(metavar="CONFIG", help="The experiment, a TOML file.")],
    policy: Annotated[str, typer.Option(help="Who trains; fedtempo policies lists them.")],
    seed: Annotated[int, typer.Option(help="Of cohorts, batches and the initial model.")] = 0,
    preset: Annotated[str, typer.Option(help="Which settings of the file.")] = "paper",
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="Folder of the records. [default: runs/CONFIG/PRESET/POLICY/seedS]"),
    ] = None,
    target_loss: Annotated[float | None, typer.Option(help="End at this loss instead of the file's targets.")] = None,
    max_rounds: Annotated[
        int | None, typer.Option(help="End after so many rounds instead of the file's limit.")
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with code 1 if the target is not reached.")] = False,
) -> None:
    """Simulate one run: one policy, one seed. A run that was stopped goes on where it was."""
    from fedtempo.experiments import runner
    from fedtempo.experiments.config import read_experiment
    from fedtempo.experiments.display import run_progress, summary_table
    from fedtempo.experiments.records import RECORDS
    from fedtempo.experiments.results import read_run

    check_seed("--seed", seed)
    over: dict[str, Any] = {}
    if target_loss is not None:
        over["target_loss"] = target_loss
    if max_rounds is not None:
        over["max_rounds"] = max_rounds
    experiment, table = read_experiment(config, preset, over={"stop": over} if over else {})
    folder = output or Path("runs") / config.stem / preset / policy / f"seed{seed}"
    data = runner.load_data(experiment.data).name
    _say_data(experiment)
    with run_progress(f"{experiment.name}, {policy}", experiment.stop) as progress, _run_notices():
        summary = runner.run(experiment, table, policy=policy, seed=seed, folder=folder, progress=progress)
    note = read_run(folder / RECORDS).note if summary["pilot_rounds"] else {}
    _console().print(summary_table(summary, experiment.stop, data, note.get("estimate")))
    print(f"wrote {folder}")
    if strict and summary["end"] != "target":
        raise typer.Exit(FAILED)


@app.command()
def compare(
    config: Annotated[Path, typer.Argument(metavar="CONFIG", help="The experiment, a TOML file.")],
    policies: Annotated[str, typer.Option(help="Names, separated by commas; fedtempo policies lists them.")],
    seeds: Annotated[int, typer.Option(help="How many seeds.")] = 5,
    first_seed: Annotated[int, typer.Option(help="The first of them.")] = 0,
    preset: Annotated[str, typer.Option(help="Which settings of the file.")] = "paper",
    target_loss: Annotated[float | None, typer.Option(help="Loss to reach instead of the file's targets.")] = None,
    target_accuracy: Annotated[
        float | None, typer.Option(help="Accuracy to reach instead of the file's targets.")
    ] = None,
    time_limit: Annotated[
        float | None, typer.Option(help="Simulated seconds, pilots apart, instead of the file's limits.")
    ] = None,
    jobs: Annotated[int, typer.Option(help="Runs side by side. [default: as many as there are cores]")] = -1,
    ray: Annotated[str | None, typer.Option(metavar="ADDRESS", help="Run on this Ray cluster.")] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="Also write each run to a JSON file.")] = None,
    report: Annotated[Path | None, typer.Option(metavar="HTML", help="Also write a report.")] = None,
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder of the records.")] = Path("runs/compare"),
) -> None:
    """Run policies over the same seeds, and show what each takes to the target. Finished runs are not run again."""
    from fedtempo.experiments.comparison import as_json
    from fedtempo.experiments.config import read_experiment
    from fedtempo.experiments.grid import Job
    from fedtempo.experiments.results import read_run
    from fedtempo.experiments.tables import time_table

    names, wanted_seeds = _names(policies), _seeds(seeds, first_seed)
    _check_outputs(config, json_file, report)
    given = {"target_loss": target_loss, "target_accuracy": target_accuracy, "max_time": time_limit}
    over = {"stop": {name: value for name, value in given.items() if value is not None}}
    experiment, table = read_experiment(config, preset, over=over if over["stop"] else {})
    target = _target_of(config, experiment)
    root = output / config.stem / preset
    grid = [Job(experiment, table, policy, seed, root) for policy in names for seed in wanted_seeds]
    _say_data(experiment)
    runs = [read_run(path) for path in _run_grid(experiment.name, grid, jobs, ray)]
    title = f"{experiment.name}, {runs[0].header['data']}: seconds to {target}"
    limit = experiment.stop.max_time
    _print_markdown(f"{title}\n\n{time_table(runs, target, time_limit=limit)}")
    if json_file is not None:
        with whole_file(json_file) as stream:
            json.dump(as_json(runs, target, limit), stream, indent=1)
            stream.write("\n")
        print(f"wrote {json_file}")
    if report is not None:
        _write_report(runs, report, target)


@app.command()
def reproduce(
    what: Annotated[
        str, typer.Argument(metavar="WHAT", help="setup1, setup2, setup3, impact-of-k, impact-of-e or all.")
    ],
    seeds: Annotated[int, typer.Option(help="How many seeds; the paper has 20.")] = 20,
    first_seed: Annotated[int, typer.Option(help="The first of them.")] = 0,
    preset: Annotated[str, typer.Option(help="Which settings of the setups.")] = "paper",
    jobs: Annotated[int, typer.Option(help="Runs side by side. [default: as many as there are cores]")] = -1,
    ray: Annotated[str | None, typer.Option(metavar="ADDRESS", help="Run on this Ray cluster.")] = None,
    configs: Annotated[Path, typer.Option(help="Folder of setup1.toml to setup3.toml.")] = Path("configs"),
    records: Annotated[Path, typer.Option(help="Folder of the records.")] = Path("runs/reproduce"),
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder of tables and figures.")] = Path(
        "reproduction"
    ),
) -> None:
    """Reproduce the paper's tables and figures, beside its own numbers. Interrupted, it goes on where it was."""
    from fedtempo.experiments.reproduce import Reproduction
    from fedtempo.experiments.reproduce import reproduce as make

    check_plotting()
    given = Reproduction(
        configs=configs,
        preset=preset,
        seeds=_seeds(seeds, first_seed),
        records=records,
        output=output,
        run_grid=lambda grid: _run_grid(grid[0].experiment.name, grid, jobs, ray),
    )
    written = make(what, given)
    for path in written:
        if path.suffix == ".md":
            _print_markdown(path.read_text(encoding="utf-8"))
    for path in written:
        print(f"wrote {path}")


@app.command()
def tune(
    config: Annotated[Path, typer.Argument(metavar="CONFIG", help="The experiment, a TOML file.")],
    policies: Annotated[str, typer.Option(help="Names, separated by commas.")],
    step_sizes: Annotated[str, typer.Option(help="Step sizes to try, separated by commas.")],
    cohort_sizes: Annotated[str, typer.Option(help="Cohort sizes to try. [default: the file's]")] = "",
    seeds: Annotated[int, typer.Option(help="How many seeds.")] = 3,
    first_seed: Annotated[int, typer.Option(help="The first of them: none that a comparison uses.")] = 1000,
    preset: Annotated[str, typer.Option(help="Which settings of the file.")] = "best",
    target_loss: Annotated[float | None, typer.Option(help="Loss to reach instead of the file's targets.")] = None,
    time_limit: Annotated[float | None, typer.Option(help="Simulated seconds instead of the file's limits.")] = None,
    jobs: Annotated[int, typer.Option(help="Runs side by side. [default: as many as there are cores]")] = -1,
    ray: Annotated[str | None, typer.Option(metavar="ADDRESS", help="Run on this Ray cluster.")] = None,
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder of the records.")] = Path("runs/tune"),
) -> None:
    """Find each policy's best step size and K: fewest runs that miss the target, then the shortest mean time."""
    from fedtempo.experiments.tuning import as_toml, best_of, candidates, tuning_table

    given = {"target_loss": target_loss, "max_time": time_limit}
    sizes = _numbers("--step-sizes", step_sizes, float)
    cohorts = _numbers("--cohort-sizes", cohort_sizes, int)
    if not sizes:
        raise InputError("--step-sizes must hold at least one step size, got none")
    found = candidates(
        config,
        preset,
        _names(policies),
        choices={"step_size": sizes} | ({"cohort_size": cohorts} if cohorts else {}),
        seeds=_seeds(seeds, first_seed),
        stop={name: value for name, value in given.items() if value is not None},
        root=output / config.stem,
    )
    experiment = found[0].jobs[0].experiment
    target = _target_of(config, experiment)
    _say_data(experiment)
    _run_grid(experiment.name, [job for candidate in found for job in candidate.jobs], jobs, ray)
    _print_markdown(tuning_table(found, target))
    print("\nAs part of the configuration:\n")
    print(as_toml(best_of(found, target), preset))


@app.command()
def leaderboard(
    setups: Annotated[str, typer.Option(help="Which setups, separated by commas.")] = "setup1,setup2",
    channels: Annotated[str, typer.Option(help="Kinds of channels: static, fading, absences, traces.")] = "static",
    policies: Annotated[str, typer.Option(help="Names, separated by commas. [default: all but full]")] = "",
    regimes: Annotated[str, typer.Option(help="Server optimisers: plain, momentum.")] = "plain,momentum",
    seeds: Annotated[int, typer.Option(help="How many seeds, dealt out over the draws of the data.")] = 20,
    draws: Annotated[int, typer.Option(help="How many draws of the data.")] = 5,
    traces: Annotated[Path | None, typer.Option(help="Folder of .up and .csv traces, for the channel traces.")] = None,
    configs: Annotated[Path, typer.Option(help="Folder of setup1.toml to setup3.toml.")] = Path("configs"),
    jobs: Annotated[int, typer.Option(help="Runs side by side. [default: as many as there are cores]")] = -1,
    ray: Annotated[str | None, typer.Option(metavar="ADDRESS", help="Run on this Ray cluster.")] = None,
    records: Annotated[Path, typer.Option(help="Folder of the records.")] = Path("runs/leaderboard"),
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder of tables and charts.")] = Path("leaderboard"),
) -> None:
    """Rank policies by time to target, all time counted, each at its own best settings. Interrupted, it goes on."""
    from fedtempo.experiments.leaderboard import DEFAULT_POLICIES, rank

    for setup, channel, regime in product(_words(setups), _words(channels), _words(regimes)):
        path = rank(
            setup, channel, regime, _names(policies) if policies else list(DEFAULT_POLICIES),
            seeds=seeds, draws=draws, configs=configs, traces=traces, records=records, output=output,
            run_grid=lambda grid: _run_grid(grid[0].experiment.name, grid, jobs, ray),
        )  # fmt: skip
        _print_markdown(path.read_text(encoding="utf-8"))


@app.command()
def report(
    runs: Annotated[list[Path], typer.Argument(metavar="DIR...", help="Folders of runs.")],
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
    _write_report(read_runs(runs), output, None if wanted == Target() else wanted)


@app.command()
def policies() -> None:
    """List the policies."""
    from fedtempo.policies.registry import available_policies

    for name, entry in available_policies().items():
        print(f"{name:16} {entry.description}")


@app.command()
def init(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="The file to write.")] = Path("experiment.toml"),
) -> None:
    """Write a commented configuration to start from."""
    from fedtempo.experiments.template import TEMPLATE

    if path.exists():
        raise InputError(f"{path} must not exist yet, got a file; choose another name")
    with whole_file(path) as stream:
        stream.write(TEMPLATE)
    print(f"wrote {path}; run: fedtempo run {path} --policy weighted")


@app.command()
def estimate(
    runs: Annotated[list[Path], typer.Argument(metavar="DIR...", help="Folders of runs.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="The fleet as CSV, for fedtempo plan.")],
) -> None:
    """Read times, gradient bounds and β/α back out of records."""
    from fedtempo.experiments.readback import estimate_fleet
    from fedtempo.experiments.records import find_runs

    found = estimate_fleet(find_runs(runs))
    write_fleet(output, found.fleet)
    if found.unseen:
        _note(f"{found.unseen} of {len(found.fleet)} clients never trained: they have the medians of the others")
    print(
        found.beta_over_alpha
        or "β/α needs records of uniform and weighted sampling, or of pilots, and the losses of [policy.proposed]"
    )
    print(f"wrote {output}")


@app.command()
def export(
    runs: Annotated[list[Path], typer.Argument(metavar="DIR...", help="Folders of runs.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="A .parquet or .csv file.")],
) -> None:
    """Write the rounds of some runs as one table."""
    from fedtempo.experiments.readback import export_runs
    from fedtempo.experiments.records import find_runs

    rows = export_runs(find_runs(runs), output)
    print(f"wrote {output}, {rows} rounds")


@app.command()
def fetch(dataset: Annotated[str, typer.Argument(help="mnist or emnist.")]) -> None:
    """Download a data set into the cache."""
    from fedtempo.data.sources import fetch as download

    print(f"wrote {download(dataset, progress=True)}")


def _words(given: str) -> list[str]:
    return [word.strip() for word in given.split(",") if word.strip()]


def _names(given: str) -> list[str]:
    from fedtempo.policies.registry import check_name

    names = [check_name(name) for name in _words(given)]
    if not names or len(set(names)) < len(names):
        raise InputError(f"--policies must be distinct names, separated by commas, got {given!r}")
    return names


def _numbers(name: str, given: str, kind: type[Any]) -> list[Any]:
    try:
        return [kind(part) for part in given.split(",") if part.strip()]
    except ValueError:
        raise InputError(f"{name} must be numbers, separated by commas, got {given!r}") from None


def _seeds(count: int, first: int) -> range:
    check_seed("--first-seed", first)
    return range(first, first + check_count("--seeds", count))


def _target_of(config: Path, experiment: Any) -> Any:  # noqa: ANN401
    from fedtempo.experiments.comparison import Target

    target = Target(loss=experiment.stop.target_loss, accuracy=experiment.stop.target_accuracy)
    if target == Target():
        raise InputError(f"{config} must have a target under [stop], got none; or give --target-loss")
    return target


def _say_data(experiment: Any) -> None:  # noqa: ANN401
    from fedtempo.experiments.display import data_note
    from fedtempo.experiments.runner import load_data

    if note := data_note(experiment.data.kind, load_data(experiment.data).name):
        _note(note)


def _run_grid(title: str, grid: list[Any], jobs: int, ray: str | None) -> list[Path]:
    from fedtempo.experiments.display import grid_progress
    from fedtempo.experiments.grid import run_grid

    if jobs == 0:
        raise InputError("--jobs must be a number of processes, or -1 for one to each core, got 0")
    with grid_progress(title, grid):
        return run_grid(grid, processes=jobs, ray=ray)


def _write_report(runs: list[Any], path: Path, target: Any) -> None:  # noqa: ANN401
    from fedtempo.experiments.report import write_report

    write_report(runs, path, target=target)
    print(f"wrote {path}")


def _print_markdown(text: str) -> None:
    """Show Markdown as a terminal can: tables with lines, pictures left out."""
    if sys.stdout.isatty():
        from rich.markdown import Markdown

        _console().print(Markdown(re.sub(r"!\[.*\]\(.*\)", "", text)))
    else:
        print(text)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; bad input ends with one sentence and code 2, a failed run with code 1."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal without β shows ?, rather than a traceback
    try:
        code = app(arguments, standalone_mode=False) or 0
    except Exception as error:
        code = _explain(error)
    if code == INTERRUPTED:
        _fail("interrupted; a run goes on when the same command is given again", code)
    sys.exit(code)


def _explain(error: Exception) -> int:
    """Turn an error that a user can mend into one sentence and a code; raise any other."""
    if isinstance(error, InputError):
        return _fail(str(error), BAD_INPUT)
    if isinstance(error, typer.Abort):
        return INTERRUPTED
    if hasattr(error, "format_message"):  # an error of the command line itself, whichever click typer brings
        return _fail(error.format_message(), BAD_INPUT)
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename else ""
        return _fail(f"{where}{error.strerror}", BAD_INPUT if isinstance(error, WRONG_PATH) else FAILED)
    if isinstance(error, ArithmeticError):
        return _fail(str(error), FAILED)
    raise error


def _console() -> Console:
    """Return a console that takes text as it is: names are not markup."""
    piped = not sys.stdout.isatty() and "COLUMNS" not in os.environ
    return Console(width=PIPED_WIDTH if piped else None, markup=False, emoji=False, highlight=False)


def _picture_format(path: Path) -> str:
    check_plotting()
    return check_choice("the ending of --plot", path.suffix.lower().removeprefix("."), ("png", "pdf", "svg"))


def _check_outputs(source: Path, *outputs: Path | None) -> None:
    """Refuse outputs that would overwrite the input or each other, or have no folder, before any work is done."""
    wanted = [path for path in outputs if path is not None]
    if len({os.path.realpath(path) for path in wanted}) < len(wanted):
        raise InputError(f"output files must differ from each other, got {wanted[0]} more than once")
    for path in wanted:
        if path.is_file() and source.exists() and path.samefile(source):
            raise InputError(f"{path} must not be the fleet's own file, got it as an output; choose another name")
        if path.is_dir():
            raise InputError(f"{path} must be a file, got a folder")
        folder = Path(os.path.realpath(path)).parent
        if not folder.is_dir():
            raise InputError(f"{path} must lie in a folder that exists, got no such directory as {folder}")


@contextmanager
def _options_named() -> Iterator[None]:
    """Let messages name options as the command line does: --cohort-size, not cohort_size."""
    counts = ("cohort_size", "max_cohort", "weighted_cohort", "draws", "seed")
    names = (*counts, "beta_over_alpha", "floor", "rounds_weighted", "model_size", "total_bandwidth")
    try:
        yield
    except InputError as error:
        pattern = rf"(?<![\w-])({'|'.join(names)}) must|for (beta_over_alpha) 0"
        raise InputError(re.sub(pattern, _as_option, str(error))) from None


def _as_option(match: re.Match[str]) -> str:
    name = match[1] or match[2]
    return match[0].replace(name, f"--{name.replace('_', '-')}")


@contextmanager
def _notices() -> Iterator[None]:
    """Show what a reader assumed or passed over as notes, not as warnings, once the input is accepted."""
    with warnings.catch_warnings(record=True, action="always", category=FleetNotice) as caught:
        yield
    for notice in caught or ():
        _note(str(notice.message))


@contextmanager
def _run_notices() -> Iterator[None]:
    """Show what a run's records tell as notes, at once: the run may take hours."""
    from fedtempo.experiments.records import RunNotice

    with warnings.catch_warnings():
        usual = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:  # noqa: ANN401
            if issubclass(category, RunNotice):
                _note(str(message))
            else:
                usual(message, category, *where, **more)

        warnings.simplefilter("always", RunNotice)
        warnings.showwarning = show
        yield


def _note(message: str) -> None:
    print(f"note: {message}", file=sys.stderr)


def _fail(message: str, code: int) -> int:
    print(f"fedtempo: {' '.join(message.split())}", file=sys.stderr)
    return code
