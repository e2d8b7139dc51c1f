"""What must survive a stop: any dataclass of numbers, text, arrays and other such dataclasses, written and read back.

Whatever learns keeps all that it learned in one dataclass, its ``state``. There is no list of names to keep in step: a
field that is there is written, and a state that lacks a field, or has one more, is refused.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Protocol, TypeAlias, TypeVar, cast

import msgspec
import numpy as np
import numpy.typing as npt

from fedtempo.checks import InputError

Arrays: TypeAlias = dict[str, npt.NDArray[Any]]
T = TypeVar("T")

VALUES = "values"  # the name of the array that holds what is no array
ARRAY = "array"  # in there, what an array stands by: this, and its name


@dataclass(frozen=True, slots=True)
class NoState:
    """Of whatever learns nothing."""


class Rows:
    """Arrays of one shape by the number of a client; written as two arrays, whatever the number of clients."""

    def __init__(self, by_client: dict[int, npt.NDArray[Any]] | None = None) -> None:
        """Start with these, or with none."""
        self.by_client = by_client or {}


def write_state(state: object) -> Arrays:
    """Return a state as arrays alone, of which one holds everything else as JSON."""
    arrays: Arrays = {}
    values = _plain(state, arrays)
    return arrays | {VALUES: np.frombuffer(values.encode(), dtype=np.uint8)}


def read_state(kind: type[T], arrays: Arrays) -> T:
    """Return the state of this kind that ``write_state`` wrote; arrays are shared, not copied."""
    used: set[str] = set()

    def array(value: object) -> npt.NDArray[Any]:
        name = cast("dict[str, str]", value)[ARRAY]
        used.add(name)
        return arrays[name]

    def taken(wanted: type, value: object) -> object:
        if wanted is object:  # any value of JSON
            return value
        if wanted is not Rows:
            return array(value)
        clients, rows = map(array, cast("list[object]", value))
        return Rows(dict(zip(clients.tolist(), rows, strict=True)))

    try:
        values = arrays[VALUES].tobytes().decode()
        state = msgspec.convert(json.loads(values), kind, dec_hook=taken, str_keys=True)
    except (KeyError, NameError, TypeError, ValueError) as error:
        raise InputError(kind.__name__, "be as this version of fedtempo writes it", f"another ({error})") from None
    if used != arrays.keys() - {VALUES} or _comparable(_plain(state, {})) != _comparable(values):
        raise InputError(kind.__name__, "be as this version of fedtempo writes it", "other fields")
    return state


def _plain(state: object, arrays: Arrays) -> str:
    """Return a state as JSON, in which arrays stand by their names, and keep them."""

    def kept(array: npt.NDArray[Any]) -> dict[str, str]:
        if array.dtype.hasobject:
            raise TypeError("a state holds arrays of numbers or text, got one of objects")
        name = str(len(arrays))
        arrays[name] = array
        return {ARRAY: name}

    def plain(value: object) -> object:
        if is_dataclass(value):  # by its fields, since msgspec goes by what was ever assigned
            return {one.name: plain(getattr(value, one.name)) for one in fields(value)}
        if isinstance(value, dict):
            return {str(key): plain(entry) for key, entry in value.items()}
        if isinstance(value, list | tuple):
            return [plain(entry) for entry in value]
        if isinstance(value, np.ndarray):
            return kept(value)
        if isinstance(value, Rows):
            rows = np.array(list(value.by_client.values())) if value.by_client else np.empty(0)
            return [kept(np.array(list(value.by_client), dtype=np.int64)), kept(rows)]
        return msgspec.to_builtins(value.item() if isinstance(value, np.generic) else value, enc_hook=refused)

    def refused(value: object) -> object:
        raise TypeError(f"a state holds numbers, text and arrays, got {type(value).__name__}")

    return json.dumps(plain(state))


def _comparable(text: str) -> object:
    """Return JSON so that equal states are equal: NaN with itself, and 0 with the 0.0 that a field of floats reads."""
    return json.loads(text, parse_constant=str)


class Stateful(Protocol):
    """Whatever goes on from its ``state`` alone: assigned to a new one of the same settings, it goes on as the old."""

    state: Any


def write_states(parts: Mapping[str, Stateful]) -> Arrays:
    """Return the states of several parts, by their names; one that could not be read back is refused at once."""
    written: Arrays = {}
    for name, part in parts.items():
        try:
            own = write_state(part.state)
            read_state(type(part.state), own)
        except (InputError, TypeError, ValueError) as error:
            raise InputError(
                name=f"the state of the {name}",
                rule="be a dataclass whose annotated fields hold numbers, text and arrays",
                got=f"{type(part.state).__name__}: {error}",
            ) from None
        written |= {f"{name}.{key}": array for key, array in own.items()}
    return written


def read_states(parts: Mapping[str, Stateful], arrays: Arrays) -> None:
    """Give several parts the states that ``write_states`` wrote of such parts; first read all, then change any."""
    found = {}
    for name, part in parts.items():
        start = f"{name}."
        own = {key.removeprefix(start): array for key, array in arrays.items() if key.startswith(start)}
        found[name] = read_state(type(part.state), own)
    for name, state in found.items():
        parts[name].state = state
