"""Options that a configuration gives to a policy: one frozen dataclass for each policy, one reader for all."""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields
from typing import TYPE_CHECKING, TypeVar, cast

from fedtempo.checks import InputError, near_miss

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Options = TypeVar("Options", bound="DataclassInstance")


@dataclass(frozen=True, slots=True)
class NoOptions:
    """Of policies that take none."""


def read_options(kind: type[Options], options: Mapping[str, object]) -> Options:
    """Return the options over their defaults; unknown ones are refused with the nearest name."""
    known = {field.name: field for field in fields(kind)}
    for name in options:
        if name not in known:
            remedy = near_miss(name, known, otherwise="it takes {}")
            raise InputError(name="options", rule="be known", got=repr(name), remedy=remedy)
    for name, field in known.items():
        if field.default is MISSING and options.get(name) is None:
            raise InputError(name=name, rule="be given among its options", got="none")
    return cast("Callable[..., Options]", kind)(**options)


def check_switch(name: str, value: object) -> None:
    """Refuse what is neither true nor false."""
    if not isinstance(value, bool):
        raise InputError(name=name, rule="be true or false", got=repr(value))
