"""Experiments from TOML files: a file, one of its presets over it, and what a command asks for over both.

Where there is no such file, a bare name is that of a configuration of the package.
"""

import os
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from fedtempo.checks import InputError, near_miss
from fedtempo.experiments.settings.assignments import Assignments, lay_over
from fedtempo.experiments.settings.config import (
    DEFAULT_PRESET,
    Experiment,
    FileExperiment,
    decode_experiment,
    make_experiment,
    with_current_names,
)
from fedtempo.experiments.settings.decode import SettingsTable, checked_table, merged
from fedtempo.experiments.settings.shipped import find_config
from fedtempo.own_code import is_reference, located

EITHER_OR = (("compute", "compute_scores"), ("upload", "uplink_mbps"))  # of [times]


def load_experiment(
    path: Path | str,
    preset: str = DEFAULT_PRESET,
    *,
    over: SettingsTable | None = None,
    assignments: Assignments = (),
) -> FileExperiment:
    """Return the experiment of a file under a preset.

    The file itself is the preset ``paper``; each table [presets.X] lies over it, and replaces what cannot stand beside
    its own: ``compute_scores`` replaces ``compute``, traces replace upload times. ``over`` lies over both, except that
    new targets replace all old ones, and new limits all old limits. ``assignments`` lie over all of these, and over
    what policies have of their own (``parse_assignments``). Files that the experiment names are looked for beside its
    own file first, then where the command was given, then in $FEDTEMPO_DATA; its table keeps them as they were written.
    """
    table = _read_table(path)
    try:
        table = _under_preset(table, preset)
        if over:
            table = with_changes(table, with_current_names(over))
        experiment = make_experiment(table, preset) if not assignments else None
    except InputError as error:
        raise error.within(path) from None
    return _with_paths(experiment or _assigned(table, preset, assignments, path), find_config(path))


def _assigned(table: SettingsTable, preset: str, assignments: Assignments, path: Path | str) -> FileExperiment:
    try:
        return make_experiment(lay_over(table, assignments), preset)
    except InputError as error:
        raise error.within(f"{path} and the settings over it") from None


def changed_file_experiment(
    experiment: Experiment, over: SettingsTable, assignments: Assignments = ()
) -> FileExperiment:
    """Return an experiment that was read from a file with other settings over its own."""
    try:
        table = lay_over(with_changes(experiment.table, with_current_names(over)), assignments)
        changed = decode_experiment(table, experiment.preset or DEFAULT_PRESET)  # whose policies may be somebody's own
    except InputError as error:
        raise (error if experiment.path is None else error.within(experiment.path)) from None
    return changed if experiment.path is None else _with_paths(changed, experiment.path)


def has_preset(path: Path | str, preset: str) -> bool:
    """Return whether a file has a preset."""
    return preset in checked_table("presets", _read_table(path).get("presets", {}))


def _read_table(path: Path | str) -> dict[str, object]:
    try:
        table = tomllib.loads(find_config(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(name=path, rule="be a readable text file", got=f"{error}") from None
    except tomllib.TOMLDecodeError as error:
        raise InputError(name=path, rule="be TOML", got=f"{error}") from None
    if not table:
        raise InputError(path, "hold an experiment", "an empty file", "fedtempo init writes one to start from")
    return table


def _under_preset(table: dict[str, object], preset: str) -> dict[str, object]:
    presets: dict[str, object] = {DEFAULT_PRESET: {}} | dict(checked_table("presets", table.pop("presets", {})))
    if preset not in presets:
        raise InputError("preset", "be a known preset", repr(preset), near_miss(preset, presets))
    over = checked_table(f"presets.{preset}", presets[preset])
    return merged(_without_replaced(with_current_names(table), over), with_current_names(over))


def _without_replaced(table: dict[str, object], over: SettingsTable) -> dict[str, object]:
    """Return a table without the times that a preset gives in another way."""
    times, asked, channel = (part.get(name) for part, name in ((table, "times"), (over, "times"), (over, "channel")))
    if not isinstance(times, Mapping):
        return table
    given = set(asked) if isinstance(asked, Mapping) else set()
    replaced = {name for pair in EITHER_OR for name in pair if given & set(pair)} - given
    if isinstance(channel, Mapping) and channel.get("kind") == "traces":
        replaced |= {"upload", "uplink_mbps"}
    return {**table, "times": {name: value for name, value in times.items() if name not in replaced}}


def with_changes(table: SettingsTable, over: SettingsTable) -> dict[str, object]:
    """Return a table with another over it, whose targets and limits replace all of theirs."""
    stop, asked = checked_table("stop", table.get("stop", {})), over.get("stop", {})
    for kind in ("target_", "max_"):
        if isinstance(asked, Mapping) and any(name.startswith(kind) for name in asked):
            stop = {name: value for name, value in stop.items() if not name.startswith(kind)}
    return merged({**table, "stop": stop}, over)


def _with_paths(experiment: FileExperiment, path: Path) -> FileExperiment:
    """Return an experiment that knows its file, and where the files are that it names."""

    def beside(name: str) -> str:
        own = os.environ.get("FEDTEMPO_DATA")
        candidates = [path.parent / name, Path(name), *([Path(own) / name] if own else [])]
        found = next((candidate for candidate in candidates if candidate.exists()), None)
        return name if found is None else str(found.absolute())  # found from other folders too, where workers may be

    data, times, channel = experiment.data, experiment.times, experiment.channel
    if data.file is not None:
        data = replace(data, file=beside(data.file))
    if is_reference(data.kind):
        data = replace(data, kind=located(data.kind, (path.parent, Path())))
    names = {name: getattr(experiment.model, name) for name in ("kind", "loss", "metric", "optimiser")}
    own = {name: located(one, (path.parent, Path())) for name, one in names.items() if one and is_reference(one)}
    if times.compute_scores is not None:
        times = replace(times, compute_scores=beside(times.compute_scores))
    channel = replace(channel, traces=tuple(map(beside, channel.traces)))
    model = replace(experiment.model, **own)
    return replace(experiment, data=data, model=model, times=times, channel=channel, path=path)
