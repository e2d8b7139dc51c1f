"""Commands that run whole studies: tuning, the paper, the leaderboard."""

from itertools import product
from pathlib import Path
from typing import Annotated

import typer

from fedtempo.checks import InputError
from fedtempo.cli.options import (
    Config,
    Configs,
    Jobs,
    Ray,
    Records,
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
from fedtempo.cli.runs import run_grid, say_first, target_of
from fedtempo.cli.terminal import note, print_markdown
from fedtempo.experiments.paper import CONFIGS, SETUPS
from fedtempo.experiments.toml import nearest

TUNED_PRESET = "best"
PARTS = (*SETUPS, "impact-of-k", "impact-of-e", "all")  # of the paper


def tune(
    config: Config,
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
    jobs: Jobs = -1,
    ray: Ray = None,
    output: RecordsOutput = Path("runs/tune"),
) -> None:
    """Find each policy's best step size and K: fewest runs that miss the target, then the shortest mean time."""
    from fedtempo.experiments.tuning import (
        FIRST_SEED,
        as_toml,
        at_the_edge,
        best_of,
        candidates,
        started_from,
        tuning_table,
    )

    names, stop = policy_names(policies), stop_options(target_loss=target_loss, time_limit=time_limit)
    check_folders(output)
    sizes = numbers("--step-sizes", step_sizes, float)
    cohorts = numbers("--cohort-sizes", cohort_sizes, int)
    if not sizes:
        raise InputError(name="--step-sizes", rule="hold at least one step size", got="none")
    preset = preset or _preset_to_tune(config)
    found = candidates(
        config,
        preset,
        names,
        choices={"step_size": sizes} | ({"cohort_size": cohorts} if cohorts else {}),
        seeds=seed_range(seeds, FIRST_SEED if first_seed is None else first_seed),
        stop=stop,
        root=output / config.stem,
    )
    experiment = found[0].jobs[0].experiment
    target = target_of(config, experiment)
    say_first(experiment, names)
    run_grid(experiment.name, [job for candidate in found for job in candidate.jobs], jobs, ray)
    edges = [f"- {said}" for said in at_the_edge(found, target)]
    told = ["", "At the edge of what was tried:", "", *edges] if edges else []
    print_markdown("\n".join([started_from(found, target), "", tuning_table(found, target), *told]))
    print("\nAs part of the configuration:\n")
    print(as_toml(best_of(found, target), preset))


def _preset_to_tune(config: Path) -> str:
    from fedtempo.experiments.config import DEFAULT_PRESET, has_preset

    if has_preset(config, TUNED_PRESET):
        return TUNED_PRESET
    note(f"{config} has no preset {TUNED_PRESET}: its own settings are where tuning starts")
    return DEFAULT_PRESET


def reproduce(
    what: Annotated[
        str, typer.Argument(metavar="WHAT", help=f"The part of the paper: {', '.join(PARTS[:-1])} or {PARTS[-1]}.")
    ],
    seeds: Annotated[int, typer.Option(help="How many seeds; the paper has 20.")] = 20,
    first_seed: Annotated[int, typer.Option(help="The first of them.")] = 0,
    preset: Annotated[str, typer.Option(help="Which settings of the setups.")] = "paper",
    jobs: Jobs = -1,
    ray: Ray = None,
    configs: Configs = CONFIGS,
    records: Records = Path("runs/reproduce"),
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder of tables and figures.")] = Path(
        "reproduction"
    ),
) -> None:
    """Reproduce the paper's tables and figures, beside its own numbers. Interrupted, it goes on where it was."""
    from fedtempo.experiments.reproduce import Reproduction
    from fedtempo.experiments.reproduce import reproduce as make

    if what not in PARTS:
        near = nearest(what, PARTS)
        known = f"one of {', '.join(PARTS)}" if "did you mean" in near else "a part of the paper"
        raise InputError(name="WHAT", rule=f"be {known}", got=f"{what!r}{near}")
    check_installed("matplotlib", "report", "reproduce")
    check_folders(records, output)
    wanted = Reproduction(
        configs=configs,
        preset=preset,
        seeds=seed_range(seeds, first_seed),
        records=records,
        output=output,
        run_grid=lambda grid: run_grid(grid[0].experiment.name, grid, jobs, ray),
        say_first=say_first,
    )
    for written in make(what, wanted):
        print_markdown(written[0].read_text(encoding="utf-8"))
        for path in written:
            print(f"wrote {path}", flush=True)


def leaderboard(
    setups: Annotated[str, typer.Option(help="Which setups, separated by commas.")] = "setup1,setup2",
    channels: Annotated[str, typer.Option(help="static, fading, fading-untold, absences, traces.")] = "static",
    policies: Annotated[str, typer.Option(help="Names, separated by commas.", show_default="all but full")] = "",
    regimes: Annotated[str, typer.Option(help="Server optimisers: plain, momentum.")] = "plain,momentum",
    seeds: Annotated[int, typer.Option(help="How many seeds, dealt out over the draws of the data.")] = 20,
    draws: Annotated[int, typer.Option(help="How many draws of the data.")] = 5,
    traces: Annotated[Path | None, typer.Option(help="Folder of .up and .csv traces, for the channel traces.")] = None,
    configs: Configs = CONFIGS,
    jobs: Jobs = -1,
    ray: Ray = None,
    records: Records = Path("runs/leaderboard"),
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder of tables and charts.")] = Path("leaderboard"),
    beside: Annotated[
        Path | None, typer.Option(help="Folder of an earlier leaderboard, whose other policies' runs are kept.")
    ] = None,
) -> None:
    """Rank policies by time to target, all time counted, each at its own best settings. Interrupted, it goes on."""
    from fedtempo.experiments.config import read_experiment
    from fedtempo.experiments.leaderboard import DEFAULT_POLICIES, check_choices, rank
    from fedtempo.experiments.standings import read_standings

    check_installed("matplotlib", "report", "leaderboard")
    check_folders(records, output)
    if not configs.is_dir():
        raise InputError(
            name="--configs", rule="be the folder of setup1.toml to setup3.toml", got=f"no such folder as {configs}"
        )
    check_choices(words(setups), words(channels), words(regimes), seeds=seeds, draws=draws, traces=traces)
    names = policy_names(policies) if policies else list(DEFAULT_POLICIES)
    contests = list(product(words(setups), words(channels), words(regimes)))
    for setup in words(setups):
        say_first(read_experiment(configs / f"{setup}.toml", TUNED_PRESET)[0], names)
    if beside is not None:
        for contest in contests:
            read_standings(beside / f"{'-'.join(contest)}.csv", seeds=seeds, draws=draws, without=names)
    for setup, channel, regime in contests:
        path = rank(
            setup, channel, regime, names,
            seeds=seeds, draws=draws, configs=configs, traces=traces, records=records, output=output,
            run_grid=lambda stage, grid: run_grid(stage, grid, jobs, ray), beside=beside,
        )  # fmt: skip
        print_markdown(path.read_text(encoding="utf-8"))
        print(f"wrote {path} and {path.with_suffix('.png')}")
