"""Whether clients' losses climb: steps are too long then, though clients go on to report what they reported before."""

import math
from dataclasses import dataclass

import numpy as np

from fedtempo.checks import Vector
from fedtempo.policies.policy import RoundReport


@dataclass(eq=False, slots=True)
class LossesState:
    """What clients' losses were."""

    last: Vector  # mean along the path of each client's last update; NaN: not known
    climb: float = 0.0  # logarithm of their mean by data over the least that it was

    @classmethod
    def at_first(cls, size: int) -> "LossesState":
        """Start with no reports."""
        return cls(np.full(size, np.nan))


class Losses:
    """Follows the mean loss of clients along their paths, each when it last reported.

    Who reports for the first time changes who is in the mean, not how far it has climbed.
    """

    def __init__(self, data_share: Vector, state: LossesState) -> None:
        """Go on from what was reported."""
        self.share, self.state = data_share, state

    def observe(self, report: RoundReport) -> None:
        """Learn the losses of those who reported them."""
        state, known = self.state, ~report.failed & np.isfinite(report.mean_loss)
        clients, losses = report.plan.members[known], report.mean_loss[known]
        again = np.isfinite(state.last[clients])
        if again.any():
            whole = float(self.share @ np.nan_to_num(state.last))
            grown = float(self.share[clients[again]] @ (losses - state.last[clients])[again])
            if whole > 0 and whole + grown > 0:
                state.climb = max(state.climb + math.log1p(grown / whole), 0.0)
        state.last[clients] = losses
