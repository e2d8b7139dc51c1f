"""What rounding adds to uploads: the noise ω of each client at each size, as far as clients have reported it."""

from dataclasses import dataclass

import numpy as np

from fedtempo.checks import Vector
from fedtempo.policies.policy import RoundReport


@dataclass(eq=False, slots=True)
class UploadNoiseState:
    """What clients reported of it; empty where tempo chooses no sizes."""

    own: Vector | None = None  # ω at each size, when the client last reported, as rows; NaN: it never did
    usual: Vector | None = None  # ω at each size over all reports so far, by their squared norms
    square: float = 0.0  # sum of these

    @classmethod
    def at_first(cls, clients: int, expected: Vector) -> "UploadNoiseState":
        """Start from what is expected of any update."""
        return cls(np.full((clients, expected.size), np.nan), expected.copy()) if expected.size else cls()


class UploadNoise:
    """ω of every client: its own where it has reported, the usual one of others where it has not."""

    def __init__(self, state: UploadNoiseState) -> None:
        """Go on from what was reported."""
        self.state = state

    @property
    def chooses(self) -> bool:
        """Whether tempo chooses the sizes of uploads."""
        return self.state.own is not None

    @property
    def rows(self) -> Vector:
        """ω of each client at each size, as rows."""
        own, usual = self.state.own, self.state.usual
        if own is None or usual is None:
            raise ValueError("noise is known where tempo chooses sizes")
        rows: Vector = np.where(np.isnan(own), usual, own)
        return rows

    def observe(self, report: RoundReport) -> None:
        """Learn from those who reported."""
        state = self.state
        if state.own is None or state.usual is None or report.noise is None:
            return
        rounding = report.noise_of_uploads
        squares = report.update_norm**2 / (1.0 if rounding is None else 1 + rounding)
        known = ~report.failed & np.isfinite(report.noise).all(axis=1) & (squares > 0) & np.isfinite(squares)
        if not known.any():
            return
        seen, weights = report.noise[known], squares[known]
        state.own[report.plan.members[known]] = seen
        total = state.square + float(weights.sum())
        state.usual = (state.square * state.usual + weights @ seen) / total
        state.square = total
