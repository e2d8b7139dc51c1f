"""Commands that run whole studies: tuning, the paper, the leaderboard."""

from pathlib import Path
from typing import Annotated

import typer

from fedtempo.checks import InputError
from fedtempo.cli.options import (
    Assigned,
    ConfigFile,
    Configs,
    Jobs,
    Ray,
    RecordsFolder,
    RecordsOutput,
    Seeds,
    TargetLoss,
    check_folders,
    check_installed,
    numbers,
    policy_names,
    seed_range,
    stop_options,
    words,
)
from fedtempo.cli.runs import shown_runs
from fedtempo.cli.terminal import note, print_content
from fedtempo.experiments.paper_numbers import CONFIGS

TUNED_PRESET = "best"


def tune(
    config: ConfigFile,
    policies: Annotated[str, typer.Option(help="Names, separated by commas.")],
    step_sizes: Annotated[str, typer.Option(help="Step sizes to try, separated by commas.")],
    cohort_sizes: Annotated[str, typer.Option(help="Cohort sizes to try.", show_default="the file's")] = "",
    seeds: Seeds = 3,
    first_seed: Annotated[
        int | None, typer.Option(help="The first of them.", show_default="one that no comparison uses")
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option(help="Which settings of the file.", show_default="best, or the file's own if it has none"),
    ] = None,
    target_loss: TargetLoss = None,
    time_limit: Annotated[float | None, typer.Option(help="Simulated seconds instead of the file's limits.")] = None,
    assignments: Assigned = None,
    jobs: Jobs = -1,
    ray: Ray = None,
    output: RecordsOutput = Path("runs/tune"),
) -> None:
    """Find each policy's best step size and K: fewest runs that miss the target, then the shortest mean time."""
    from fedtempo.experiments.ranking import tuning
    from fedtempo.experiments.ranking.candidates import FIRST_SEED, SearchSpace
    from fedtempo.experiments.settings.assignments import parse_assignments
    from fedtempo.experiments.settings.config_file import load_experiment

    names, stop = policy_names(policies), stop_options(target_loss=target_loss, time_limit=time_limit)
    check_folders(output)
    sizes = numbers("step_sizes", step_sizes, float)
    cohorts = numbers("cohort_sizes", cohort_sizes, int)
    if not sizes:
        raise InputError(name="step_sizes", rule="hold at least one step size", got="none")
    over = parse_assignments(assignments or ())
    space = SearchSpace(
        experiment=load_experiment(config, preset or _preset_to_tune(config), assignments=over),
        choices={"step_size": sizes} | ({"cohort_size": cohorts} if cohorts else {}),
        seeds=seed_range(seeds, FIRST_SEED if first_seed is None else first_seed),
        stop=stop,
        root=output / config.stem,
        assignments=over,
    )
    with shown_runs(jobs, ray) as execution:
        found = tuning.tune(names, space, execution)
    print_content(found.document())
    print(f"\nAs part of the configuration:\n\n{found.settings()}", end="")


def _preset_to_tune(config: Path) -> str:
    from fedtempo.experiments.settings.config import DEFAULT_PRESET
    from fedtempo.experiments.settings.config_file import has_preset

    if has_preset(config, TUNED_PRESET):
        return TUNED_PRESET
    note(f"{config} has no preset {TUNED_PRESET}: its own settings are where tuning starts")
    return DEFAULT_PRESET


def reproduce(
    what: Annotated[
        str,
        typer.Argument(
            metavar="WHAT", help="The part of the paper: setup1, setup2, setup3, impact-of-k, impact-of-e or all."
        ),
    ],
    seeds: Annotated[int, typer.Option(help="How many seeds; the paper has 20.")] = 20,
    first_seed: Annotated[int, typer.Option(help="The first of them.")] = 0,
    preset: Annotated[str, typer.Option(help="Which settings of the setups.")] = "paper",
    assignments: Assigned = None,
    jobs: Jobs = -1,
    ray: Ray = None,
    configs: Configs = CONFIGS,
    records: RecordsFolder = Path("runs/reproduce"),
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder of tables and figures.")] = Path(
        "reproduction"
    ),
) -> None:
    """Reproduce the paper's tables and figures, beside its own numbers. Interrupted, it goes on where it was."""
    from fedtempo.experiments.paper import reproduce as verb
    from fedtempo.experiments.settings.assignments import parse_assignments

    verb.parts_of(what)
    check_installed("matplotlib", "reproduce")
    check_folders(records, output)
    request = verb.ReproductionRequest(
        what=what,
        seeds=seed_range(seeds, first_seed),
        preset=preset,
        configs=configs,
        records=records,
        assignments=parse_assignments(assignments or ()),
    )
    with shown_runs(jobs, ray) as execution:
        for part in verb.reproduce(request, execution):
            written = verb.write_part(part, output)
            print_content(part.document)
            for path in written:
                print(f"wrote {path}", flush=True)


def leaderboard(
    setups: Annotated[
        str,
        typer.Option(help="setup1, setup2, setup3, fashion, cifar10, shakespeare, separated by commas."),
    ] = "setup1,setup2",
    channels: Annotated[str, typer.Option(help="static, fading, fading-unknown, absences, traces.")] = "static",
    policies: Annotated[
        str,
        typer.Option(help="Names, separated by commas.", show_default="all but full; on networks the best known"),
    ] = "",
    regimes: Annotated[
        str, typer.Option(help="plain, momentum (setups 1 to 3), levers.", show_default="all that a setup has")
    ] = "",
    seeds: Annotated[
        int | None,
        typer.Option(
            help="How many seeds, dealt out over the draws of the data.", show_default="20; on networks 1 a draw"
        ),
    ] = None,
    draws: Annotated[
        int | None,
        typer.Option(help="How many draws of the data.", show_default="5; setup3 10, cifar10 and shakespeare 3"),
    ] = None,
    traces: Annotated[Path | None, typer.Option(help="Folder of .up and .csv traces, for the channel traces.")] = None,
    configs: Configs = CONFIGS,
    assignments: Assigned = None,
    jobs: Jobs = -1,
    ray: Ray = None,
    records: RecordsFolder = Path("runs/leaderboard"),
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder of tables and charts.")] = Path("leaderboard"),
    beside: Annotated[
        Path | None, typer.Option(help="Folder of an earlier leaderboard, whose other policies' runs are kept.")
    ] = None,
) -> None:
    """Rank policies by time to target, all time counted, each at its own best settings. Interrupted, it goes on."""
    from fedtempo.experiments.ranking import leaderboard as verb
    from fedtempo.experiments.settings.assignments import parse_assignments

    check_installed("matplotlib", "leaderboard")
    check_folders(records, output)
    request = verb.LeaderboardRequest(
        setups=words(setups),
        channels=words(channels),
        regimes=words(regimes) if regimes else None,
        policies=policy_names(policies) if policies else None,
        seeds=seeds,
        draws=draws,
        configs=configs,
        traces=traces,
        records=records,
        beside=beside,
        assignments=parse_assignments(assignments or ()),
    )
    with shown_runs(jobs, ray) as execution:
        for ranking in verb.rank(request, execution, note):
            page = verb.write_ranking(ranking, output)
            print_content(ranking.document())
            print(f"wrote {page} and {page.with_suffix('.png')}")
