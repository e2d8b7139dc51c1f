"""Draws in turn: each client as often as its probability says, evenly spaced instead of by chance.

A client's credit grows by its π with each cohort that it could be part of, and falls by 1 when it is drawn; the largest
credits are next. What credits gain in all, they lose in all, so that nobody is drawn much more or less often than the
sum of its π: where π stays as it is, each comes about every 1/π cohorts. By chance the time since a client was last
drawn would be twice as long on the mean.

Who comes next follows from the past, so a weight p/π makes the sum over many cohorts right, not each by itself.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from fedtempo.checks import Integers, Vector
from fedtempo.theory.inclusion import inclusion_with_sum

ROUNDING = 1e-9
TIE = 1e-6  # credits that differ by less come in random order
NEAR, DRAWS_AHEAD = 1_000, 250  # clients that are looked at in a large fleet, for so many draws
START = 4.0  # draws: credits start between minus and plus a half of what these bring, so that seeds differ
NUMBERS = ("part", "drawn", "owed", "begun")


class Turns:
    """What each client of a fleet is owed."""

    def __init__(self, size: int) -> None:
        """Owe nothing to anybody."""
        self.credit, self.begun = np.zeros(size), False
        self.part = 0.0  # of a client, left over from cohorts whose π add up to no whole number
        # Of a large fleet: those whose turn may come soon, draws among them, and what others gain for each unit of q.
        self.near: Integers | None = None
        self.drawn, self.owed = 0, 0.0

    def draw(self, there: Integers, inclusion: Vector, rng: np.random.Generator) -> Integers:
        """Draw ⌊Σπ⌋ or ⌈Σπ⌉ of those who are there; return their places in ``there``, in order."""
        due = float(inclusion.sum())
        total = self.part + due
        number = min(int(total + ROUNDING), len(there))
        self.part = max(total - number, 0.0)
        if not self.begun:
            self._begin(there, inclusion / max(due, ROUNDING), rng)
        credit = self.credit[there] + inclusion
        chosen = _largest(credit, number, rng)
        credit[chosen] -= 1.0
        self.credit[there] = credit
        return chosen

    def draw_near(
        self, q: Vector, number: int, free: npt.NDArray[np.bool_] | None, rng: np.random.Generator
    ) -> tuple[Integers, Vector] | None:
        """Draw so many of those who are free from a large fleet, again and again with one q, with few passes over it.

        Only those near their turn are looked at; ``settle`` before q changes, and before ``draw``. Return who was
        drawn, and their π; None if too few of the free are near.
        """
        if not self.begun:
            self._begin(slice(None), q, rng)
        if self.near is None or self.drawn >= DRAWS_AHEAD:
            self.settle(q)
            self.near = self._find_near(q, free, rng)
        near = self.near if free is None else self.near[free[self.near]]
        if len(near) < number:
            return None
        away: Integers = np.empty(0, dtype=np.int64)  # neither near nor free
        if free is not None:
            passed_over = ~free
            passed_over[self.near] = False
            away = np.flatnonzero(passed_over)
        others = 1.0 - float(q[self.near].sum()) - float(q[away].sum())
        importance = q[near]
        if others > ROUNDING:  # as so many equal parts: none of them has π above 1
            importance = np.append(importance, np.full(number, others / number))
        inclusion = inclusion_with_sum(importance, number)
        if others > ROUNDING:
            gain = number * float(inclusion[-1]) / others
            self.owed += gain
            self.credit[away] -= gain * q[away]  # which ``settle`` will give to all who are not near
        self.drawn += number
        self.credit[near] += inclusion[: len(near)]
        places = _largest(self.credit[near], number, rng)
        self.credit[near[places]] -= 1.0
        return near[places], inclusion[places]

    def _begin(self, there: Integers | slice, q: Vector, rng: np.random.Generator) -> None:
        self.credit[there] += START * q * (rng.random(len(q)) - 0.5)
        self.begun = True

    def _find_near(self, q: Vector, free: npt.NDArray[np.bool_] | None, rng: np.random.Generator) -> Integers:
        """Return those whose turn may come soon: enough who are free, and the busy who are as near."""
        soon = self.credit + DRAWS_AHEAD * q + TIE * rng.random(len(q))
        candidates = soon if free is None else soon[free]
        few = min(NEAR, len(candidates))
        return np.flatnonzero(soon >= np.partition(candidates, -few)[-few]) if few else np.empty(0, dtype=np.int64)

    def settle(self, q: Vector) -> None:
        """Give those who were not near what they gained with this q."""
        if self.near is not None:
            gained = self.owed * q
            gained[self.near] = 0.0
            self.credit += gained
            self.near, self.drawn, self.owed = None, 0, 0.0

    def state(self) -> dict[str, Any]:
        """Return what is owed."""
        near = None if self.near is None else self.near.tolist()
        return {"credit": self.credit.tolist(), "near": near} | {name: getattr(self, name) for name in NUMBERS}

    def restore(self, state: dict[str, Any]) -> None:
        """Take it up."""
        self.credit = np.array(state["credit"])
        self.near = None if state["near"] is None else np.array(state["near"], dtype=np.int64)
        for name in NUMBERS:
            setattr(self, name, state[name])


def _largest(credit: Vector, number: int, rng: np.random.Generator) -> Integers:
    """Return the places of the largest, in order."""
    if number == 0 or number >= len(credit):
        return np.arange(min(number, len(credit)))
    tied = credit + TIE * rng.random(len(credit))
    if number == 1:
        return np.array([tied.argmax()])
    return np.sort(np.argpartition(tied, -number)[-number:])
