"""What input must satisfy, and the one sentence a person reads when it does not."""

import difflib
import math
import re
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Vector: TypeAlias = npt.NDArray[np.float64]
Integers: TypeAlias = npt.NDArray[np.int64]
Booleans: TypeAlias = npt.NDArray[np.bool_]

EXTRAS = {  # that bring packages, by the names of these, also those that they are imported by
    "PIL": "report",
    "cvxpy": "cvx",
    "datasets": "datasets",
    "flwr": "flower",
    "flwr-datasets": "datasets",
    "flwr_datasets": "datasets",
    "jinja2": "report",
    "matplotlib": "report",
    "pandas": "report",
    "pillow": "report",
    "plotly": "report",
    "pyarrow": "report",
    "ray": "ray",
    "torch": "torch",
}
SETTING = re.compile(r"\{([a-z][a-z0-9_]*)\}")  # the name of a setting in a rule or a remedy


class InputError(ValueError):
    """Input that breaks a stated rule: what it is called, the rule, what was there instead, and what to do.

    Its sentence is "<name> must <rule>, got <got>; <remedy>", after the places where it was found. ``got`` is shown as
    it is where it is text, so quote a user's own text by ``repr``; other values are shown by theirs. A setting that the
    rule or the remedy mentions stands in braces, as in "give {model_size} too": whoever shows the sentence may spell it
    as its reader knows it, such as --model-size.
    """

    def __init__(
        self, name: object, rule: str = "", got: object = None, remedy: str = "", *, places: tuple[str, ...] = ()
    ) -> None:
        """Keep the parts of the sentence; ``got`` None says nothing of what was there.

        Without a rule, ``name`` is the whole sentence, as callers elsewhere may have it.
        """
        super().__init__(name, rule, got, remedy)
        self.name, self.rule, self.got, self.remedy, self.places = str(name), rule, got, remedy, places

    def __str__(self) -> str:
        """Return the sentence with names as they are."""
        return self.sentence()

    def __reduce__(self) -> tuple[Callable[..., "InputError"], tuple[object, ...]]:
        """Let it pass from one process to another."""
        return _again, (type(self), self.args, self.places)

    def sentence(self, spell: Callable[[str], str] = str) -> str:
        """Return what a person reads; ``spell`` says how its reader knows a setting of a name."""
        got = "" if self.got is None else f", got {self.got if isinstance(self.got, str) else repr(self.got)}"
        remedy = f"; {_spelled(self.remedy, spell)}" if self.remedy else ""
        return "".join(f"{place}: " for place in self.places) + self._rule(spell) + got + remedy

    def within(self, place: object) -> "InputError":
        """Return the same error, found in a place: a file, a table of it, a policy."""
        return _again(type(self), self.args, (str(place), *self.places))

    def _rule(self, spell: Callable[[str], str]) -> str:
        name = self.name if self.places else spell(self.name)  # in a file, it is the file's own
        return f"{name} must {_spelled(self.rule, spell)}" if self.rule else self.name


class MissingDependencyError(InputError):
    """An optional package that the caller asked for is not installed."""

    def __init__(self, package: str, purpose: str, *, places: tuple[str, ...] = ()) -> None:
        """Say which extra brings the package."""
        super().__init__(purpose, f"have {package} installed", remedy=how_to_install(package), places=places)
        self.package, self.args = package, (package, purpose)

    def _rule(self, spell: Callable[[str], str]) -> str:
        return f"{spell(self.name)} needs {self.package}, which is not installed"


def how_to_install(package: str) -> str:
    """Return a remedy that names the extra which brings a package, "" where none does."""
    extra = EXTRAS.get(package)
    return f"run: pip install 'fedtempo[{extra}]'" if extra else ""


def _again(kind: type[InputError], arguments: tuple[Any, ...], places: tuple[str, ...]) -> InputError:
    return kind(*arguments, places=places)


def _spelled(text: str, spell: Callable[[str], str]) -> str:
    return SETTING.sub(lambda match: spell(match[1]), text)


def near_miss(name: str, known: Iterable[str], otherwise: str = "known are {}") -> str:
    """Return a remedy for a name that is none of those known: the nearest, or all of them."""
    known = list(known)
    near = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {near[0]!r}?" if near else otherwise.format(", ".join(known) or "none")


def check_count(name: str, value: int) -> int:
    """Return a whole number of at least 1."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
        raise InputError(name=name, rule="be a whole number of at least 1", got=repr(value))
    return int(value)


def check_seed(name: str, value: int) -> int:
    """Return a whole number of at least 0, such as random streams start from."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 0:
        raise InputError(name=name, rule="be a whole number of at least 0", got=repr(value))
    return int(value)


def check_positive(name: str, value: float) -> float:
    """Return a finite number above 0."""
    if not (_is_finite(value) and value > 0):
        raise InputError(name=name, rule="be positive and finite", got=repr(value))
    return float(value)


def check_nonnegative(name: str, value: float) -> float:
    """Return a finite number of at least 0."""
    if not (_is_finite(value) and value >= 0):
        raise InputError(name=name, rule="be zero or positive, and finite", got=repr(value))
    return float(value)


def check_finite(name: str, value: float) -> float:
    """Return a finite number."""
    if not _is_finite(value):
        raise InputError(name=name, rule="be a finite number", got=repr(value))
    return float(value)


def check_fraction(name: str, value: float) -> float:
    """Return a number from 0 to 1."""
    if not (_is_finite(value) and 0 <= value <= 1):
        raise InputError(name=name, rule="lie between 0 and 1", got=repr(value))
    return float(value)


def _is_finite(value: object) -> bool:
    return isinstance(value, (int, float, np.number)) and not isinstance(value, bool) and math.isfinite(value)


def as_numbers(name: str, values: npt.ArrayLike) -> Vector:
    """Return an array of numbers, of any shape."""
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        array = None
    if array is None or values is None:
        raise InputError(name=name, rule="hold numbers", got=f"{str(values)[:60]}")
    return array


def as_integers(name: str, values: npt.ArrayLike) -> Integers:
    """Return an array of whole numbers, such as the numbers of clients."""
    array = np.asarray(values)
    if array.size == 0:
        return array.astype(np.int64)
    if array.dtype.kind not in "iu":
        raise InputError(name=name, rule="hold whole numbers", got=f"{array.dtype}")
    return array.astype(np.int64, copy=False)


def check_choice(name: str, value: str, choices: tuple[str, ...]) -> str:
    """Return one of the choices."""
    if value not in choices:
        raise InputError(name=name, rule=f"be one of {', '.join(choices)}", got=repr(value))
    return value


def first_violation(values: Vector, *, allow_zero: bool) -> int | None:
    """Return the index of the first value that is not finite or has the wrong sign, None where all are right.

    The extremes decide at first, since NaN is an extreme of any array that holds it: two passes, no temporary array.
    """
    low, high = values.min(), values.max()
    if (low > 0 or (allow_zero and low == 0)) and high < np.inf:
        return None
    right = np.isfinite(values) & ((values >= 0) if allow_zero else (values > 0))
    return int(np.argmin(right))
