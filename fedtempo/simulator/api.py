"""Simulated runs from Python: a user's own data, model and policy in a few lines."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits

from fedtempo.checks import InputError, MissingDependencyError, Vector
from fedtempo.data.federation import FederatedData
from fedtempo.fleet import Fleet
from fedtempo.learning.batches import Batches
from fedtempo.learning.trainer import LocalWork, Parameters, Trainer
from fedtempo.policies.fixed import Sampler
from fedtempo.policies.policy import Policy, PolicySetting
from fedtempo.policies.registry import make
from fedtempo.randomness import stream
from fedtempo.simulator.channel import Channel, StaticChannel
from fedtempo.simulator.loop import Simulation
from fedtempo.simulator.settings import StopSettings, TrainingSettings


@dataclass(frozen=True, eq=False, slots=True)
class RunResult:
    """A finished run."""

    summary: dict[str, Any]
    records: list[dict[str, Any]]  # one for each round
    model: Parameters

    def series(self, name: str) -> tuple[Vector, Vector]:
        """Return seconds and values of ``loss`` or ``accuracy``, wherever they were evaluated."""
        seen = [(record["time"], record[name]) for record in self.records if record[name] is not None]
        times, values = np.array(seen, dtype=np.float64).reshape(-1, 2).T
        return times, values


def simulate(
    data: FederatedData,
    *,
    compute_time: npt.ArrayLike,
    upload_time: npt.ArrayLike,
    policy: str | Policy | Sampler | type = "weighted",
    options: Mapping[str, Any] | None = None,
    model: object = "softmax",
    channel: Channel | None = None,
    seed: int = 0,
    max_rounds: int | None = None,
    max_time: float | None = None,
    target_loss: float | None = None,
    target_accuracy: float | None = None,
    **training: Any,  # noqa: ANN401
) -> RunResult:
    """Run federated training under a simulated clock.

    ``model``: "softmax", "lenet5", a function that returns a ``torch.nn.Module``, or a ``Trainer``. ``policy``: a name,
    a function from fleet to q, a class that takes a ``PolicySetting``, or a policy. ``training``: the fields of
    ``TrainingSettings``, of which ``cohort_size`` is needed.
    """
    fleet = Fleet(data.data_share, 1.0, compute_time, upload_time)  # type: ignore[arg-type]
    stop = StopSettings(
        max_rounds=max_rounds, max_time=max_time, target_loss=target_loss, target_accuracy=target_accuracy
    )
    trainer = make_trainer(model, data)  # loads libraries, before their threads can be limited
    with threadpool_limits(limits=1):
        simulation = assemble(
            data=data,
            trainer=trainer,
            fleet=fleet,
            channel=channel or StaticChannel(fleet.compute_time, fleet.upload_time),
            policy=policy,
            options=options or {},
            training=TrainingSettings(**training),
            stop=stop,
            seed=seed,
        )
        *records, summary = simulation.rounds()
    return RunResult(summary, records, simulation.model)


def assemble(
    *,
    data: FederatedData,
    trainer: Trainer,
    fleet: Fleet,
    channel: Channel,
    policy: str | Policy | Sampler | type,
    options: Mapping[str, Any],
    training: TrainingSettings,
    stop: StopSettings,
    seed: int,
) -> Simulation:
    """Make the policy, and the run around it."""
    setting = PolicySetting(
        fleet=fleet,
        cohort_size=training.cohort_size,
        options=options,
        known_gradient_bound=lambda: first_gradient_bounds(data, trainer, training, seed),
    )
    return Simulation(
        data=data, trainer=trainer, fleet=fleet, channel=channel, policy=make(policy, setting), training=training,
        stop=stop, seed=seed,
    )  # fmt: skip


def first_gradient_bounds(data: FederatedData, trainer: Trainer, training: TrainingSettings, seed: int) -> Vector:
    """Return the largest gradient norm of each client in its first local run from w₀: what an oracle knows."""
    clients = np.arange(data.num_clients)
    batches = Batches(data.offsets, batch_size=training.batch_size, seed=seed)
    work = LocalWork(
        start=np.zeros_like(clients),
        rows=batches.draw(clients, 0, training.local_steps),
        local_steps=np.full_like(clients, training.local_steps),
        step_size=np.full(len(clients), training.step_size_of(0)),
        weight_decay=training.weight_decay,
    )
    return trainer.train(trainer.initial_model(stream(seed, "initial model"))[None], work).largest_gradient_norm


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
    if model != "lenet5" and not callable(model):
        choices = "softmax, lenet5, a function that makes a torch module, or a trainer"
        raise InputError(f"model must be {choices}, got {model!r}")
    try:
        from fedtempo.learning.models import LeNet5
        from fedtempo.learning.torch_module import TorchTrainer
    except ModuleNotFoundError:
        raise MissingDependencyError("torch", "torch", "this model") from None
    return TorchTrainer(data, model if callable(model) else lambda: LeNet5(data.num_classes), device=device)
