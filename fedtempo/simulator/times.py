"""Times that clients keep for a whole run: drawn from a distribution, or from benchmark scores of phones."""

import json
import math
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from pathlib import Path

import numpy as np

from fedtempo.checks import InputError, Vector, check_choice, check_count, check_nonnegative, check_positive
from fedtempo.files import read_errors

PARAMETERS = {
    "constant": ("value",),
    "exponential": ("mean",),
    "lognormal": ("median", "sigma"),
    "uniform": ("low", "high"),
}
MAY_BE_ZERO = {"value", "low", "sigma"}


@dataclass(frozen=True, slots=True)
class TimesSpec:
    """A distribution of seconds over clients; each kind has its own parameters (``PARAMETERS``) and takes no other."""

    kind: str
    _: KW_ONLY
    value: float | None = None  # constant
    mean: float | None = None  # exponential
    median: float | None = None  # lognormal
    sigma: float | None = None  # lognormal: the standard deviation of the logarithm
    low: float | None = None  # uniform
    high: float | None = None  # uniform

    def __post_init__(self) -> None:
        """Check that the kind is known, and that its parameters and no others are there."""
        check_choice("kind", self.kind, tuple(PARAMETERS))
        wanted = PARAMETERS[self.kind]
        for name in (name for names in PARAMETERS.values() for name in names):
            if name not in wanted and getattr(self, name) is not None:
                raise InputError(
                    name=f"{self.kind} times", rule=f"have {' and '.join(wanted)} alone", got=f"{name} too"
                )
        for name in wanted:
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                shown = "none" if value is None else repr(value)
                raise InputError(name=f"{self.kind} times", rule=f"have a number {name}", got=f"{shown}")
            (check_nonnegative if name in MAY_BE_ZERO else check_positive)(name, value)
        if self.low is not None and self.high is not None and self.low > self.high:
            raise InputError(name="low", rule="not exceed high", got=f"{self.low} and {self.high}")


def draw_times(spec: TimesSpec, num_clients: int, rng: np.random.Generator) -> Vector:
    """Draw the seconds of each client, independently; whether 0 is allowed is for the fleet to check."""
    size = check_count("num_clients", num_clients)
    draws: dict[str, Callable[..., Vector]] = {
        "constant": lambda value: np.full(size, float(value)),
        "exponential": lambda mean: rng.exponential(mean, size),
        "lognormal": lambda median, sigma: rng.lognormal(math.log(median), sigma, size),
        "uniform": lambda low, high: rng.uniform(low, high, size),
    }
    return draws[spec.kind](*(getattr(spec, name) for name in PARAMETERS[spec.kind]))


def benchmark_times(path: Path | str, num_clients: int, mean_time: float, rng: np.random.Generator) -> Vector:
    """Draw compute times of phones from a JSON file {phone: score}, a higher score being faster.

    Each client is one of the phones, all equally likely, and its time is inversely proportional to the phone's score.
    ``mean_time`` is the mean over the phones of the file, so a client's time does not depend on who else was drawn.
    """
    check_positive("mean_time", mean_time)
    with read_errors(path):
        slowness = 1 / _read_scores(Path(path))
    phone = rng.integers(slowness.size, size=check_count("num_clients", num_clients))
    return np.asarray((mean_time / slowness.mean() * slowness)[phone])


def _read_scores(path: Path) -> Vector:
    try:
        scores = json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise InputError(name="the file", rule="be JSON", got=f"{error.msg} in line {error.lineno}") from None
    if not isinstance(scores, dict) or not scores:
        raise InputError(
            name="the file", rule="hold an object {phone: score} with at least one phone", got="something else"
        )
    for phone, score in scores.items():
        if isinstance(score, bool) or not isinstance(score, (int, float)) or not 0 < score < math.inf:
            raise InputError(name="a score", rule="be a positive number", got=f"{score!r} for {phone!r}")
    return np.array(list(scores.values()), dtype=np.float64)
