"""Single settings over an experiment, as in `--set training.step_size=0.05`: read, and laid over all else."""

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from fedtempo.checks import InputError
from fedtempo.experiments.settings.config import RENAMED
from fedtempo.experiments.settings.decode import SettingsTable, checked_table

BARE_WORD = re.compile(r"[^\s\"'\[\]{}=#,]+")
KeyPath: TypeAlias = tuple[str, ...]  # of a setting: the tables that it lies in, and its name


@dataclass(frozen=True, slots=True)
class Assignment:
    """One setting and its value, which replaces whatever was there, tables too."""

    path: KeyPath
    value: object
    text: str = ""  # as it was given

    @property
    def key(self) -> str:
        """The setting as a file would name it."""
        return ".".join(self.path)


Assignments: TypeAlias = Sequence[Assignment]


def parse_assignments(texts: Iterable[str]) -> list[Assignment]:
    """Return settings from texts such as "training.step_size=0.05": the value is TOML, or a bare word, which is text.

    Keys have dots between their tables, and quotes where a part of them has a dot itself, as in TOML.
    """
    return [_parsed(text) for text in texts]


def _parsed(text: str) -> Assignment:
    key, equals, value = (part.strip() for part in text.partition("="))
    if not equals or not key or not value:
        raise InputError(
            name="assignments", rule="be KEY=VALUE", got=repr(text), remedy="for example training.step_size=0.05"
        )
    path, found = _path_of(key), _value_of(value)
    if len(path) == 1 and isinstance(found, Mapping):
        remedy = f"give its settings one by one, as in {key}.NAME=VALUE"
        raise InputError(name="assignments", rule="name a setting, not a whole table", got=repr(text), remedy=remedy)
    return Assignment(path, found, text)


def _path_of(key: str) -> KeyPath:
    """Return the parts of a dotted key."""
    found: object = _toml(f"{key} = 0")
    path: list[str] = []
    while isinstance(found, Mapping) and len(found) == 1:
        ((name, found),) = found.items()
        path.append(name)
    if not path or found != 0:
        raise InputError(name="assignments", rule="name a setting, such as training.step_size", got=repr(key))
    section, *rest = path
    current = RENAMED.get(section, {})
    return section, *(current.get(name, name) for name in rest[:1]), *rest[1:]


def _value_of(text: str) -> object:
    found = _toml(f"value = {text}")
    if found is not None and len(found) == 1:
        return found["value"]
    if BARE_WORD.fullmatch(text):
        return text
    raise InputError(
        name="assignments",
        rule="have a value of TOML, or a bare word",
        got=repr(text),
        remedy="quote text for TOML and for the shell, as in 'name=\"two words\"'",
    )


def _toml(text: str) -> dict[str, object] | None:
    try:
        return None if "\n" in text else tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return None


def lay_over(table: SettingsTable, assignments: Assignments) -> dict[str, object]:
    """Return a table with settings over it, the last of them uppermost.

    A setting of [training] goes over what policies have in its place too, unless theirs are among the assignments.
    """
    names = {name for one in assignments if one.path[0] == "training" for name in one.path[1:2]}
    found = _without_own(dict(table), names)
    for one in assignments:
        found = _with_value(found, one.path, one)
    return found


def refuse_assigned(assignments: Assignments, paths: Iterable[KeyPath], why: str) -> None:
    """Refuse settings at some paths, which whoever runs the experiment sets itself; ``why`` ends the sentence."""
    for path in paths:
        for one in assignments:
            shared = min(len(path), len(one.path))
            if path[:shared] == one.path[:shared]:
                got = repr(one.text or one.key)
                raise InputError(name="assignments", rule=f"not set {'.'.join(path)}", got=got, remedy=why)


def paths_in(table: SettingsTable, within: KeyPath = ()) -> Iterator[KeyPath]:
    """Yield the path of each setting of a table."""
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield from paths_in(value, (*within, name))
        else:
            yield (*within, name)


def _without_own(table: dict[str, object], names: set[str]) -> dict[str, object]:
    """Return a table in which no policy has settings of training of these names."""
    policies = table.get("policy")
    if not names or not isinstance(policies, Mapping):
        return table
    kept = {}
    for policy, options in policies.items():
        own = options.get("training") if isinstance(options, Mapping) else None
        if isinstance(own, Mapping) and names & set(own):
            left = {name: value for name, value in own.items() if name not in names}
            options = {**options, "training": left}
            if not left:
                del options["training"]
        kept[policy] = options
    return {**table, "policy": kept}


def _with_value(table: SettingsTable, path: KeyPath, one: Assignment) -> dict[str, object]:
    name, *below = path
    if not below:
        return {**table, name: one.value}
    inside = checked_table(".".join(one.path[: -len(below)]), table.get(name, {}))
    return {**table, name: _with_value(inside, tuple(below), one)}
