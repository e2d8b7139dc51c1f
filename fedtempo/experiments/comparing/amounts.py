"""Numbers as a person reads them: three digits or more, bounds marked where runs missed a target."""

import math
from collections.abc import Mapping

from fedtempo.tables.table import NOTHING

UNITS = {"max_rounds": "rounds", "max_time": "s"}  # of the settings that end a run


def amount(value: float, like: float | None = None) -> str:
    """Return a number with three digits or more, as many decimals as ``like`` has."""
    scale = abs(value if like is None else like)
    decimals = 0 if scale == 0 else min(max(0, 2 - math.floor(math.log10(scale))), 6)
    return f"{value:,.{decimals}f}"


def ratio_text(value: float) -> str:
    """Return a ratio with two decimals, or as many digits as its size calls for."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}" if value >= 0.1 else f"{value:.2g}"


def multiple(value: float, *, numerator_missed: bool = False, denominator_missed: bool = False) -> str:
    """Return a ratio of times, or how it is bounded where runs of one side missed; of both, nothing is known of it."""
    if numerator_missed and denominator_missed:
        return NOTHING
    return f"{'> ' if numerator_missed else '< ' if denominator_missed else ''}{ratio_text(value)} ×"


def not_reached(missed: int, runs: int, diverged: int = 0) -> str:
    """Return what follows a bound: how many runs missed the target, and how many of these diverged."""
    if missed == diverged:
        return f", {diverged} of {runs} diverged" if diverged else ""
    return f", {missed} of {runs} not reached" + (f", {diverged} diverged" if diverged else "")


def limits_in_words(stop: Mapping[str, float | None]) -> str:
    """Return for how long runs train at most, by the settings that end them."""
    return " or ".join(f"{stop[name]:,g} {unit}" for name, unit in UNITS.items() if stop.get(name) is not None)


def count(number: int, noun: str) -> str:
    """Return a number of things in words."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
