"""The seam between the loop and a model: train some clients, evaluate, and nothing else."""

from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from fedtempo.checks import Integers, Vector

Parameters: TypeAlias = npt.NDArray[np.float32]  # a model as one flat vector, or several as rows
Buffers: TypeAlias = Vector  # what a model keeps beside its parameters and does not train, flat too; mostly none
NO_BUFFERS: Buffers = np.empty(0)


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class LocalWork:
    """Local SGD that some clients do in one round, one entry for each of them.

    Several models may be trained in one call, of several seeds for example: ``start`` says which one each client starts
    from. The result for a client depends on its own entries only, not on who else is in the call.
    """

    start: Integers  # row of the models that this client starts from
    rows: npt.NDArray[np.int64]  # (client, step, sample): rows of the training data
    local_steps: Integers  # E, at most the steps in ``rows``
    step_size: Vector  # η
    weight_decay: float = 0.0  # λ: adds λ w to each gradient


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class LocalResult:
    """What local SGD gives back, one entry for each client."""

    update: Parameters  # Δ_i = w_i - w
    largest_gradient_norm: Vector  # of the stochastic gradients along the path: the paper's G_i
    mean_gradient_norm: Vector
    mean_loss: Vector  # of the batches, along the path
    buffers: Buffers | None = None  # of each client after its steps, as rows; None: the model has none

    @classmethod
    def of_nobody(cls, num_parameters: int) -> "LocalResult":
        """Return the result of a round in which nobody trains."""
        nothing = np.empty(0)
        return cls(
            update=np.empty((0, num_parameters), dtype=np.float32), largest_gradient_norm=nothing,
            mean_gradient_norm=nothing, mean_loss=nothing,
        )  # fmt: skip

    def part(self, places: npt.NDArray[np.generic]) -> "LocalResult":
        """Return the results of some of the clients."""
        return LocalResult(
            update=self.update[places],
            largest_gradient_norm=self.largest_gradient_norm[places],
            mean_gradient_norm=self.mean_gradient_norm[places],
            mean_loss=self.mean_loss[places],
            buffers=None if self.buffers is None else self.buffers[places],
        )

    @property
    def update_norm(self) -> Vector:
        """‖Δ_i‖."""
        return norms(self.update)


def norms(rows: Parameters) -> Vector:
    """Return the norm of each row."""
    squares: Vector = np.einsum("ij,ij->i", rows, rows, dtype=np.float64)
    return np.sqrt(squares)


@dataclass(frozen=True, slots=True)
class Evaluation:
    """How good a model is."""

    loss: float  # F(w), over all training data
    accuracy: float  # on the held-out test data


class Trainer(Protocol):
    """A model and the data that it learns from."""

    num_parameters: int

    def initial_model(self, rng: np.random.Generator) -> Parameters:
        """Return w₀."""

    def train(self, models: Parameters, work: LocalWork) -> LocalResult:
        """Run local SGD for each client of ``work`` from its row of ``models``."""

    def evaluate(self, model: Parameters) -> Evaluation:
        """Return the loss over all training data and the accuracy on the test data."""

    def client_losses(self, model: Parameters, clients: Integers) -> Vector:
        """Return F_i(w) for some clients."""
