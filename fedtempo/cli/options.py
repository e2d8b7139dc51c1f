"""What the words of a command line mean: options that commands share, lists, seeds, output files."""

import os
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from fedtempo.checks import (
    InputError,
    MissingDependencyError,
    check_count,
    check_finite,
    check_positive,
    check_seed,
)

ConfigFile = Annotated[
    Path, typer.Argument(metavar="CONFIG", help="The experiment: a TOML file, or a name such as setup2.")
]
Configs = Annotated[
    Path, typer.Option(help="Folder of setup1.toml to setup3.toml; where there is none, fedtempo's own are taken.")
]
Assigned = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VAL", help="Set any key over the file, e.g. training.step_size=0.05; may be repeated."
    ),
]
Preset = Annotated[str, typer.Option(help="Which settings of the file.")]
Seeds = Annotated[int, typer.Option(help="How many seeds.")]
TargetLoss = Annotated[float | None, typer.Option(help="Loss to reach instead of the file's targets.")]
Jobs = Annotated[int, typer.Option(help="Runs side by side; -1: one for each core.")]
Ray = Annotated[str | None, typer.Option(metavar="ADDRESS", help="Run on this Ray cluster.")]
RecordsFolder = Annotated[Path, typer.Option(help="Folder of the records.")]
RecordsOutput = Annotated[Path, typer.Option("-o", "--output", help="Folder of the records.")]

HTML, JSON = (".html", ".htm"), (".json",)  # how the names of such files end
Numeric = TypeVar("Numeric", int, float)


def words(listed: str) -> list[str]:
    """Return the words of a list with commas."""
    return [word.strip() for word in listed.split(",") if word.strip()]


def policy_names(listed: str) -> list[str]:
    """Return the policies of a list with commas: known ones, each once."""
    from fedtempo.policies.registry import check_name

    names = words(listed)
    if any(len(name.split()) > 1 for name in names):
        apart = ",".join(listed.replace(",", " ").split())
        raise InputError(name="policies", rule="be separated by commas", got=repr(listed), remedy=f"write {apart}")
    names = [check_name(name, setting="policies") for name in names]
    if not names or len(set(names)) < len(names):
        raise InputError(name="policies", rule="be distinct names, separated by commas", got=repr(listed))
    return names


def numbers(name: str, listed: str, kind: Callable[[str], Numeric]) -> list[Numeric]:
    """Return the numbers of a list with commas, each once; ``name`` is that of the option."""
    try:
        found = [kind(word) for word in words(listed)]
    except ValueError:
        raise InputError(name=name, rule="be numbers, separated by commas", got=repr(listed)) from None
    if len(set(found)) < len(found):
        raise InputError(name=name, rule="be distinct numbers, separated by commas", got=repr(listed))
    return found


def seed_range(count: int, first: int) -> range:
    """Return so many seeds from the first one on."""
    check_seed("first_seed", first)
    return range(first, first + check_count("seeds", count))


def stop_options(
    *,
    target_loss: float | None = None,
    target_accuracy: float | None = None,
    time_limit: float | None = None,
    max_rounds: int | None = None,
) -> dict[str, float]:
    """Return the ends of a run that are asked for, as a table for [stop]."""
    for name, target in (("target_loss", target_loss), ("target_accuracy", target_accuracy)):
        if target is not None:
            check_finite(name, target)
    if time_limit is not None:
        check_positive("time_limit", time_limit)
    if max_rounds is not None:
        check_count("max_rounds", max_rounds)
    ends = {
        "target_loss": target_loss,
        "target_accuracy": target_accuracy,
        "max_time": time_limit,
        "max_rounds": max_rounds,
    }
    return {name: value for name, value in ends.items() if value is not None}


def check_ending(option: str, path: Path | None, endings: tuple[str, ...]) -> None:
    """Refuse an output whose name does not end as such files do: it may be a file that was never to be overwritten.

    What is no file, such as a pipe or /dev/stdout, may have any name.
    """
    if path is None or path.suffix.lower() in endings or path.is_relative_to("/dev"):
        return
    if path.is_file() or not path.exists():
        raise InputError(name=option, rule=f"be a file that ends in {' or '.join(endings)}", got=f"{path}")


def check_outputs(source: Path | None, *outputs: Path | None, what: str = "the fleet's own file") -> None:
    """Refuse outputs that would overwrite the input or each other, or cannot be written, before any work is done.

    ``what``: the input, in words.
    """
    wanted = [path for path in outputs if path is not None]
    if len({os.path.realpath(path) for path in wanted}) < len(wanted):
        raise InputError(name="output files", rule="differ from each other", got=f"{wanted[0]} more than once")
    for path in wanted:
        if source is not None and path.is_file() and source.exists() and path.samefile(source):
            raise InputError(name=path, rule=f"not be {what}", got="it as an output", remedy="choose another name")
        if path.is_dir():
            raise InputError(name=path, rule="be a file", got="a folder")
        folder = Path(os.path.realpath(path)).parent
        if not folder.is_dir():
            raise InputError(name=path, rule="lie in a folder that exists", got=f"no such directory as {folder}")
        replaced = path.is_file() or not path.exists()  # by a file that is written beside it; not so a pipe
        if replaced and not os.access(folder, os.W_OK | os.X_OK):
            raise InputError(path, "lie in a folder that can be written to", f"{folder}", "choose another folder")


def check_folders(*folders: Path) -> None:
    """Refuse files in the place of folders to write to, before any work is done."""
    for folder in folders:
        if folder.exists() and not folder.is_dir():
            raise InputError(name=folder, rule="be a folder", got="a file", remedy="choose another name")


def check_installed(package: str, purpose: str) -> None:
    """Raise if an optional package is missing, before any work is done."""
    if find_spec(package) is None:
        raise MissingDependencyError(package, purpose)
