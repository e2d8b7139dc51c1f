"""What input must satisfy, and the one sentence a person reads when it does not."""

import math
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Vector: TypeAlias = npt.NDArray[np.float64]
Integers: TypeAlias = npt.NDArray[np.int64]


class InputError(ValueError):
    """Input that breaks a stated rule. The message is one sentence: the name, the rule, the value, what to do."""


class MissingDependencyError(InputError):
    """An optional package that the caller asked for is not installed."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        """Say which extra brings the package."""
        super().__init__(
            f"{purpose} needs {package}, which is not installed; run in fedtempo's folder: "
            f"pip install -c constraints.txt '.[{extra}]'"
        )


def check_count(name: str, value: int) -> int:
    """Return a whole number of at least 1."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
        raise InputError(f"{name} must be a whole number of at least 1, got {value!r}")
    return int(value)


def check_seed(name: str, value: int) -> int:
    """Return a whole number of at least 0, such as random streams start from."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 0:
        raise InputError(f"{name} must be a whole number of at least 0, got {value!r}")
    return int(value)


def check_positive(name: str, value: float) -> float:
    """Return a finite number above 0."""
    if not (_is_finite(value) and value > 0):
        raise InputError(f"{name} must be positive and finite, got {value!r}")
    return float(value)


def check_nonnegative(name: str, value: float) -> float:
    """Return a finite number of at least 0."""
    if not (_is_finite(value) and value >= 0):
        raise InputError(f"{name} must be zero or positive, and finite, got {value!r}")
    return float(value)


def check_fraction(name: str, value: float) -> float:
    """Return a number from 0 to 1."""
    if not (_is_finite(value) and 0 <= value <= 1):
        raise InputError(f"{name} must lie between 0 and 1, got {value!r}")
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
        raise InputError(f"{name} must hold numbers, got {str(values)[:60]}")
    return array


def as_integers(name: str, values: npt.ArrayLike) -> Integers:
    """Return an array of whole numbers, such as the numbers of clients."""
    array = np.asarray(values)
    if array.size == 0:
        return array.astype(np.int64)
    if array.dtype.kind not in "iu":
        raise InputError(f"{name} must hold whole numbers, got {array.dtype}")
    return array.astype(np.int64, copy=False)


def check_choice(name: str, value: str, choices: tuple[str, ...]) -> str:
    """Return one of the choices."""
    if value not in choices:
        raise InputError(f"{name} must be one of {', '.join(choices)}, got {value!r}")
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
