"""What the words of a command line mean: options that commands share, lists, seeds, output files."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from fedtempo.checks import InputError, check_count, check_seed

Config = Annotated[Path, typer.Argument(metavar="CONFIG", help="The experiment, a TOML file.")]
Configs = Annotated[Path, typer.Option(help="Folder of setup1.toml to setup3.toml.")]
Preset = Annotated[str, typer.Option(help="Which settings of the file.")]
Seeds = Annotated[int, typer.Option(help="How many seeds.")]
TargetLoss = Annotated[float | None, typer.Option(help="Loss to reach instead of the file's targets.")]
Jobs = Annotated[int, typer.Option(help="Runs side by side. [default: as many as there are cores]")]
Ray = Annotated[str | None, typer.Option(metavar="ADDRESS", help="Run on this Ray cluster.")]
Records = Annotated[Path, typer.Option(help="Folder of the records.")]
RecordsOutput = Annotated[Path, typer.Option("-o", "--output", help="Folder of the records.")]

PLAN_OPTIONS = (
    "cohort_size", "max_cohort", "weighted_cohort", "draws", "seed", "beta_over_alpha", "floor", "rounds_weighted",
    "model_size", "total_bandwidth",
)  # fmt: skip


def given(**options: Any) -> dict[str, Any]:  # noqa: ANN401
    """Return the options that were given."""
    return {name: value for name, value in options.items() if value is not None}


def words(listed: str) -> list[str]:
    """Return the words of a list with commas."""
    return [word.strip() for word in listed.split(",") if word.strip()]


def policy_names(listed: str) -> list[str]:
    """Return the policies of a list with commas: known ones, each once."""
    from fedtempo.policies.registry import check_name

    names = [check_name(name) for name in words(listed)]
    if not names or len(set(names)) < len(names):
        raise InputError(f"--policies must be distinct names, separated by commas, got {listed!r}")
    return names


def numbers(name: str, listed: str, kind: type[Any]) -> list[Any]:
    """Return the numbers of a list with commas."""
    try:
        return [kind(word) for word in words(listed)]
    except ValueError:
        raise InputError(f"{name} must be numbers, separated by commas, got {listed!r}") from None


def seed_range(count: int, first: int) -> range:
    """Return so many seeds from the first one on."""
    check_seed("--first-seed", first)
    return range(first, first + check_count("--seeds", count))


def check_outputs(source: Path, *outputs: Path | None) -> None:
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
def options_named() -> Iterator[None]:
    """Let messages name options as the command line does: --cohort-size, not cohort_size."""
    try:
        yield
    except InputError as error:
        pattern = rf"(?<![\w-])({'|'.join(PLAN_OPTIONS)}) must|for (beta_over_alpha) 0"
        raise InputError(re.sub(pattern, _as_option, str(error))) from None


def _as_option(match: re.Match[str]) -> str:
    name = match[1] or match[2]
    return match[0].replace(name, f"--{name.replace('_', '-')}")
