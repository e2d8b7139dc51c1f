"""Labels that distinguish runs of one policy by the settings in which they differ."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from fedtempo.experiments.running.results import Run

NO_CURVE = ("name", "policy", "stop")  # tables of a configuration: none of them changes the curve of a run
CHECKSUM_LETTERS = 8

Settings: TypeAlias = dict[str, object]  # by dotted name
Words: TypeAlias = dict[str, dict[str, str]]  # of each setting that differs: for each value, by its repr


def labelled(runs: Sequence[Run]) -> list[Run]:
    """Return runs whose policy also names the settings in which they differ, so that unlike runs are not averaged."""
    settings = [_settings(run) for run in runs]
    own: dict[str, list[Settings]] = {}  # settings of the runs of each policy
    for run, one in zip(runs, settings, strict=True):
        own.setdefault(run.policy, []).append(one)
    shared = {name: words for name, words in _differing(settings).items() if not _is_option(name)}
    if any(name.startswith("data.") for name in shared):
        shared.pop("checksum", None)
    words = {
        policy: shared | {name: words for name, words in _differing(group).items() if _is_option(name)}
        for policy, group in own.items()
    }
    return [
        replace(run, policy=", ".join([run.policy, *_described(one, words[run.policy])]))
        for run, one in zip(runs, settings, strict=True)
    ]


def _is_option(name: str) -> bool:
    return name.startswith("policy.")


def _described(settings: Settings, words: Words) -> list[str]:
    """Return those of the settings for which there are words."""
    return [
        f"{name.removeprefix('training.').removeprefix('policy.')} {words[name][repr(value)]}"
        for name, value in settings.items()
        if name in words
    ]


def _settings(run: Run) -> Settings:
    """Return what a run was made with, by dotted name: all that changes its curve, so neither its name nor its end."""
    config = run.header.config
    own = {name: value for name, value in config.items() if name not in NO_CURVE}
    own["policy"] = config.get("policy", {}).get(run.policy, {})
    return _flat(own) | _code(run) | {"checksum": run.header.data_checksum[:CHECKSUM_LETTERS], "clock": run.clock}


def _code(run: Run) -> Settings:
    """Return what tells files and functions of somebody's own from those that had the same name before.

    Files of data are told apart by the data's checksum.
    """
    files = {name: value for name, value in run.header.files.items() if name not in ("data", "policy")}
    found = {f"file of {name}": str(value)[:CHECKSUM_LETTERS] for name, value in _flat(files).items()}
    policy = {"code": run.header.files.get("policy", {}).get("code", "")[:CHECKSUM_LETTERS], "kind": run.header.kind}
    return found | {f"policy.{name}": value for name, value in policy.items()}


def _differing(settings: Sequence[Settings]) -> Words:
    """Return the names of settings that differ, with words for each value: short ones if those differ."""
    found: Words = {}
    for name in dict.fromkeys(name for one in settings for name in one):
        values = {repr(value): value for value in (one.get(name) for one in settings)}
        short = {key: _brief(value) for key, value in values.items()}
        if len(values) > 1:
            found[name] = short if len(set(short.values())) == len(values) else {key: key for key in values}
    return found


def _brief(value: object) -> str:
    """Return a value in words, numbers with four digits."""
    if isinstance(value, float):
        return f"{value:,.0f}" if 1e3 <= abs(value) < 1e9 else f"{value:.4g}"
    return str(value)


def _flat(table: Mapping[str, object], prefix: str = "") -> Settings:
    found: Settings = {}
    for name, value in table.items():
        found |= _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return found
