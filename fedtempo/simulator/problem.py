"""What is trained and by whom: data, a model that learns from them, a fleet, and how its times change."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fedtempo.checks import InputError, MissingDependencyError, Vector
from fedtempo.data.federation import FederatedData
from fedtempo.engine.clients import Start
from fedtempo.engine.settings import TrainingSettings
from fedtempo.fleet import Fleet
from fedtempo.learning.batches import Batches
from fedtempo.learning.trainer import NO_BUFFERS, Buffers, Parameters, Trainer, buffered
from fedtempo.randomness import stream
from fedtempo.simulator.channel import Channel
from fedtempo.simulator.workers import LocalWorkers, Work

BITS_OF_A_PARAMETER = 32


@dataclass(frozen=True, eq=False, slots=True)
class Problem:
    """One federation to train, whatever the policy, the settings of training and the seed."""

    data: FederatedData
    trainer: Trainer
    fleet: Fleet  # with nominal times, and gradient bounds of 1, since nobody knows them yet
    channel: Channel  # how times change from round to round

    def __post_init__(self) -> None:
        """Check that the parts fit."""
        if self.data.num_clients != len(self.fleet):
            raise InputError(
                name="the fleet",
                rule="have a client for each part of the data",
                got=f"{len(self.fleet)} and {self.data.num_clients}",
            )

    def initial_model(self, seed: int) -> Parameters:
        """Return w₀."""
        return self.trainer.initial_model(stream(seed, "initial model"))

    def initial_buffers(self, seed: int) -> Buffers:
        """Return what the model keeps beside its parameters at w₀; mostly nothing."""
        trainer = buffered(self.trainer)
        return NO_BUFFERS if trainer is None else trainer.initial_buffers(stream(seed, "initial model"))

    def batches(self, training: TrainingSettings, seed: int) -> Batches:
        """Return how clients draw their batches."""
        return Batches(self.data.offsets, batch_size=training.batch_size, seed=seed)

    def first_gradient_bounds(self, training: TrainingSettings, seed: int) -> Vector:
        """Return the largest gradient norm of each client in its first local run from w₀: what an oracle knows."""
        clients, step_size = np.arange(self.data.num_clients), training.step_size_of(0)
        first = self.initial_model(seed), self.initial_buffers(seed)
        start = Start(model=first[0], buffers=first[1], round_index=0, rounds_done=0, time=0.0, step_size=step_size)
        work = Work(
            clients=clients,
            local_steps=np.full_like(clients, training.local_steps),
            step_size=np.full(len(clients), step_size),
        )
        workers = LocalWorkers(self.trainer, self.batches(training, seed), training)
        return workers.train(work, start).largest_gradient_norm


def model_bits(trainer: Trainer) -> float:
    """Return the size of one upload: parameters, and buffers where there are any."""
    return float((trainer.num_parameters + getattr(trainer, "num_buffers", 0)) * BITS_OF_A_PARAMETER)


def make_trainer(
    model: object,
    data: FederatedData,
    *,
    device: str = "cpu",
    loss: Callable[..., object] | None = None,
    metric: Callable[..., object] | None = None,
    optimiser: str | Callable[..., object] | None = None,
) -> Trainer:
    """Return the trainer of a model: its name, a function that makes a torch module, or a trainer of one's own.

    A loss, a metric and an optimiser of one's own need torch, and so does a device other than the processor.
    """
    own = {name: one for name, one in (("loss", loss), ("metric", metric), ("optimiser", optimiser)) if one is not None}
    is_trainer = hasattr(model, "train") and hasattr(model, "evaluate") and not isinstance(model, type)
    if own and (model == "softmax" or is_trainer):
        remedy = "give a function that makes a torch module"
        raise InputError(next(iter(own)), "be given with a model on torch", f"{model!r}"[:60], remedy)
    if model == "softmax":
        from fedtempo.learning.softmax import SoftmaxTrainer

        return SoftmaxTrainer(data)
    if model == "lenet5" and device == "cpu" and not own:
        from fedtempo.learning.lenet import LeNetTrainer

        return LeNetTrainer(data)
    if is_trainer:
        return model  # type: ignore[return-value]
    if model != "lenet5" and not callable(model):
        choices = "softmax, lenet5, a function that makes a torch module, or a trainer"
        raise InputError(name="model", rule=f"be {choices}", got=repr(model))
    try:
        from fedtempo.learning.models import LeNet5
        from fedtempo.learning.torch_module import TorchTrainer
    except ModuleNotFoundError:
        raise MissingDependencyError("torch", "torch", "this model") from None
    make = model if callable(model) else lambda: LeNet5(data.num_classes)
    return TorchTrainer(data, make, device=device, **own)  # type: ignore[arg-type]
