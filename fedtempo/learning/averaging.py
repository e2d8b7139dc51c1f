"""A running mean of the server's models, which is evaluated and returned while training goes on from the last one.

Late models circle around a minimum; their mean is nearer to it. With β the share of the past, the mean is
w̄ ← w̄ + max(1 - β, 1/n) (w - w̄) after n steps: of all models at first, later of about the last 1/(1 - β).
"""

from dataclasses import dataclass

import numpy as np

from fedtempo.learning.trainer import Buffers, Parameters


@dataclass(slots=True)
class AverageState:
    """The mean so far."""

    model: Parameters | None = None  # None: nothing was added
    buffers: Buffers | None = None
    steps: int = 0


class ServerAverage:
    """Follows the models of a run."""

    def __init__(self, past: float) -> None:
        """Take β; with 0 the mean is the last model."""
        self.past, self.state = past, AverageState()

    def add(self, model: Parameters, buffers: Buffers) -> None:
        """Take the model after one more step."""
        if not self.past:
            return
        state = self.state
        state.steps += 1
        if state.model is None or state.buffers is None:
            state.model, state.buffers = model, buffers
            return
        share = max(1 - self.past, 1 / state.steps)
        state.model = state.model + np.float32(share) * (model - state.model)
        state.buffers = state.buffers + share * (buffers - state.buffers)

    def model(self, last: Parameters) -> Parameters:
        """Return the mean, or the last model where there is none."""
        return last if self.state.model is None else self.state.model

    def buffers(self, last: Buffers) -> Buffers:
        """Return the mean of the buffers, or the last ones."""
        return last if self.state.buffers is None else self.state.buffers

    def reset(self) -> None:
        """Start again: training does."""
        self.state = AverageState()
