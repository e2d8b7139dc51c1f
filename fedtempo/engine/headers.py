"""Whether two headers ask for the same run, and in what they differ, in words."""

import math
import reprlib
from collections.abc import Callable, Iterable, Iterator, Mapping

import msgspec

from fedtempo.checks import InputError
from fedtempo.engine.records import FORMAT, Header

LIMITS = ("max_rounds", "max_time")  # of [stop], and the ends of runs that may go on to later ones
CODE = ("versions", "commit")  # with what a run was made
ORIGIN = ("experiment", "preset", "format", *CODE)  # and what it was called then: nothing of what was asked for
DIFFERENCES_SHOWN = 3

Canonical = Callable[[Header], dict[str, object]]


def as_table(header: Header) -> dict[str, object]:
    """Return a header as plain values."""
    table: dict[str, object] = msgspec.to_builtins(header)
    return table


def limits(header: Header) -> tuple[float, float]:
    """Return after how many rounds and seconds of training a run ends, ∞ where it has no such limit."""
    stop = header.config.get("stop", {})
    max_rounds, max_time = (math.inf if stop.get(name) is None else stop[name] for name in LIMITS)
    return max_rounds, max_time


def with_limits(header: Header, other: Header | None) -> Header:
    """Return a header with the limits of another, or without."""
    stop = {name: value for name, value in header.config.get("stop", {}).items() if name not in LIMITS}
    own = {} if other is None else other.config.get("stop", {})
    taken = {name: own[name] for name in LIMITS if own.get(name) is not None}
    return with_config(header, header.config | {"stop": stop | taken})


def with_config(header: Header, config: Mapping[str, object]) -> Header:
    """Return a header of this format with another configuration."""
    return msgspec.structs.replace(header, config=dict(config), format=FORMAT)


def other_run(there: Header, here: Header, canonical: Canonical = as_table) -> str:
    """Say in what a header asks for another run than this one; "" if it asks for this one.

    Headers are compared in the form that ``canonical`` gives them, or as they are where it refuses one of them, which
    may be of code that knew other settings.
    """
    try:
        tables = canonical(there), canonical(here)
    except (InputError, KeyError, TypeError):
        tables = as_table(there), as_table(here)
    names = {**tables[0], **tables[1]}
    return _differences(*tables, (name for name in names if name not in ORIGIN))


def other_code(there: Header, here: Header) -> str:
    """Say in what the code and its packages differ that two runs were made with, "" if in nothing."""
    return _differences(as_table(there), as_table(here), CODE)


def _differences(there: Mapping[str, object], here: Mapping[str, object], names: Iterable[str]) -> str:
    """Return in words what differs between two tables under some names, "" if nothing does."""
    found = [text for name in names for text in _each_difference(name, there.get(name), here.get(name))]
    more = [f"and {len(found) - DIFFERENCES_SHOWN} more"] if len(found) > DIFFERENCES_SHOWN else []
    return "; ".join(found[:DIFFERENCES_SHOWN] + more)


def _each_difference(name: str, there: object, here: object) -> Iterator[str]:
    if isinstance(there, Mapping) and isinstance(here, Mapping):
        for key in {**there, **here}:
            yield from _each_difference(f"{name}.{key}", there.get(key), here.get(key))
    elif there != here:
        was, now = ("nothing" if value is None else reprlib.repr(value) for value in (there, here))
        yield f"{name}: {was} there, {now} here"
