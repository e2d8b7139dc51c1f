"""Simulated clients: workers train, and a channel and a link say how long it would have taken."""

from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from fedtempo.checks import Integers, Vector
from fedtempo.engine.clients import Arrays, Conditions, Outcome, Start
from fedtempo.engine.clock import time_round
from fedtempo.engine.settings import TrainingSettings
from fedtempo.fleet import Fleet
from fedtempo.learning.batches import Batches
from fedtempo.learning.trainer import Evaluation, LocalResult, LocalWork, Parameters, Trainer
from fedtempo.policies.policy import BufferedPlan, Probe, RoundPlan
from fedtempo.simulator.channel import Channel, ChannelState
from fedtempo.simulator.flight import Flight

OF_WORKERS = "workers_"  # before the names of what they know, in the state


@dataclass(eq=False, slots=True)
class Asked:
    """What a policy's probes did before the round."""

    seconds: float = 0.0
    have_the_model: Integers = field(default_factory=lambda: np.empty(0, dtype=np.int64))  # it was sent with the probe
    computed: Integers = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    result: LocalResult | None = None  # of those who computed


class Workers(Protocol):
    """Whatever does the computing of simulated clients: this process, or nodes of another engine."""

    num_parameters: int

    def train(self, clients: Integers, steps: Integers, sizes: Vector, start: Start) -> LocalResult:
        """Run the local steps of some clients."""

    def losses(self, clients: Integers, start: Start) -> Vector:
        """Return F_i of the model for some clients."""

    def evaluate(self, model: Parameters) -> Evaluation | None:
        """Return the loss over all training data and the accuracy on the test data."""

    def state(self) -> Arrays:
        """Return what a resumed run needs of them."""

    def restore(self, arrays: Arrays) -> None:
        """Take it up."""


class LocalWorkers:
    """A trainer in this process."""

    def __init__(self, trainer: Trainer, batches: Batches, *, weight_decay: float = 0.0) -> None:
        """Take the model, its data and how batches are drawn from them."""
        self.trainer, self.batches, self.weight_decay = trainer, batches, weight_decay
        self.num_parameters = trainer.num_parameters

    def train(self, clients: Integers, steps: Integers, sizes: Vector, start: Start) -> LocalResult:
        """Run the local steps of all clients in one call."""
        rows = self.batches.draw(clients, start.round_index, int(steps.max(initial=1)))
        work = LocalWork(
            start=np.zeros(len(clients), dtype=np.int64), rows=rows, local_steps=steps, step_size=sizes,
            weight_decay=self.weight_decay,
        )  # fmt: skip
        return self.trainer.train(start.model[None], work)

    def losses(self, clients: Integers, start: Start) -> Vector:
        """Return F_i of the model for some clients."""
        return self.trainer.client_losses(start.model, clients)

    def evaluate(self, model: Parameters) -> Evaluation:
        """Return how good a model is."""
        return self.trainer.evaluate(model)

    def state(self) -> Arrays:
        """Return nothing: batches go by the number of the round."""
        return {}

    def restore(self, arrays: Arrays) -> None:
        """Take nothing up."""


class SimulatedClients:
    """The fleet of a simulated run: workers do the computing, a channel and a link say how long it takes."""

    repeatable = True

    def __init__(
        self, *, workers: Workers, samples: Integers, fleet: Fleet, channel: Channel, training: TrainingSettings
    ) -> None:
        """Start with nobody in flight; ``samples`` is how many each client has."""
        self.workers, self.samples, self.fleet = workers, samples, fleet
        self.channel, self.training = channel, training
        self.flight = Flight.of_nobody(workers.num_parameters)  # whom asynchronous plans started, still to arrive
        self.now: ChannelState  # of the round
        self.asked = Asked()

    @property
    def in_flight(self) -> Integers:
        """Who has started and is still to arrive."""
        return self.flight.client

    def look(self, start: Start) -> Conditions:
        """Return what the channel tells."""
        self.now, self.asked = self.channel.at(start.rounds_done, start.time), Asked()
        return self._conditions()

    def ask(self, probe: Probe, start: Start) -> Vector:
        """Return the answers, and note what they took."""
        clients, asked = probe.clients, self.asked
        if probe.ask == "loss":
            # One pass over the local data counts as so many batches, at the speed of training.
            answers = self.workers.losses(clients, start)
            work: npt.NDArray[Any] = self.samples[clients] / self.training.batch_size
        else:
            work = np.full(len(clients), self.training.local_steps)
            asked.computed, asked.result = clients, self._train(clients, work, _each(clients, start.step_size), start)
            answers = np.nan_to_num(asked.result.update_norm, nan=np.inf)  # who diverged has answered
        asked.seconds += float(self._ready_time(clients, work).max())
        asked.have_the_model = np.union1d(asked.have_the_model, clients)
        return answers

    def train(self, plan: RoundPlan, start: Start) -> Outcome:
        """Let all members train, and wait for all of them."""
        members = plan.members
        steps = _each(members, self.training.local_steps, plan.local_steps).astype(np.int64)
        sizes = _each(members, start.step_size, plan.step_size)
        if self.asked.result is None:
            result = self._train(members, steps, sizes, start)
        else:
            result = _select(self.asked.computed, self.asked.result, members)
        round_time, failed = self._time(plan, steps)
        times = self.now.compute_time[members], self.now.upload_time[members]
        schedule = _each(members, start.step_size)
        return Outcome(plan, result, sizes, schedule, steps, *times, failed, self.asked.seconds + round_time)

    def train_some(self, plan: BufferedPlan, start: Start) -> Outcome:
        """Let some clients start, and wait for the first updates of all that are in flight."""
        clients, now = plan.start, self.now
        steps = _each(clients, self.training.local_steps, plan.local_steps).astype(np.int64)
        sizes = _each(clients, start.step_size)
        ready = start.time + self._ready_time(clients, steps)
        result = self._train(clients, steps, sizes, start)
        started = Flight(
            client=clients, weight=plan.weights, version=np.full(len(clients), start.round_index), step_size=sizes,
            local_steps=steps, compute_time=now.compute_time[clients],
            ready=ready if now.available is None else np.where(now.available[clients], ready, np.inf),
            update=result.update, largest_gradient_norm=result.largest_gradient_norm,
            mean_gradient_norm=result.mean_gradient_norm, mean_loss=result.mean_loss,
        )  # fmt: skip
        flight = self.flight.joined_by(started)
        seconds = now.upload_time[flight.client] / self.fleet.total_bandwidth  # of uploads in this round
        landed, failed, self.flight, end = flight.wait(plan.wait_for, start.time, seconds)
        staleness = start.round_index - landed.version
        arrived = RoundPlan(
            members=landed.client,
            weights=landed.weight * (1.0 + staleness) ** -plan.staleness_exponent,
            note={**(plan.note or {}), "staleness": staleness.tolist()},
        )
        times = landed.compute_time, now.upload_time[landed.client]
        sizes, steps = landed.step_size, landed.local_steps
        return Outcome(arrived, landed.result, sizes, sizes, steps, *times, failed, end - start.time)

    def start_again(self) -> Conditions:
        """Forget who is in flight and what probes left; the time that they took stays."""
        self.flight = Flight.of_nobody(self.workers.num_parameters)
        self.asked = Asked(seconds=self.asked.seconds)
        return self._conditions()

    def evaluate(self, model: Parameters) -> Evaluation | None:
        """Return how good a model is."""
        return self.workers.evaluate(model)

    def state(self) -> Arrays:
        """Return who is in flight, and what the workers know."""
        return self.flight.state() | {OF_WORKERS + name: values for name, values in self.workers.state().items()}

    def restore(self, arrays: Arrays) -> None:
        """Take it up."""
        flight = {name: values for name, values in arrays.items() if not name.startswith(OF_WORKERS)}
        self.flight = Flight(**flight) if flight else Flight.of_nobody(self.workers.num_parameters)  # type: ignore[arg-type]
        known = {name.removeprefix(OF_WORKERS): values for name, values in arrays.items() if name not in flight}
        self.workers.restore(known)

    def _conditions(self) -> Conditions:
        return Conditions(
            available=self._idle(),
            compute_time=self.now.compute_time if self.now.told else None,
            upload_time=self.now.upload_time if self.now.told else None,
        )

    def _idle(self) -> npt.NDArray[np.bool_] | None:
        """Return who is there and not in flight."""
        available = self.now.available
        if not len(self.flight):
            return available
        idle = np.ones(len(self.fleet), dtype=bool) if available is None else available.copy()
        idle[self.flight.client] = False
        return idle

    def _train(self, members: Integers, steps: Integers, sizes: Vector, start: Start) -> LocalResult:
        if not len(members):
            return LocalResult.of_nobody(start.model.size)
        return self.workers.train(members, steps, sizes, start)

    def _ready_time(self, clients: Integers, steps: npt.NDArray[Any]) -> Vector:
        """Return when clients are done: those who need it download, then all compute in proportion to their steps."""
        ready: Vector = self.now.compute_time[clients] * (steps / self.training.local_steps)
        if self.fleet.download_time is None:
            return ready
        return ready + np.where(np.isin(clients, self.asked.have_the_model), 0.0, self.fleet.download_time[clients])

    def _time(self, plan: RoundPlan, steps: Integers) -> tuple[float, npt.NDArray[np.bool_]]:
        """Return the seconds of the round and who failed: the absent, who take no time, and the late."""
        now = self.now
        there = np.ones(len(plan.members), dtype=bool) if now.available is None else now.available[plan.members]
        members = plan.members[there]

        def of(values: npt.NDArray[Any] | None) -> Any:  # noqa: ANN401
            return None if values is None else values[members]

        still_to_do = steps[there] if self.asked.result is None else np.zeros(len(members))
        timing = time_round(
            self._ready_time(members, still_to_do),
            of(now.upload_time),
            total_bandwidth=self.fleet.total_bandwidth,
            link=self.training.link,
            duplicates=self.training.duplicates,
            counts=None if plan.counts is None else plan.counts[there],
            bandwidth=None if plan.bandwidth is None else plan.bandwidth[there],
            bandwidth_cap=of(self.fleet.bandwidth_cap),
            deadline=plan.deadline,
        )
        failed = ~there
        failed[there] = timing.late
        return timing.round_time, failed


def _each(clients: Integers, usual: float, chosen: npt.ArrayLike | None = None) -> Vector:
    return np.full(len(clients), usual if chosen is None else chosen, dtype=np.float64)


def _select(clients: Integers, result: LocalResult, members: Integers) -> LocalResult:
    """Return what the probe left of some of the clients that it asked."""
    order = np.argsort(clients)
    places = order[np.searchsorted(clients, members, sorter=order)]
    return LocalResult(
        update=result.update[places],
        largest_gradient_norm=result.largest_gradient_norm[places],
        mean_gradient_norm=result.mean_gradient_norm[places],
        mean_loss=result.mean_loss[places],
    )
