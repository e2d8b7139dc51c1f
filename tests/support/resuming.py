"""Runs that are stopped, carried over to new objects by their states, and gone on with; whole, or with a field left out."""

from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import fields, is_dataclass, replace

import numpy as np

from fedtempo.engine.loop import DivergedError, Loop
from fedtempo.engine.records import encode

Path = tuple[str, ...]  # the name of a part, then those of fields, one inside the other
Make = Callable[[], Loop]


def lines_of(loop: Loop) -> list[bytes]:
    """Run to the end; return all lines of the records."""
    return list(_lines(loop))


def carried_over(make: Make, after: int, left_out: Path | None = None) -> list[bytes]:
    """Run so many rounds, carry the run over to new objects, and go on; return all lines.

    ``left_out``: a field that is forgotten on the way, so that it is what it was in the new objects.
    """
    first, second = make(), make()
    lines = []
    for line, _ in zip(_lines(first), range(after), strict=False):
        lines.append(line)
    if first.ended is not None:
        return lines_of(make())
    fresh = {name: deepcopy(part.state) for name, part in second.parts.items()}
    second.resume({name: array.copy() for name, array in first.save().items()})
    if left_out is not None:
        name, *path = left_out
        part = second.parts[name]
        part.state = _without(part.state, fresh[name], tuple(path))
    return lines + lines_of(second)


def state_fields(loop: Loop) -> Iterator[tuple[Path, str]]:
    """Yield the path of every field of every state, and the name of the field by its class."""
    for name, part in loop.parts.items():
        for path, field in _fields(part.state):
            yield (name, *path), field


def _fields(state: object) -> Iterator[tuple[Path, str]]:
    for one in fields(state):
        value = getattr(state, one.name)
        if is_dataclass(value):
            yield from (((one.name, *path), name) for path, name in _fields(value))
        else:
            yield (one.name,), f"{type(state).__name__}.{one.name}"


def _without(state: object, fresh: object, path: Path) -> object:
    name, *rest = path
    value = getattr(state, name)
    if rest:
        inner = getattr(fresh, name, None)
        return replace(state, **{name: _without(value, inner if type(inner) is type(value) else None, tuple(rest))})
    new = getattr(fresh, name) if fresh is not None else _nothing(value)
    return replace(state, **{name: new})


def _nothing(value: object) -> object:
    return np.zeros_like(value) if isinstance(value, np.ndarray) else type(value)()


def _lines(loop: Loop) -> Iterator[bytes]:
    try:
        for record in loop.rounds():
            yield encode(record)
    except DivergedError as error:
        loop.ended = "diverged"
        yield str(error).encode()
    yield encode(loop.summary())
