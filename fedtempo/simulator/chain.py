"""Markov chains over the rounds of a run.

A chain is played from round 0 and its latest round is kept, so that rounds in ascending order cost one step each. A run
that resumes at round r pays r steps once, and a round before the latest starts over: slower, with the same answer.
"""

from collections.abc import Callable
from typing import Generic, TypeVar

from fedtempo.checks import InputError

Value = TypeVar("Value")


class Chain(Generic[Value]):
    """A value for each round, which follows from that of the round before."""

    def __init__(self, first: Callable[[], Value], following: Callable[[Value, int], Value]) -> None:
        """Take how the value of round 0 is drawn, and that of a round from the one before."""
        self._first, self._following = first, following
        self._latest: tuple[int, Value] | None = None

    def at(self, round_index: int) -> Value:
        """Return the value of a round; the same question always gets the same answer."""
        if round_index < 0:
            raise InputError(name="round_index", rule="be zero or positive", got=round_index)
        latest = self._latest
        reached, value = latest if latest is not None and latest[0] <= round_index else (0, self._first())
        for passed in range(reached + 1, round_index + 1):
            value = self._following(value, passed)
        self._latest = round_index, value
        return value
