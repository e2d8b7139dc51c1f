"""Commands to begin with: which policies there are, a configuration, data."""

from pathlib import Path
from typing import Annotated

import typer

from fedtempo.checks import InputError
from fedtempo.cli.terminal import FAILED, note, print_content
from fedtempo.files import whole_files

FLEET = "fleet.csv"  # the example that init writes


def policies() -> None:
    """List the policies."""
    from fedtempo.policies.registry import available_policies

    for name, entry in available_policies().items():
        print(f"{name:16} {entry.description}")


def check_policy(
    policy: Annotated[str, typer.Argument(metavar="POLICY", help="Your own as module:Class, or a name.")],
) -> None:
    """Try whether a policy has the properties that engines rely on. Exit with code 1 if one fails."""
    from fedtempo.api import conformance
    from fedtempo.policies.registry import check_name

    found = conformance.check_policy(check_name(policy))
    print_content(found.table())
    if not found.holds:
        raise typer.Exit(FAILED)


def init(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="The file to write.")] = Path("experiment.toml"),
    examples: Annotated[
        bool, typer.Option("--examples", help="Write scripts with data, models and samplers of one's own as well.")
    ] = False,
) -> None:
    """Write a commented configuration to start from, and beside it fleet.csv, a fleet to plan.

    Example: fedtempo init my.toml
    """
    from fedtempo.experiments.settings.shipped import example_scripts
    from fedtempo.experiments.settings.template import TEMPLATE
    from fedtempo.planning.example import example_fleet

    fleet = path.with_name(FLEET)
    if path.exists():
        raise InputError(name=path, rule="not exist yet", got="a file", remedy="choose another name")
    if path == fleet:
        raise InputError(name=path, rule="not be the example fleet's", got=FLEET, remedy="choose another name")
    contents = {path: TEMPLATE} | ({} if fleet.exists() else {fleet: example_fleet()})
    scripts = {path.with_name(name): text for name, text in example_scripts().items()} if examples else {}
    for there in filter(Path.exists, scripts):
        raise InputError(name=there, rule="not exist yet", got="a file", remedy="choose another folder")
    contents |= scripts
    with whole_files(*((place, "w") for place in contents)) as streams:
        for stream, text in zip(streams, contents.values(), strict=True):
            stream.write(text)
    print(f"wrote {path}; run: fedtempo run {path} --policy weighted")
    if fleet in contents:
        print(f"wrote {fleet}; run: fedtempo plan {fleet} --model-size 5 --cohort-size 5 --beta-over-alpha 0.1")
    else:
        note(f"{fleet} is there already and stays as it is")
    for script in scripts:
        print(f"wrote {script}")


def fetch(
    dataset: Annotated[str, typer.Argument(help="mnist, emnist, fashion-mnist, cifar10 or shakespeare.")],
) -> None:
    """Download a data set into the cache."""
    from fedtempo.data.sources import fetch as download

    print(f"wrote {download(dataset, progress=True)}")
