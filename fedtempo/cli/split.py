"""The command that shows how samples are split among clients."""

import json
from pathlib import Path
from typing import Annotated

import typer

from fedtempo.cli.options import (
    HTML,
    JSON,
    Assigned,
    ConfigFile,
    Preset,
    check_ending,
    check_installed,
    check_outputs,
)
from fedtempo.cli.terminal import print_content, run_notices
from fedtempo.figures import FORMATS, save_figure
from fedtempo.files import whole_file

PICTURES = tuple(f".{one}" for one in FORMATS)


def split(
    config: ConfigFile,
    preset: Preset = "paper",
    assignments: Assigned = None,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="Also draw clients × classes, as .png, .svg or .pdf, or in an .html page."),
    ] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="Also write all numbers to a JSON file.")] = None,
) -> None:
    """Show how the samples of an experiment are split: sizes, classes of a client, how unlike clients are.

    For example: fedtempo split my.toml -o split.png
    """
    from fedtempo.data.split_page import page_of
    from fedtempo.experiments.running.notices import warn_first
    from fedtempo.experiments.running.problem import load_data
    from fedtempo.experiments.settings.assignments import parse_assignments
    from fedtempo.experiments.settings.config_file import load_experiment

    check_outputs(config, output, json_file, what="the experiment's own file")
    check_ending("output", output, (*PICTURES, *HTML))
    check_ending("json_file", json_file, JSON)
    if output is not None:
        check_installed("matplotlib", "a picture")
        if output.suffix.lower() in HTML:
            check_installed("jinja2", "a page")
    experiment = load_experiment(config, preset, assignments=parse_assignments(assignments or ()))
    with run_notices():
        warn_first(experiment, [])
    summary = load_data(experiment.data).describe()
    print_content(summary.table())
    if output is not None:
        with whole_file(output, "wb") as stream:
            if output.suffix.lower() in HTML:
                stream.write(page_of(summary).encode())
            else:
                save_figure(summary.plot(), stream, output.suffix.lower().removeprefix("."))
        print(f"wrote {output}")
    if json_file is not None:
        with whole_file(json_file) as stream:
            json.dump(summary.facts(), stream, indent=1)
            stream.write("\n")
        print(f"wrote {json_file}")
