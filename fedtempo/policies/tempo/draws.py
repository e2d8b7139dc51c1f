"""How tempo draws clients: in turn, or by chance where each step is to be unbiased."""

import numpy as np

from fedtempo.checks import Integers, Vector
from fedtempo.policies.policy import RoundContext
from fedtempo.policies.tempo import constants
from fedtempo.theory.inclusion import DrawsFromMany, draw_systematically, inclusion_with_sum
from fedtempo.theory.turns import Turns


class Draws:
    """Draws from a fleet; in turn, they follow from the credits of ``turns``."""

    def __init__(self, *, in_turn: bool) -> None:
        """Choose how to draw."""
        self.in_turn = in_turn
        self._prepared: DrawsFromMany | None = None  # by chance from a large fleet, for the last q

    def draw(self, q: Vector, number: int, turns: Turns, context: RoundContext) -> tuple[Integers, Vector]:
        """Draw so many available clients; return them, and the inclusion probabilities π that they had."""
        if len(q) > (constants.LARGE_FLEET_IN_TURN if self.in_turn else constants.LARGE_FLEET_BY_CHANCE):
            if self.in_turn:
                found = turns.draw_near(q, number, context.available, context.rng)
            else:
                found = self._prepare(q).draw(number, context.available, context.rng)
            if found is not None:
                return found
            turns.settle(q)
        available = context.available_clients(len(q))
        inclusion = inclusion_with_sum(q[available], number)
        chosen = self.choose(available, inclusion, turns, context.rng)
        return available[chosen], inclusion[chosen]

    def choose(self, available: Integers, inclusion: Vector, turns: Turns, rng: np.random.Generator) -> Integers:
        """Draw clients with inclusion probabilities π; return their places in ``available``."""
        return turns.draw(available, inclusion, rng) if self.in_turn else draw_systematically(inclusion, rng)

    def _prepare(self, q: Vector) -> DrawsFromMany:
        if self._prepared is None or self._prepared.q is not q:
            self._prepared = DrawsFromMany(q)
        return self._prepared
