"""What is trained and by whom: data, a model that learns from them, a fleet, and how its times change."""

from dataclasses import dataclass

import numpy as np

from fedtempo.checks import InputError, MissingDependencyError, Vector
from fedtempo.data.federation import FederatedData
from fedtempo.engine.settings import TrainingSettings
from fedtempo.fleet import Fleet
from fedtempo.learning.batches import Batches
from fedtempo.learning.trainer import LocalWork, Parameters, Trainer
from fedtempo.randomness import stream
from fedtempo.simulator.channel import Channel

BITS_OF_A_PARAMETER = 32
NETWORKS = ("lenet5", "cnn", "lstm")  # as fedtempo.learning.networks makes them


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

    def batches(self, training: TrainingSettings, seed: int) -> Batches:
        """Return how clients draw their batches."""
        return Batches(self.data.offsets, batch_size=training.batch_size, seed=seed)

    def first_gradient_bounds(self, training: TrainingSettings, seed: int) -> Vector:
        """Return the largest gradient norm of each client in its first local run from w₀: what an oracle knows."""
        clients = np.arange(self.data.num_clients)
        work = LocalWork(
            start=np.zeros_like(clients),
            rows=self.batches(training, seed).draw(clients, 0, training.local_steps),
            local_steps=np.full_like(clients, training.local_steps),
            step_size=np.full(len(clients), training.step_size_of(0)),
            weight_decay=training.weight_decay,
        )
        return self.trainer.train(self.initial_model(seed)[None], work).largest_gradient_norm


def model_bits(trainer: Trainer) -> float:
    """Return the size of one upload."""
    return float(trainer.num_parameters * BITS_OF_A_PARAMETER)


def make_trainer(model: object, data: FederatedData, *, device: str = "cpu") -> Trainer:
    """Return the trainer of a model: its name, a function that makes a torch module, or a trainer of one's own."""
    if model == "softmax":
        from fedtempo.learning.softmax import SoftmaxTrainer

        return SoftmaxTrainer(data)
    if model == "lenet5" and device == "cpu":
        from fedtempo.learning.lenet import LeNetTrainer

        return LeNetTrainer(data)
    if hasattr(model, "train") and hasattr(model, "evaluate"):
        return model  # type: ignore[return-value]
    if model not in NETWORKS and not callable(model):
        choices = f"softmax, {', '.join(NETWORKS)}, a function that makes a torch module, or a trainer"
        raise InputError(name="model", rule=f"be {choices}", got=repr(model))
    try:
        from fedtempo.learning.networks import network_of
        from fedtempo.learning.torch_module import TorchTrainer
    except ModuleNotFoundError:
        raise MissingDependencyError("torch", "torch", "this model") from None
    return TorchTrainer(data, model if callable(model) else network_of(str(model), data), device=device)
