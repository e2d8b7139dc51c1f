"""Commands to begin with: which policies there are, a configuration, data."""

from pathlib import Path
from typing import Annotated

import typer

from fedtempo.checks import InputError
from fedtempo.files import whole_file


def policies() -> None:
    """List the policies."""
    from fedtempo.policies.registry import available_policies

    for name, entry in available_policies().items():
        print(f"{name:16} {entry.description}")


def init(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="The file to write.")] = Path("experiment.toml"),
) -> None:
    """Write a commented configuration to start from."""
    from fedtempo.experiments.settings.template import TEMPLATE

    if path.exists():
        raise InputError(name=path, rule="not exist yet", got="a file", remedy="choose another name")
    with whole_file(path) as stream:
        stream.write(TEMPLATE)
    print(f"wrote {path}; run: fedtempo run {path} --policy weighted")


def fetch(
    dataset: Annotated[str, typer.Argument(help="mnist, emnist, fashion-mnist, cifar10 or shakespeare.")],
) -> None:
    """Download a data set into the cache."""
    from fedtempo.data.sources import fetch as download

    print(f"wrote {download(dataset, progress=True)}")
