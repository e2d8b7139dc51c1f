"""Checked dataclasses from TOML tables: unknown keys, wrong types and missing values get one sentence. And back."""

import difflib
import json
import math
import types
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from fedtempo.checks import InputError

T = TypeVar("T")

WORDS = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}


def as_table(where: str, value: object) -> Mapping[str, Any]:
    """Return a table; ``where`` is its name in messages."""
    if not isinstance(value, Mapping):
        raise InputError(name=where, rule="be a table", got=repr(value))
    return value


def from_table(kind: type[T], value: object, where: str = "", **given: object) -> T:
    """Return a dataclass from a table of this name; fields that are given are no settings of the table."""
    table = as_table(where or "the file", value)
    known = {field.name: field for field in fields(kind) if field.name not in given}  # type: ignore[arg-type]
    hints = get_type_hints(kind)
    for key in table:
        if key not in known:
            raise InputError(name=_path(where, key), rule="be a known setting", got=f"{key!r}{nearest(key, known)}")
    values = {}
    for name, field in known.items():
        if name in table:
            values[name] = _convert(hints[name], table[name], _path(where, name))
        elif field.default is MISSING and field.default_factory is MISSING:
            raise InputError(name=_path(where, name), rule="be given", got="nothing")
    try:
        return kind(**values, **given)
    except InputError as error:
        raise (error.within(where) if where else error) from None


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Return a table with another laid over it, table by table; None takes a setting away."""
    result = dict(base)
    for key, value in over.items():
        if value is None:
            result.pop(key, None)
            continue
        both = isinstance(value, Mapping) and isinstance(result.get(key), Mapping)
        result[key] = merged(result[key], value) if both else value
    return result


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a hint at the nearest known name, or at all of them."""
    known = list(known)
    near = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {near[0]!r}?" if near else f"; known are {', '.join(known)}"


def _path(where: str, key: str) -> str:
    return f"{where}.{key}" if where else key


def _convert(hint: Any, value: object, where: str) -> Any:  # noqa: ANN401
    origin, inside = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        kinds = [kind for kind in inside if kind is not type(None)]
        return _convert(kinds[0], value, where)
    if origin is Literal:
        if value not in inside:
            raise InputError(name=where, rule=f"be one of {', '.join(map(str, inside))}", got=repr(value))
        return value
    if origin is tuple:
        if not isinstance(value, list) or (inside[-1] is not ... and len(value) != len(inside)):
            size = "" if inside[-1] is ... else f" of {len(inside)}"
            raise InputError(name=where, rule=f"be a list{size}", got=repr(value))
        return tuple(_convert(inside[0], item, where) for item in value)
    if origin in (dict, Mapping):
        return as_table(where, value)
    if is_dataclass(hint):
        return from_table(hint, value, where)  # type: ignore[arg-type]
    right = isinstance(value, hint) and (hint is bool or not isinstance(value, bool))
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not right:
        raise InputError(name=where, rule=f"be {WORDS[hint]}", got=repr(value))
    return value


def as_toml(table: dict[str, Any], prefix: str = "") -> str:
    """Return a table of JSON values as TOML."""
    plain = {name: value for name, value in table.items() if not isinstance(value, dict)}
    lines = [f"{_key(name)} = {_value(value)}" for name, value in plain.items()]
    for name, value in table.items():
        if isinstance(value, dict):
            full = f"{prefix}{_key(name)}"
            lines += ["", f"[{full}]", as_toml(value, f"{full}.")]
    return "\n".join(lines).strip("\n")


def _key(name: str) -> str:
    return name if name.isascii() and name.replace("-", "").replace("_", "").isalnum() else _value(name)


def _value(value: object) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{_key(name)} = {_value(one)}' for name, one in value.items())} }}"
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
