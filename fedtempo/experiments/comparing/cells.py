"""What a policy took, as cells of tables: the text with its bound or interval, and the number behind it."""

import math
from dataclasses import dataclass

from fedtempo.experiments.comparing.amounts import amount, multiple, not_reached, ratio_text
from fedtempo.experiments.comparing.statistics import Times, ratio
from fedtempo.tables.table import EMPTY, Cell, as_cell


@dataclass(frozen=True, slots=True)
class Factor:
    """How many times longer one policy took than another."""

    value: float
    bound: bool  # runs of one of them missed the target
    text: str  # without the interval
    interval: str  # "" where there is none

    @property
    def cell(self) -> Cell:
        """The factor, its interval in brackets."""
        text = f"{self.text} ({self.interval})" if self.interval else self.text
        return as_cell(text) if self.bound else Cell(text, self.value)


def factor(times: Times, reference: Times) -> Factor:
    """Return how many times longer one took than the reference, or a bound where runs missed the target."""
    value, low, high = ratio(times, reference)
    missed = times.missed > 0, reference.missed > 0
    text = multiple(value, numerator_missed=missed[0], denominator_missed=missed[1])
    known = not (any(missed) or math.isnan(low))
    return Factor(value, any(missed), text, f"{ratio_text(low)}–{ratio_text(high)}" if known else "")


def mean_seconds(times: Times) -> Cell:
    """Return mean ± deviation, or what the mean exceeds where runs missed the target."""
    mean = amount(times.mean)
    if times.missed:
        return as_cell(f"> {mean}")
    return Cell(mean if times.seconds.size == 1 else f"{mean} ± {amount(times.deviation, times.mean)}", times.mean)


def seconds(times: Times) -> Cell:
    """Return mean ± deviation, or a bound where runs missed the target, with how many did."""
    cell, missed = mean_seconds(times), not_reached(times.missed, times.seconds.size, times.diverged)
    return as_cell(f"{cell.text}{missed}") if missed else cell


def rounds(times: Times) -> Cell:
    """Return the mean number of rounds, or what it exceeds where runs missed the target."""
    mean = float(times.rounds.mean())
    return as_cell(f"> {mean:,.0f}") if times.missed else Cell(f"{mean:,.0f}", mean)


def pilots(times: Times) -> Cell:
    """Return the mean seconds of the pilots."""
    if times.oracle:
        return as_cell("taken for granted")
    mean = float(times.pilots.mean())
    return Cell(amount(mean) if has_pilots(times) else "none", mean)


def has_pilots(times: Times) -> bool:
    """Return whether a policy had pilots."""
    return bool(times.pilots.any())


def interval(times: Times) -> Cell:
    """Return the 95 % interval of the mean, where there is one."""
    if times.interval is None:
        return EMPTY
    low, high = (amount(end, times.mean) for end in times.interval)
    return as_cell(f"{low}–{high}" if times.interval[0] > 0 else f"up to {high}")
