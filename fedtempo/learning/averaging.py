"""A running mean of the server's models, which is evaluated and returned while training goes on from the last one.

Late models circle around a minimum; their mean is nearer to it. With β the share of the past, the mean is
w̄ ← w̄ + max(1 - β, 1/n) (w - w̄) after n steps: of all models at first, later of about the last 1/(1 - β).

"auto" needs no β: with 1 - β = (η + 1)/(n + η) the weight of a model grows as n^η (Shamir and Zhang, 2013). The mean
lags behind by the share 1/(η + 2) of all steps, a tenth, however many there are. Steps along a memory of all clients
have little noise, so the last of them is returned as it is.
"""

from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

import numpy as np

from fedtempo.checks import InputError, check_fraction
from fedtempo.learning.trainer import Buffers, Parameters

Past: TypeAlias = float | Literal["auto"]
GROWTH = 8  # η: weighted sampling and FedBuff take 0.85 of their time with it (docs/decisions/0024-mean-of-models.md)


def check_past(name: str, past: Past) -> None:
    """Refuse what is no share of the past."""
    if isinstance(past, str):
        if past not in get_args(get_args(Past)[1]):
            raise InputError(name, "be from 0 to 1, or auto", repr(past))
    else:
        check_fraction(name, past)


@dataclass(slots=True)
class AverageState:
    """The mean so far."""

    model: Parameters | None = None  # None: nothing was added
    buffers: Buffers | None = None
    steps: int = 0


class ServerAverage:
    """Follows the models of a run."""

    def __init__(self, past: Past) -> None:
        """Take β; with 0 the mean is the last model."""
        self.past, self.state = past, AverageState()

    def add(self, model: Parameters, buffers: Buffers, *, along_memory: bool = False) -> None:
        """Take the model after one more step, and whether that went along a memory."""
        if not self.past:
            return
        if self.past == "auto" and along_memory:
            self.reset()
            return
        state = self.state
        state.steps += 1
        if state.model is None or state.buffers is None:
            state.model, state.buffers = model, buffers
            return
        n = state.steps
        share = (GROWTH + 1) / (n + GROWTH) if self.past == "auto" else max(1 - self.past, 1 / n)
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
