"""Whether training swings: what clients tell of their losses, each against the lowest that it has told."""

from typing import Any

import numpy as np

from fedtempo.checks import Vector
from fedtempo.policies.policy import RoundReport

# When a client tells again, its lowest loss has risen by so much for each round since: chance, or a longer step, may
# have made it, and losses along a path lie higher where steps are shorter. In a large fleet, of which each client tells
# once in a hundred rounds, little is left of it by then.
RISE, LONGEST_RISE = 1.03, 500  # and rounds after which nothing is left of it
LARGEST = 1e100  # infinite losses count as this


class Losses:
    """The last and the lowest training loss of each client, of those who tell any."""

    def __init__(self, data_share: Vector) -> None:
        """Start with nobody heard."""
        self.share, size = data_share, len(data_share)
        self.last, self.lowest = np.zeros(size), np.zeros(size)
        self.told = np.zeros(size, dtype=np.int64)  # in which round
        self.count = np.zeros(size, dtype=np.int64)  # how often

    @property
    def swing(self) -> float:
        """Last losses over the lowest, by data, of those who told twice at least; 1 where there are none."""
        again = np.flatnonzero(self.count > 1)
        lowest = float(self.share[again] @ self.lowest[again])
        return float(self.share[again] @ self.last[again]) / lowest if lowest else 1.0

    def observe(self, report: RoundReport) -> None:
        """Learn what those who came have told; what is no loss, or below 0, does not count."""
        told = ~report.failed & (report.mean_loss >= 0)
        members, losses = report.plan.members[told], np.minimum(report.mean_loss[told], LARGEST)
        rounds = report.round_index - self.told[members]
        lowest = self.lowest[members]  # 0 would never rise
        known = (self.count[members] > 0) & (lowest > 0) & (rounds < LONGEST_RISE)
        risen = lowest * RISE ** np.minimum(rounds, LONGEST_RISE)
        self.lowest[members] = np.where(known, np.minimum(risen, losses), losses)
        self.last[members], self.told[members] = losses, report.round_index
        self.count[members] += 1

    def state(self) -> dict[str, Any]:
        """Return all that was learned."""
        return {name: getattr(self, name).tolist() for name in ARRAYS}

    def restore(self, state: dict[str, Any]) -> None:
        """Take it up."""
        for name, value in state.items():
            setattr(self, name, np.array(value))


ARRAYS = ("last", "lowest", "told", "count")
