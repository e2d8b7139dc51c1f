"""Draws in turn: each client as often as its probability says, evenly spaced instead of by chance.

A client's credit grows by its π with each cohort that it could be part of, and falls by 1 when it is drawn; the largest
credits are next. What credits gain in all, they lose in all, so that nobody is drawn much more or less often than the
sum of its π: where π stays as it is, each comes about every 1/π cohorts. By chance the time since a client was last
drawn would be twice as long on the mean, and what a server remembers of it twice as old.

Who comes next follows from the past, so a weight p/π makes the sum over many cohorts right, not each by itself.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from fedtempo.checks import Integers, Vector

ROUNDING = 1e-9
TIE = 1e-6  # credits that differ by less come in random order
NEAR, DRAWS_AHEAD = 1_000, 100  # clients that are looked at in a large fleet, by their credit after so many draws


class Turns:
    """What each client of a fleet is owed."""

    def __init__(self, size: int) -> None:
        """Owe nothing to anybody."""
        self.credit = np.zeros(size)
        self.part = 0.0  # of a client, left over from cohorts whose π add up to no whole number
        self.near: Integers | None = None  # those of a large fleet whose turn may come while q stays as it is
        self.owed = 0  # draws with that q, which credits do not hold yet

    def draw(self, there: Integers, inclusion: Vector, rng: np.random.Generator) -> Integers:
        """Draw ⌊Σπ⌋ or ⌈Σπ⌉ of those who are there; return their places in ``there``, in order."""
        total = self.part + float(inclusion.sum())
        number = min(int(total + ROUNDING), len(there))
        self.part = max(total - number, 0.0)
        self.credit[there] += inclusion
        chosen = _largest(self.credit[there], number, rng)
        self.credit[there[chosen]] -= 1.0
        return chosen

    def draw_near(
        self, q: Vector, number: int, free: npt.NDArray[np.bool_] | None, rng: np.random.Generator
    ) -> tuple[Integers, Vector] | None:
        """Draw so many of those who are free from a large fleet, again and again with one q, without passes over it.

        Only those are looked at whose turn may come meanwhile; ``settle`` before q changes, and before ``draw``. Return
        who was drawn, and their π; None if too few of the free are near.
        """
        if self.near is None:
            soon = self.credit + DRAWS_AHEAD * q
            few = min(NEAR, len(q))
            self.near = np.sort(np.argpartition(soon, -few)[-few:])
        near = self.near if free is None else self.near[free[self.near]]
        if len(near) < number:
            return None
        self.owed += number
        chosen = near[_largest(self.credit[near] + self.owed * q[near], number, rng)]
        self.credit[chosen] -= 1.0
        busy = 0.0 if free is None else float(q[np.flatnonzero(~free)].sum())
        return chosen, np.minimum(number * q[chosen] / max(1 - busy, ROUNDING), 1.0)

    def settle(self, q: Vector) -> None:
        """Give everyone what it gained with this q."""
        if self.near is not None:
            self.credit += self.owed * q
            self.near, self.owed = None, 0

    def state(self) -> dict[str, Any]:
        """Return what is owed."""
        near = None if self.near is None else self.near.tolist()
        return {"credit": self.credit.tolist(), "part": self.part, "near": near, "owed": self.owed}

    def restore(self, state: dict[str, Any]) -> None:
        """Take it up."""
        self.credit, self.part, self.owed = np.array(state["credit"]), state["part"], state["owed"]
        self.near = None if state["near"] is None else np.array(state["near"], dtype=np.int64)


def _largest(credit: Vector, number: int, rng: np.random.Generator) -> Integers:
    """Return the places of the largest, in order."""
    if number >= len(credit):
        return np.arange(len(credit))
    tied = credit + TIE * rng.random(len(credit))
    return np.sort(np.argpartition(tied, -number)[-number:]) if number else np.empty(0, dtype=np.int64)
