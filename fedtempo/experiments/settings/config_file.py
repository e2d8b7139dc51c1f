"""Experiments from TOML files: a file, one of its presets over it, and what a command asks for over both."""

import os
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from fedtempo.checks import InputError, near_miss
from fedtempo.experiments.settings.config import DEFAULT_PRESET, Experiment, make_experiment, with_current_names
from fedtempo.experiments.settings.decode import SettingsTable, checked_table, merged

EITHER_OR = (("compute", "compute_scores"), ("upload", "uplink_mbps"))  # of [times]


def load_experiment(path: Path | str, preset: str = DEFAULT_PRESET, *, over: SettingsTable | None = None) -> Experiment:
    """Return the experiment of a file under a preset.

    The file itself is the preset ``paper``; each table [presets.X] lies over it, and replaces what cannot stand beside
    its own: ``compute_scores`` replaces ``compute``, traces replace upload times. ``over`` lies over both, except that
    new targets replace all old ones, and new limits all old limits. Files that the experiment names are looked for
    beside its own file first, then where the command was given, then in $FEDTEMPO_DATA; its table keeps them as they
    were written.
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
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(
            name=path, rule="be a configuration file", got="no such file", remedy="fedtempo init writes one"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(name=path, rule="be a readable text file", got=f"{error}") from None
    except tomllib.TOMLDecodeError as error:
        raise InputError(name=path, rule="be TOML", got=f"{error}") from None


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
        own = os.environ.get("FEDTEMPO_DATA")
        candidates = [path.parent / name, Path(name), *([Path(own) / name] if own else [])]
        found = next((candidate for candidate in candidates if candidate.exists()), None)
        return name if found is None else str(found.absolute())  # found from other folders too, where workers may be

    times, channel = experiment.times, experiment.channel
    if times.compute_scores is not None:
        times = replace(times, compute_scores=beside(times.compute_scores))
    channel = replace(channel, traces=tuple(map(beside, channel.traces)))
    return replace(experiment, times=times, channel=channel, path=path)
