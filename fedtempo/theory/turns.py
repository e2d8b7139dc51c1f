"""Draws in turn: each client as often as its probability says, evenly spaced instead of by chance.

A client's credit grows by its π with each cohort that it could be part of, and falls by 1 when it is drawn; the largest
credits are next. What credits gain in all, they lose in all, so that nobody is drawn much more or less often than the
sum of its π: where π stays as it is, each comes about every 1/π cohorts. By chance the time since a client was last
drawn would be twice as long on the mean.

Who comes next follows from the past, so a weight p/π makes the sum over many cohorts right, not each by itself.
"""

from dataclasses import dataclass

import numpy as np

from fedtempo.checks import Booleans, Integers, Vector
from fedtempo.theory.inclusion import inclusion_with_sum

ROUNDING = 1e-9
TIE = 1e-6  # credits that differ by less come in random order
NEAR, DRAWS_AHEAD = 1_000, 250  # clients that are looked at in a large fleet, for so many draws
START = 4.0  # draws: credits start between minus and plus a half of what these bring, so that seeds differ


@dataclass(eq=False, slots=True)
class TurnsState:
    """What each client of a fleet is owed."""

    credit: Vector
    begun: bool = False  # whether credits have got their random start
    part: float = 0.0  # of a client, left over from cohorts whose π add up to no whole number
    near: Integers | None = None  # of a large fleet: those whose turn may come soon
    near_draws: int = 0  # among these since they were found
    others_gain: float = 0.0  # of credit, for each unit of q, since then

    @classmethod
    def at_first(cls, size: int) -> "TurnsState":
        """Owe nothing to anybody."""
        return cls(np.zeros(size))


class Turns:
    """Draws from a fleet, one cohort after another."""

    def __init__(self, state: TurnsState) -> None:
        """Go on from what is owed."""
        self.state = state

    def draw(self, available: Integers, inclusion: Vector, rng: np.random.Generator) -> Integers:
        """Draw ⌊Σπ⌋ or ⌈Σπ⌉ of the available clients; return their places in ``available``, in order."""
        state, due = self.state, float(inclusion.sum())
        total = state.part + due
        number = min(int(total + ROUNDING), len(available))
        state.part = max(total - number, 0.0)
        if not state.begun:
            self._begin(available, inclusion / max(due, ROUNDING), rng)
        credit = state.credit[available] + inclusion
        chosen = _largest(credit, number, rng)
        credit[chosen] -= 1.0
        state.credit[available] = credit
        return chosen

    def draw_near(
        self, q: Vector, number: int, free: Booleans | None, rng: np.random.Generator
    ) -> tuple[Integers, Vector] | None:
        """Draw so many of those who are free from a large fleet, again and again with one q, with few passes over it.

        Only those near their turn are looked at; ``settle`` before q changes, and before ``draw``. Return who was
        drawn, and their π; None if too few of the free are near.
        """
        state = self.state
        if not state.begun:
            self._begin(slice(None), q, rng)
        if state.near is None or state.near_draws >= DRAWS_AHEAD:
            self.settle(q)
            state.near = self._find_near(q, free, rng)
        near = state.near if free is None else state.near[free[state.near]]
        if len(near) < number:
            return None
        busy = _neither(free, state.near)
        others = 1.0 - float(q[state.near].sum()) - float(q[busy].sum())
        importance = q[near]
        if others > ROUNDING:  # as so many equal parts: none of them has π above 1
            importance = np.append(importance, np.full(number, others / number))
        inclusion = inclusion_with_sum(importance, number)
        if others > ROUNDING:
            gain = number * float(inclusion[-1]) / others
            state.others_gain += gain
            state.credit[busy] -= gain * q[busy]  # which ``settle`` will give to all who are not near
        state.near_draws += number
        state.credit[near] += inclusion[: len(near)]
        places = _largest(state.credit[near], number, rng)
        state.credit[near[places]] -= 1.0
        return near[places], inclusion[places]

    def _begin(self, clients: Integers | slice, q: Vector, rng: np.random.Generator) -> None:
        self.state.credit[clients] += START * q * (rng.random(len(q)) - 0.5)
        self.state.begun = True

    def _find_near(self, q: Vector, free: Booleans | None, rng: np.random.Generator) -> Integers:
        """Return those whose turn may come soon: enough who are free, and the busy who are as near."""
        soon = self.state.credit + DRAWS_AHEAD * q + TIE * rng.random(len(q))
        candidates = soon if free is None else soon[free]
        few = min(NEAR, len(candidates))
        return np.flatnonzero(soon >= np.partition(candidates, -few)[-few]) if few else np.empty(0, dtype=np.int64)

    def settle(self, q: Vector) -> None:
        """Give those who were not near what they gained with this q."""
        state = self.state
        if state.near is not None:
            gained = state.others_gain * q
            gained[state.near] = 0.0
            state.credit += gained
            state.near, state.near_draws, state.others_gain = None, 0, 0.0


def _neither(free: Booleans | None, near: Integers) -> Integers:
    """Return the clients that are neither free nor near."""
    if free is None:
        return np.empty(0, dtype=np.int64)
    busy = ~free
    busy[near] = False
    return np.flatnonzero(busy)


def _largest(credit: Vector, number: int, rng: np.random.Generator) -> Integers:
    """Return the places of the largest, in order."""
    if number == 0 or number >= len(credit):
        return np.arange(min(number, len(credit)))
    tied = credit + TIE * rng.random(len(credit))
    if number == 1:
        return np.array([tied.argmax()])
    return np.sort(np.argpartition(tied, -number)[-number:])
