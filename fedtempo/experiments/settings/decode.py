"""Typed settings from plain tables, such as TOML has: unknown keys, wrong types and missing values get one sentence."""

import types
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import Annotated, Literal, TypeAlias, TypeVar, Union, cast, get_args, get_origin, get_type_hints

import msgspec
import numpy as np
import tomli_w

from fedtempo.checks import InputError, near_miss

SettingsTable: TypeAlias = Mapping[str, object]  # values and tables by name, as a file has them
T = TypeVar("T")

WORDS: dict[object, str] = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}


def checked_table(name: str, value: object) -> SettingsTable:
    """Return a value that must be a table; ``name`` is what messages call it."""
    if not isinstance(value, Mapping):
        raise InputError(name=name, rule="be a table", got=repr(value))
    return value


def decode(kind: type[T], value: object, path: str = "", /, **fixed: object) -> T:
    """Return a dataclass from the table at this path of a file; ``fixed`` are fields that no table may set."""
    table = checked_table(path or "the file", value)
    known = {field.name: field for field in fields(kind) if field.name not in fixed}  # type: ignore[arg-type]
    hints = get_type_hints(kind, include_extras=True)
    for key in table:
        if key not in known:
            raise InputError(_joined(path, key), "be a known setting", repr(key), near_miss(key, known))
    values = {}
    for name, field in known.items():
        if name in table:
            values[name] = _converted(hints[name], table[name], _joined(path, name))
        elif field.default is MISSING and field.default_factory is MISSING:
            raise InputError(name=_joined(path, name), rule="be given", got="nothing")
    try:
        return kind(**values, **fixed)
    except InputError as error:
        raise (error.within(path) if path else error) from None


def merged(base: SettingsTable, over: SettingsTable) -> dict[str, object]:
    """Return a table with another laid over it, table by table; None takes a setting away."""
    result = dict(base)
    for key, value in over.items():
        if value is None:
            result.pop(key, None)
            continue
        below = result.get(key)
        both = isinstance(value, Mapping) and isinstance(below, Mapping)
        result[key] = merged(below, value) if both else value  # type: ignore[arg-type]
    return result


def to_toml(table: SettingsTable) -> str:
    """Return a table as TOML, which has no None: what is None is left out."""
    return tomli_w.dumps(_without_none(table))


def _without_none(table: SettingsTable) -> dict[str, object]:
    return {
        name: _without_none(value) if isinstance(value, Mapping) else value
        for name, value in table.items()
        if value is not None
    }


def _joined(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def _converted(hint: object, value: object, path: str) -> object:
    """Return the value of one setting as its type has it."""
    kind, inside = _required(hint), get_args(_required(hint))
    if kind is object:
        return value
    if isinstance(kind, type) and is_dataclass(kind):
        return decode(kind, value, path)
    if get_origin(kind) is Mapping:
        table = checked_table(path, value)
        return {name: _converted(inside[1], one, _joined(path, name)) for name, one in table.items()}
    if isinstance(value, np.generic):
        value = value.item()
    try:
        return msgspec.convert(value, cast("type", kind))
    except msgspec.ValidationError:
        rule, wrong = _broken_rule(kind, value)
        raise InputError(name=path, rule=rule, got=repr(wrong)) from None


def _required(hint: object) -> object:
    """Return the type of a setting that may be left out, where it is not left out."""
    if get_origin(hint) not in (Union, types.UnionType):
        return hint
    kinds = [kind for kind in get_args(hint) if kind is not type(None)]
    return kinds[0] if len(kinds) == 1 else Union[tuple(kinds)]  # noqa: UP007 - of types that are known here alone


def _broken_rule(kind: object, value: object) -> tuple[str, object]:
    """Say what a value must be that is not of its type, and which part of it is not."""
    inside = get_args(kind)
    if get_origin(kind) is tuple and isinstance(value, list) and (inside[-1] is ... or len(value) == len(inside)):
        for one in value:
            try:
                msgspec.convert(one, inside[0])
            except msgspec.ValidationError:
                return _broken_rule(inside[0], one)
    return f"be {_words(kind)}", value


def _words(kind: object) -> str:
    inside = get_args(kind)
    if get_origin(kind) is Annotated:
        return str(inside[1].description)
    if get_origin(kind) is Literal:
        return f"one of {', '.join(map(str, inside))}" if len(inside) > 1 else str(inside[0])
    if get_origin(kind) is tuple:
        return "a list" if inside[-1] is ... else f"a list of {len(inside)}"
    if get_origin(kind) in (Union, types.UnionType):
        return " or ".join(map(_words, inside))
    return WORDS[kind]
