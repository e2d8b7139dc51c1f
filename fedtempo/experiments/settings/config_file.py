"""Experiments from TOML files: a file, one of its presets over it, and what a command asks for over both."""

import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from fedtempo.checks import InputError, near_miss
from fedtempo.experiments.settings.config import DEFAULT_PRESET, Experiment, make_experiment, with_current_names
from fedtempo.experiments.settings.decode import SettingsTable, checked_table, merged


def load_experiment(path: Path | str, preset: str = DEFAULT_PRESET, *, over: SettingsTable | None = None) -> Experiment:
    """Return the experiment of a file under a preset.

    The file itself is the preset ``paper``; each table [presets.X] lies over it. ``over`` lies over both, except that
    new targets replace all old ones, and new limits all old limits. Files that the experiment names are looked for
    beside its own file first, then where the command was given; its table keeps them as they were written.
    """
    table = _read_table(path)
    try:
        table = _under_preset(table, preset)
        if over:
            table = _with_changes(table, with_current_names(over))
        experiment = make_experiment(table, preset)
    except InputError as error:
        raise error.within(path) from None
    return _with_paths(experiment, Path(path))


def has_preset(path: Path | str, preset: str) -> bool:
    """Return whether a file has a preset."""
    return preset in checked_table("presets", _read_table(path).get("presets", {}))


def _read_table(path: Path | str) -> dict[str, object]:
    try:
        table = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(
            name=path, rule="be a configuration file", got="no such file", remedy="fedtempo init writes one"
        ) from None
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
    return merged(with_current_names(table), with_current_names(over))


def _with_changes(table: SettingsTable, over: SettingsTable) -> dict[str, object]:
    """Return a table with another over it, whose targets and limits replace all of theirs."""
    stop, asked = checked_table("stop", table.get("stop", {})), over.get("stop", {})
    for kind in ("target_", "max_"):
        if isinstance(asked, Mapping) and any(name.startswith(kind) for name in asked):
            stop = {name: value for name, value in stop.items() if not name.startswith(kind)}
    return merged({**table, "stop": stop}, over)


def _with_paths(experiment: Experiment, path: Path) -> Experiment:
    """Return an experiment that knows its file, and where the files are that it names."""

    def beside(name: str) -> str:
        near = path.parent / name
        found = near if near.exists() else Path(name)
        return str(found.absolute()) if found.exists() else name  # found from other folders too, where workers may be

    times, channel = experiment.times, experiment.channel
    if times.compute_scores is not None:
        times = replace(times, compute_scores=beside(times.compute_scores))
    channel = replace(channel, traces=tuple(map(beside, channel.traces)))
    return replace(experiment, times=times, channel=channel, path=path)
