"""Clients that fail again and again, or left for good: tried less often, and forgotten in the end."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from fedtempo.checks import Booleans, Integers, Vector
from fedtempo.policies.policy import RoundContext, RoundReport
from fedtempo.policies.tempo import constants


@dataclass(eq=False, slots=True)
class DeparturesState:
    """What each client missed."""

    failures: Vector  # in a row, up to now
    missed: Vector  # draws that were due since it is absent

    @classmethod
    def at_first(cls, size: int) -> "DeparturesState":
        """Start with nobody gone."""
        failures, missed = np.zeros((2, size))
        return cls(failures, missed)


class Departures:
    """Who may have left."""

    def __init__(self, state: DeparturesState) -> None:
        """Go on from what was missed."""
        self.state = state

    def observe(self, report: RoundReport) -> None:
        """Count failures in a row."""
        members, failures = report.plan.members, self.state.failures
        failures[members] = np.where(report.failed, failures[members] + 1, 0)

    def patience(self, clients: Integers | slice) -> Vector:
        """Return how often to try clients: who fails is tried again half as often each time."""
        patience: Vector = np.exp2(-self.state.failures[clients])
        return patience

    def gone(self, context: RoundContext, draws: Vector, in_flight: Iterable[int]) -> Booleans:
        """Return who may have left for good, ``draws`` of each having been due since this was last asked."""
        state = self.state
        gone = state.failures >= constants.MISSED_BY_THE_GONE
        if context.available is not None:
            absent = ~context.available
            absent[list(in_flight)] = False
            state.missed = np.where(absent, state.missed + draws, 0.0)
            gone |= state.missed >= constants.MISSED_BY_THE_GONE
        return gone
