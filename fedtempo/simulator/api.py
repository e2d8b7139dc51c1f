"""Simulated runs from Python: a user's own data, model and policy in a few lines."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.linalg.cython_blas  # noqa: F401 - numba loads it at will: loaded here, so that its threads can be limited
from threadpoolctl import threadpool_limits

from fedtempo.checks import InputError, MissingDependencyError, Vector, check_seed
from fedtempo.data.federation import FederatedData
from fedtempo.engine.loop import DivergedError
from fedtempo.engine.settings import StopSettings, TrainingSettings, check_training_names
from fedtempo.fleet import Fleet
from fedtempo.learning.batches import Batches
from fedtempo.learning.trainer import LocalWork, Parameters, Trainer
from fedtempo.policies.fixed import Sampler
from fedtempo.policies.policy import Policy, PolicySetting
from fedtempo.policies.registry import make
from fedtempo.randomness import stream
from fedtempo.simulator.channel import Channel, StaticChannel
from fedtempo.simulator.simulation import Simulation


@dataclass(frozen=True, eq=False, slots=True)
class RunResult:
    """A finished run."""

    summary: dict[str, Any]
    records: list[dict[str, Any]]  # one for each round
    model: Parameters

    def __repr__(self) -> str:
        """Name what the run came to, not its records."""
        told = ", ".join(f"{name}={value}" for name, value in self.summary.items() if value is not None)
        return f"RunResult({told})"

    def series(self, name: str) -> tuple[Vector, Vector]:
        """Return seconds and values of ``loss`` or ``accuracy``, wherever they were evaluated."""
        seen = [(record["time"], record[name]) for record in self.records if record[name] is not None]
        times, values = np.array(seen, dtype=np.float64).reshape(-1, 2).T
        return times, values


def simulate(
    data: FederatedData,
    *,
    compute_time: npt.ArrayLike | None = None,
    upload_time: npt.ArrayLike | None = None,
    policy: str | Policy | Sampler | type = "weighted",
    options: Mapping[str, Any] | None = None,
    model: object = "softmax",
    device: str = "cpu",
    channel: Channel | None = None,
    download_time: npt.ArrayLike | None = None,
    bandwidth_cap: npt.ArrayLike | None = None,
    total_bandwidth: float = 1.0,
    seed: int = 0,
    max_rounds: int | None = None,
    max_time: float | None = None,
    target_loss: float | None = None,
    target_accuracy: float | None = None,
    **training: Any,  # noqa: ANN401
) -> RunResult:
    """Run federated training under a simulated clock.

    ``model``: "softmax", "lenet5", a function that returns a ``torch.nn.Module``, or a ``Trainer``. ``policy``: a name,
    a function from fleet to q, a class that takes a ``PolicySetting``, or a policy. ``training``: ``cohort_size``, and
    where they differ from the defaults ``local_steps``, ``batch_size``, ``step_size``, ``schedule``, ``weight_decay``,
    ``server_momentum``, ``server_memory``, ``link``, ``duplicates``, ``evaluate_every``,
    ``evaluate_growth``. Times are the nominal ones, which policies plan with; a ``channel`` may have its own, and gives
    them where they are left out. Diverging training raises ``DivergedError`` with the records until then.
    """
    _check_arguments(data, seed, training)
    if channel is not None:
        first = channel.at(0, 0.0)
        compute_time = first.compute_time if compute_time is None else compute_time
        upload_time = first.upload_time if upload_time is None else upload_time
    if compute_time is None or upload_time is None:
        raise InputError(name="compute_time and upload_time", rule="be given where there is no channel", got="none")
    times: dict[str, Any] = {
        "compute_time": compute_time, "upload_time": upload_time, "download_time": download_time,
        "bandwidth_cap": bandwidth_cap, "total_bandwidth": total_bandwidth,
    }  # fmt: skip
    fleet = Fleet(data_share=data.data_share, gradient_bound=np.ones(data.num_clients), **times)
    stop = StopSettings(
        max_rounds=max_rounds, max_time=max_time, target_loss=target_loss, target_accuracy=target_accuracy
    )
    trainer = make_trainer(model, data, device=device)  # loads libraries, before their threads can be limited
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
        records: list[dict[str, Any]] = []
        try:
            records.extend(simulation.rounds())
        except DivergedError as error:
            error.records = tuple(records)
            raise
    *records, summary = records
    return RunResult(summary, records, simulation.model)


def _check_arguments(data: object, seed: int, training: Mapping[str, Any]) -> None:
    """Check what Python itself would complain of in its own words."""
    if not isinstance(data, FederatedData):
        raise InputError(
            name="data",
            rule="be a FederatedData",
            got=f"{type(data).__name__}",
            remedy="docs/data.md shows how to make one",
        )
    check_seed("seed", seed)
    check_training_names("simulate", training)


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
    setting = policy_setting(data, trainer, fleet, options, training, seed)
    return Simulation(
        data=data, trainer=trainer, fleet=fleet, channel=channel, policy=make(policy, setting), training=training,
        stop=stop, seed=seed,
    )  # fmt: skip


def policy_setting(
    data: FederatedData,
    trainer: Trainer,
    fleet: Fleet,
    options: Mapping[str, Any],
    training: TrainingSettings,
    seed: int,
) -> PolicySetting:
    """Return what a policy is made from."""
    return PolicySetting(
        fleet=fleet,
        cohort_size=training.cohort_size,
        link=training.link,
        duplicates=training.duplicates,
        server_momentum=training.server_momentum,
        options=options,
        known_gradient_bound=lambda: first_gradient_bounds(data, trainer, training, seed),
    )


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
        raise InputError(name="model", rule=f"be {choices}", got=repr(model))
    try:
        from fedtempo.learning.models import LeNet5
        from fedtempo.learning.torch_module import TorchTrainer
    except ModuleNotFoundError:
        raise MissingDependencyError("torch", "torch", "this model") from None
    return TorchTrainer(data, model if callable(model) else lambda: LeNet5(data.num_classes), device=device)
