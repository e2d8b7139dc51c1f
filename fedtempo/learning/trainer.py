"""The seam between the loop and a model: train some clients, evaluate, and nothing else."""

from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias, cast, get_args

import numpy as np
import numpy.typing as npt

from fedtempo.checks import Integers, Vector

Parameters: TypeAlias = npt.NDArray[np.float32]  # a model as one flat vector, or several as rows
Buffers: TypeAlias = Vector  # what a model keeps beside its parameters and does not train, flat too; mostly none
NO_BUFFERS: Buffers = np.empty(0)
LocalSchedule = Literal["constant", "linear", "cosine"]
LOCAL_SCHEDULES: tuple[LocalSchedule, ...] = get_args(LocalSchedule)


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class LocalWork:
    """Local SGD that some clients do in one round, one entry for each of them.

    Several models may be trained in one call, of several seeds for example: ``start`` says which one each client starts
    from. The result for a client depends on its own entries only, not on who else is in the call.

    A step takes the stochastic gradient with λ w, shortens it to ``clip_norm``, takes a share of that and adds a shift,
    walks along it, and then moves towards the model w₀ that the client started from: w ← w₀ + (w - w₀) / (1 + η μ).
    That is the implicit step of FedProx's term μ/2 ‖w - w₀‖², which is stable for any μ.
    """

    start: Integers  # row of the models that this client starts from
    rows: npt.NDArray[np.int64]  # (client, step, sample): rows of the training data
    local_steps: Integers  # E, at most the steps in ``rows``
    step_size: Vector  # η
    weight_decay: float = 0.0  # λ: adds λ w to each gradient
    clip_norm: float = 0.0  # longest gradient that a step follows; 0: any
    proximal: float = 0.0  # μ of FedProx
    local_schedule: LocalSchedule = "constant"  # of η over the local steps
    buffers: Buffers | None = None  # of the models, as rows; None: there are none, or those at the start
    gradient_share: float = 1.0  # of the gradient in a step, where something is added to it
    shifts: Parameters | None = None  # what is added, as rows: a share of the server's last direction, for instance
    shift_of: Integers | None = None  # row of the shifts for each client; None: the first

    @property
    def step_sizes(self) -> Vector:
        """η of each client's steps, (client, step)."""
        done = np.arange(self.rows.shape[1]) / self.local_steps[:, np.newaxis]  # share of the steps before
        return self.step_size[:, np.newaxis] * schedule_factor(self.local_schedule, done)

    @property
    def plain(self) -> bool:
        """Whether steps follow gradients as they are."""
        return not (self.clip_norm or self.proximal) and self.shifts is None


def schedule_factor(schedule: LocalSchedule, done: Vector) -> Vector:
    """Return the factor of η after a share of the local steps; over E steps a falling one adds up to (E + 1)/2."""
    if schedule == "constant":
        return np.ones_like(done)
    share = np.minimum(done, 1.0)
    return 1.0 - share if schedule == "linear" else (1.0 + np.cos(np.pi * share)) / 2.0


def whole_steps(schedule: LocalSchedule, local_steps: Integers) -> Vector:
    """Return the sum of these factors over E local steps."""
    steps = local_steps.astype(np.float64)
    return steps if schedule == "constant" else (steps + 1) / 2


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class LocalResult:
    """What local SGD gives back, one entry for each client.

    Norms are those of stochastic gradients, with weight decay: before they are clipped, and without the proximal term.
    Updates are as they arrive: rounded, where uploads are.
    """

    update: Parameters  # Δ_i = w_i - w
    largest_gradient_norm: Vector  # of the stochastic gradients along the path: the paper's G_i
    mean_gradient_norm: Vector
    mean_loss: Vector  # of the batches, along the path
    buffers: Buffers | None = None  # of each client after its steps, as rows; None: the model has none
    noise: Vector | None = None  # ω of uploads of each size, as rows; None: not measured
    rest: Parameters | None = None  # what each did not send, as rows; None: it is forgotten

    @classmethod
    def of_nobody(cls, num_parameters: int, sizes: int = 0) -> "LocalResult":
        """Return the result of a round in which nobody trains."""
        nothing = np.empty(0)
        return cls(
            update=np.empty((0, num_parameters), dtype=np.float32), largest_gradient_norm=nothing,
            mean_gradient_norm=nothing, mean_loss=nothing, noise=np.empty((0, sizes)) if sizes else None,
        )  # fmt: skip

    def part(self, places: npt.NDArray[np.generic]) -> "LocalResult":
        """Return the results of some of the clients."""
        return LocalResult(
            update=self.update[places],
            largest_gradient_norm=self.largest_gradient_norm[places],
            mean_gradient_norm=self.mean_gradient_norm[places],
            mean_loss=self.mean_loss[places],
            buffers=None if self.buffers is None else self.buffers[places],
            noise=None if self.noise is None else self.noise[places],
            rest=None if self.rest is None else self.rest[places],
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
    accuracy: float  # on the held-out test data, or another metric; NaN: unknown


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


class BufferedTrainer(Trainer, Protocol):
    """A trainer whose model has buffers, which training changes and evaluation depends on."""

    num_buffers: int  # 0: it has none after all

    def initial_buffers(self, rng: np.random.Generator) -> Buffers:
        """Return the buffers beside w₀, from a generator in the same state."""

    def evaluate(self, model: Parameters, buffers: Buffers = NO_BUFFERS) -> Evaluation:
        """Return the loss over all training data and the accuracy on the test data."""

    def client_losses(self, model: Parameters, clients: Integers, buffers: Buffers = NO_BUFFERS) -> Vector:
        """Return F_i(w) for some clients."""


def buffered(trainer: Trainer) -> BufferedTrainer | None:
    """Return a trainer whose model has buffers as one, None where it has none."""
    return cast("BufferedTrainer", trainer) if getattr(trainer, "num_buffers", 0) else None
