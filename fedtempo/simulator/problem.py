"""What is trained and by whom: data, a model that learns from them, a fleet, and how its times change."""

import os
import uuid
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedtempo.checks import InputError, Integers, MissingDependencyError, Vector
from fedtempo.data.federation import FederatedData
from fedtempo.engine.clients import Start
from fedtempo.engine.settings import TrainingSettings
from fedtempo.engine.step_size import try_step_sizes
from fedtempo.fingerprint import array_digest, described, name_of
from fedtempo.fleet import Fleet
from fedtempo.learning.batches import Batches
from fedtempo.learning.trainer import NO_BUFFERS, Buffers, LocalResult, Parameters, Trainer, buffered
from fedtempo.own_code import load_reference
from fedtempo.randomness import stream
from fedtempo.simulator.channel import Channel, StaticChannel
from fedtempo.simulator.workers import LocalWorkers, Work

BITS_OF_A_PARAMETER = 32
FROM_FILE = "fedtempo.experiments.running.problem:problem_of_file"  # by name: nothing here knows of files
NETWORKS = ("lenet5", "cnn", "lstm")  # as fedtempo.learning.networks makes them


class Problem:
    """One federation to train, whatever the policy, the settings of training and the seed.

    - ``data``: the samples of all clients.
    - ``model``: "softmax", "lenet5", "cnn", "lstm", a function that returns a ``torch.nn.Module``, or a ``Trainer``.
    - ``compute_time``, ``upload_time``: τ and t of each client, or one for all: the nominal times in seconds, which
      policies plan with. A ``channel`` may have its own, and gives them where they are left out.
    - ``download_time``: seconds before computing can start. ``bandwidth_cap``: the most bandwidth of each client's own
      link. ``total_bandwidth``: f_tot, in the same units.
    - ``channel``: how times change from round to round, and who is available.
    - ``device``: where torch trains. ``loss``, ``metric``, ``optimiser``: of a torch module (docs/models.md).

    ``fleet`` has gradient bounds of 1, since nobody knows them yet. ``trainer`` is made when it is first needed, and
    anew in another process.
    """

    def __init__(
        self,
        data: FederatedData,
        model: object = "softmax",
        *,
        compute_time: npt.ArrayLike | None = None,
        upload_time: npt.ArrayLike | None = None,
        download_time: npt.ArrayLike | None = None,
        bandwidth_cap: npt.ArrayLike | None = None,
        total_bandwidth: float = 1.0,
        channel: Channel | None = None,
        device: str = "cpu",
        loss: Callable[..., object] | None = None,
        metric: Callable[..., object] | None = None,
        optimiser: str | Callable[..., object] | None = None,
    ) -> None:
        """Check that the parts fit."""
        _check_data(data)
        nominal = _nominal_times(channel, {"compute_time": compute_time, "upload_time": upload_time})
        more: dict[str, Any] = {"download_time": download_time, "bandwidth_cap": bandwidth_cap}
        fleet = Fleet(data.data_share, np.ones(data.num_clients), **nominal, **more, total_bandwidth=total_bandwidth)
        self._assemble(data, model, fleet, channel)
        self.device = str(device)  # also one of torch
        self.learning = dict[str, Any]({"loss": loss, "metric": metric, "optimiser": optimiser})
        self.named: dict[str, object] = {}
        _check_learning(model, self.learning)

    @classmethod
    def of_fleet(
        cls,
        data: FederatedData,
        model: object,
        fleet: Fleet,
        channel: Channel | None = None,
        named: Mapping[str, object] | None = None,
    ) -> "Problem":
        """Return the problem of a fleet that is there already; ``named``: what its description calls parts of it."""
        problem = cls.__new__(cls)
        problem._assemble(data, model, fleet, channel)
        problem.device, problem.learning, problem.named = "cpu", {}, dict(named or {})
        return problem

    @classmethod
    def from_file(cls, path: Path | str, preset: str = "paper") -> "Problem":
        """Return the data, model, times and channel of a configuration under a preset; its other settings are not used.

        The presets are tables of the file; ``paper`` is the file itself.
        """
        if not isinstance(path, (str, Path)):
            raise InputError(name="path", rule="be that of a configuration", got=repr(path))
        read: Callable[..., Problem] = load_reference("from_file", FROM_FILE)  # type: ignore[assignment]
        return read(path, preset)

    def _assemble(self, data: FederatedData, model: object, fleet: Fleet, channel: Channel | None) -> None:
        if data.num_clients != len(fleet):
            raise InputError(
                name="the fleet",
                rule="have a client for each part of the data",
                got=f"{len(fleet)} and {data.num_clients}",
            )
        self.data, self.model, self.fleet = data, model, fleet
        self.channel = StaticChannel(fleet.compute_time, fleet.upload_time) if channel is None else channel
        if channel is not None and (size := len(channel.at(0, 0.0))) != len(fleet):
            got = f"{size} clients, and {len(fleet)} in the data"
            raise InputError(name="channel", rule="have times for each client", got=got)
        self.key, self.made_in = uuid.uuid4().hex, os.getpid()  # by which other processes know it again

    @cached_property
    def trainer(self) -> Trainer:
        """What trains the model on the data."""
        return make_trainer(self.model, self.data, device=self.device, **self.learning)

    def __getstate__(self) -> dict[str, object]:
        """Return what another process needs: it makes the trainer itself."""
        return {name: value for name, value in self.__dict__.items() if name != "trainer"}

    def __repr__(self) -> str:
        """Name the parts."""
        return f"Problem({self.data.name}, {name_of(self.model)}, {len(self.fleet)} clients)"

    @cached_property
    def description(self) -> dict[str, object]:
        """Return what tells this problem from others as plain values; functions count by their code."""
        fleet = self.fleet
        times = (fleet.compute_time, fleet.upload_time, fleet.download_time, fleet.bandwidth_cap)
        own = {name: described(value) for name, value in self.learning.items() if value is not None}
        trainer = self.trainer
        return {
            "data": self.data.checksum(),
            "model": name_of(self.model) if is_trainer(self.model) else described(self.model),
            "parameters": trainer.num_parameters + getattr(trainer, "num_buffers", 0),
            "device": self.device,
            **own,
            "fleet": array_digest([*times, fleet.data_share, np.array(fleet.total_bandwidth)]),
            "channel": described(self.channel),
            **self.named,
        }

    def initial_model(self, seed: int) -> Parameters:
        """Return w₀."""
        return self.trainer.initial_model(stream(seed, "initial model"))

    def initial_buffers(self, seed: int) -> Buffers:
        """Return what the model keeps beside its parameters at w₀; mostly nothing."""
        trainer = buffered(self.trainer)
        return NO_BUFFERS if trainer is None else trainer.initial_buffers(stream(seed, "initial model"))

    @property
    def upload_numbers(self) -> tuple[int, int]:
        """How many numbers an upload has: parameters, and buffers beside them."""
        return self.trainer.num_parameters, getattr(self.trainer, "num_buffers", 0)

    def batches(self, training: TrainingSettings, seed: int) -> Batches:
        """Return how clients draw their batches."""
        return Batches(self.data.offsets, batch_size=training.batch_size, seed=seed)

    def first_gradient_bounds(self, training: TrainingSettings, seed: int) -> Vector:
        """Return the largest gradient norm of each client in its first local run from w₀: what an oracle knows.

        A step size that is left to the run is that which the quickest of all clients find.
        """
        first = self.initial_model(seed), self.initial_buffers(seed)
        start = Start(model=first[0], buffers=first[1], round_index=0, rounds_done=0, time=0.0, step_size=0.0)
        workers = LocalWorkers(self.trainer, self.batches(training, seed), training)
        everyone = np.arange(self.data.num_clients)

        def paths(clients: Integers, step_size: float, steps: int) -> LocalResult:
            sizes = np.full(len(clients), step_size)
            return workers.train(
                Work(clients=clients, local_steps=np.full_like(clients, steps), step_size=sizes), start
            )

        step_size = None
        if training.step_size == "auto":
            times, usual = self.fleet.compute_time, training.local_steps
            step_size, _ = try_step_sizes(times, everyone, usual, lambda *path: paths(*path).mean_loss)
        return paths(everyone, training.step_size_of(0, step_size), training.local_steps).largest_gradient_norm


def _check_data(data: object) -> None:
    """Refuse what Python itself would complain of in its own words."""
    if not isinstance(data, FederatedData):
        remedy = "docs/data.md shows how to make one"
        raise InputError(name="data", rule="be a FederatedData", got=type(data).__name__, remedy=remedy)


def _check_learning(model: object, learning: Mapping[str, object]) -> None:
    """Refuse what can be no model, loss, metric or optimiser, without loading torch."""
    if (isinstance(model, str) and model not in ("softmax", *NETWORKS)) or not (callable(model) or _is_model(model)):
        choices = f"softmax, {', '.join(NETWORKS)}, a function that makes a torch module, or a trainer"
        raise InputError(name="model", rule=f"be {choices}", got=repr(model))
    for name, part in learning.items():
        if part is not None and not callable(part) and not (name == "optimiser" and isinstance(part, str)):
            raise InputError(name=name, rule="be a function", got=f"a {type(part).__name__}")


def _is_model(model: object) -> bool:
    return isinstance(model, str) or is_trainer(model)


def _nominal_times(channel: Channel | None, nominal: dict[str, Any]) -> dict[str, Any]:
    """Return nominal times, which the channel gives where they are left out."""
    if channel is not None and not hasattr(channel, "at"):
        raise InputError(name="channel", rule="have a method at(round_index, time)", got=repr(channel))
    if channel is not None and any(times is None for times in nominal.values()):
        first = channel.at(0, 0.0)
        usual = {"compute_time": first.compute_time, "upload_time": first.upload_time}
        nominal = {name: usual[name] if times is None else times for name, times in nominal.items()}
    if any(times is None for times in nominal.values()):
        raise InputError(name="compute_time and upload_time", rule="be given where there is no channel", got="none")
    return nominal


def is_trainer(model: object) -> bool:
    """Return whether a model is a trainer already."""
    return hasattr(model, "train") and hasattr(model, "evaluate") and not isinstance(model, type)


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
    ready = is_trainer(model)
    if own and (model == "softmax" or ready):
        remedy = "give a function that makes a torch module"
        raise InputError(next(iter(own)), "be given with a model on torch", f"{model!r}"[:60], remedy)
    if model == "softmax":
        if device != "cpu":
            raise InputError(name="device", rule="be cpu for softmax", got=repr(device), remedy="leave it out")
        from fedtempo.learning.softmax import SoftmaxTrainer

        return SoftmaxTrainer(data)
    if model == "lenet5" and device == "cpu" and not own:
        from fedtempo.learning.lenet import LeNetTrainer

        return LeNetTrainer(data)
    if ready:
        return model  # type: ignore[return-value]
    if model not in NETWORKS and not callable(model):
        choices = f"softmax, {', '.join(NETWORKS)}, a function that makes a torch module, or a trainer"
        raise InputError(name="model", rule=f"be {choices}", got=repr(model))
    try:
        from fedtempo.learning.networks import network_of
        from fedtempo.learning.torch_module import TorchTrainer
    except ModuleNotFoundError:
        raise MissingDependencyError("torch", "this model") from None
    make = model if callable(model) else network_of(str(model), data)
    return TorchTrainer(data, make, device=device, **own)  # type: ignore[arg-type]
