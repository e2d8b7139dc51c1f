"""Simulated clients: workers train, and a channel and a link say how long it would have taken."""

from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from fedtempo.checks import Booleans, InputError, Integers, Vector
from fedtempo.engine.clients import Conditions, Outcome, Start
from fedtempo.engine.clock import Uploads, time_round
from fedtempo.engine.settings import TrainingSettings
from fedtempo.engine.upload_sizes import bits_of, relative_sizes
from fedtempo.fleet import Fleet
from fedtempo.learning.trainer import Buffers, Evaluation, LocalResult, Parameters
from fedtempo.policies.policy import BufferedPlan, Probe, RoundPlan
from fedtempo.simulator.channel import Channel, ChannelState
from fedtempo.simulator.flight import Flight
from fedtempo.simulator.workers import Work, Workers
from fedtempo.state import Rows, Stateful
from fedtempo.theory.bits import BITS, WHOLE

Number = TypeVar("Number", bound=np.generic)
NOBODY: Integers = np.empty(0, dtype=np.int64)


@dataclass(slots=True)
class SimulatedState:
    """Who is in flight, and what clients did not send."""

    flight: Flight | None = None  # whom asynchronous plans started and who is still to arrive; None: nobody ever
    rest: Rows = field(default_factory=Rows)  # of those who have trained, where there is error feedback


@dataclass(eq=False, slots=True)
class Probed:
    """What a policy's probes did before the round."""

    seconds: float = 0.0
    have_the_model: Integers = field(default_factory=lambda: NOBODY)  # it was sent with the probe
    computed: Integers = field(default_factory=lambda: NOBODY)
    result: LocalResult | None = None  # of those who computed


class SimulatedClients:
    """The fleet of a simulated run: workers do the computing, a channel and a link say how long it takes."""

    repeatable = True

    def __init__(
        self, *, workers: Workers, samples: Integers, fleet: Fleet, channel: Channel, training: TrainingSettings
    ) -> None:
        """Start with nobody in flight; ``samples`` is how many each client has."""
        self.workers, self.samples, self.fleet = workers, samples, fleet
        self.channel, self.training = channel, training
        self.state = SimulatedState()

    @property
    def parts(self) -> dict[str, Stateful]:
        """Who is in flight, and what the workers know."""
        return {"clients": self, "workers": self.workers}

    @property
    def in_flight(self) -> Integers:
        """Who has started and is still to arrive."""
        return NOBODY if self.state.flight is None else self.state.flight.client

    def begin(self, start: Start) -> "SimulatedRound":
        """Begin a round under the times of the channel."""
        return SimulatedRound(self, start, self.channel.at(start.rounds_done, start.time))

    def evaluate(self, model: Parameters, buffers: Buffers) -> Evaluation | None:
        """Return how good a model is."""
        return self.workers.evaluate(model, buffers)

    def losses(self, model: Parameters, buffers: Buffers, clients: Integers) -> Vector:
        """Return Fᵢ of a model for some clients."""
        start = Start(model=model, buffers=buffers, round_index=0, rounds_done=0, time=0.0, step_size=0.0)
        return self.workers.losses(clients, start)


class SimulatedRound:
    """A round of simulated clients."""

    def __init__(
        self, clients: SimulatedClients, start: Start, now: ChannelState, probed: Probed | None = None
    ) -> None:
        """Take the clients, from where they start, and what the channel says of them now."""
        self.clients, self.start, self.now, self.probed = clients, start, now, probed or Probed()
        self.fleet, self.training, self.workers = clients.fleet, clients.training, clients.workers
        self.conditions = Conditions(
            available=self._idle(),
            compute_time=now.compute_time if now.known else None,
            upload_time=now.upload_time if now.known else None,
        )

    @property
    def seconds_asked(self) -> float:
        """What probes took so far."""
        return self.probed.seconds

    def ask(self, probe: Probe) -> Vector:
        """Return the answers, and note what they took."""
        clients, probed = probe.clients, self.probed
        if probe.ask == "path_loss":
            steps = _each(clients, self.training.local_steps, probe.local_steps).astype(np.int64)
            work = steps.astype(np.float64)
            losses = self._train(clients, steps, _each(clients, 0.0, probe.step_size), None).mean_loss
            answers: Vector = np.where(np.isfinite(losses), losses, np.inf)  # who diverged has answered
        elif probe.ask == "loss":
            # One pass over the local data counts as so many batches, at the speed of training.
            answers = self.workers.losses(clients, self.start)
            work = self.clients.samples[clients] / self.training.batch_size
        else:
            steps = _each(clients, self.training.local_steps).astype(np.int64)
            probed.computed, work = clients, steps.astype(np.float64)
            probed.result = self._train(clients, steps, _each(clients, self.start.step_size), self._bits(clients))
            answers = np.nan_to_num(probed.result.update_norm, nan=np.inf)  # who diverged has answered
        probed.seconds += float(self._ready_time(clients, work).max())
        probed.have_the_model = np.union1d(probed.have_the_model, clients)
        return answers

    def train(self, plan: RoundPlan) -> Outcome:
        """Let all members train, and wait for all of them."""
        members, schedule = plan.members, self.start.step_size * plan.step_factor
        steps = _each(members, self.training.local_steps, plan.local_steps).astype(np.int64)
        sizes, bits = _each(members, schedule, plan.step_size), self._bits(members, plan.upload_bits)
        if self.probed.result is None:
            result = self._train(members, steps, sizes, bits)
        else:
            order = np.argsort(self.probed.computed)
            result = self.probed.result.part(order[np.searchsorted(self.probed.computed, members, sorter=order)])
        round_time, failed = self._time(plan, steps, bits)
        self._keep_rest(members, result, ~failed)
        times = self.now.compute_time[members], self.now.upload_time[members]
        seconds = self.probed.seconds + round_time
        return Outcome(plan, result, sizes, _each(members, schedule), steps, *times, failed, seconds, bits)

    def train_some(self, plan: BufferedPlan) -> Outcome:
        """Let some clients start, and wait for the first updates of all that are in flight."""
        start, now = self.start, self.now
        started, before = self._started(plan), self.clients.state.flight
        flight = started if before is None else before.joined_by(started)
        uploads = now.upload_time[flight.client] / self.fleet.total_bandwidth  # in this round
        seconds = uploads * self._size(flight.upload_bits if flight.noise.shape[1] else None)
        landed, failed, self.clients.state.flight, end = flight.wait(plan.wait_for, start.time, seconds)
        staleness = start.round_index - landed.version
        arrived = RoundPlan(
            members=landed.client,
            weights=landed.weight * (1.0 + staleness) ** -plan.staleness_exponent,
            note={**(plan.note or {}), "staleness": staleness.tolist()},
        )
        times = landed.compute_time, now.upload_time[landed.client]
        sizes, steps = landed.step_size, landed.local_steps
        bits = landed.upload_bits if landed.noise.shape[1] else None
        seconds_passed = end - start.time
        return Outcome(arrived, landed.result, sizes, sizes, steps, *times, failed, seconds_passed, bits, staleness)

    def start_again(self, start: Start) -> "SimulatedRound":
        """Return the round from w₀, with nobody in flight; the time that probes took stays."""
        self.clients.state.flight, self.clients.state.rest = None, Rows()
        return SimulatedRound(self.clients, start, self.now, Probed(seconds=self.probed.seconds))

    def _started(self, plan: BufferedPlan) -> Flight:
        """Return those who start now: what they do depends on nothing later."""
        clients, start, now = plan.start, self.start, self.now
        steps = _each(clients, self.training.local_steps, plan.local_steps).astype(np.int64)
        sizes, bits = _each(clients, start.step_size * plan.step_factor), self._bits(clients, plan.upload_bits)
        ready = start.time + self._ready_time(clients, steps.astype(np.float64))
        result = self._train(clients, steps, sizes, bits)
        present = np.ones(len(clients), dtype=bool) if now.available is None else now.available[clients]
        self._keep_rest(clients, result, present)
        return Flight(
            client=clients,
            weight=plan.weights,
            version=np.full(len(clients), start.round_index),
            step_size=sizes,
            local_steps=steps,
            compute_time=now.compute_time[clients],
            ready=np.where(present, ready, np.inf),
            update=result.update,
            buffers=np.empty((len(clients), start.buffers.size)) if result.buffers is None else result.buffers,
            largest_gradient_norm=result.largest_gradient_norm,
            mean_gradient_norm=result.mean_gradient_norm,
            mean_loss=result.mean_loss,
            upload_bits=np.full(len(clients), WHOLE) if bits is None else bits,
            noise=np.empty((len(clients), 0)) if result.noise is None else result.noise,
        )

    def _idle(self) -> Booleans | None:
        """Return who is available and not in flight."""
        available, in_flight = self.now.available, self.clients.in_flight
        if not len(in_flight):
            return available
        idle = np.ones(len(self.clients.fleet), dtype=bool) if available is None else available.copy()
        idle[in_flight] = False
        return idle

    def _train(self, clients: Integers, steps: Integers, sizes: Vector, bits: Integers | None) -> LocalResult:
        if not len(clients):
            return LocalResult.of_nobody(self.start.model.size, 0 if bits is None else len(BITS))
        rest = self._rest(clients) if self.training.error_feedback else None
        work = Work(clients=clients, local_steps=steps, step_size=sizes, upload_bits=bits, rest=rest)
        return self.workers.train(work, self.start)

    def _rest(self, clients: Integers) -> Parameters:
        """Return what clients did not send before, as rows; of whoever never trained, nothing."""
        known, nothing = self.clients.state.rest.by_client, np.zeros_like(self.start.model)
        return np.array([known.get(client, nothing) for client in clients.tolist()], dtype=np.float32)

    def _keep_rest(self, clients: Integers, result: LocalResult, sent: Booleans) -> None:
        """Let those who have sent keep what they did not; the others lose nothing."""
        if result.rest is None:
            return
        for place in np.flatnonzero(sent).tolist():
            self.clients.state.rest.by_client[int(clients[place])] = result.rest[place].copy()

    def _bits(self, clients: Integers, chosen: int | Integers | None = None) -> Integers | None:
        """Return how many bits a number each upload has; None: all have 32, and their noise is not measured."""
        if chosen is not None and self.training.upload_top:
            raise InputError("a plan's upload_bits", "be left out with upload_top", str(chosen), "choose one of them")
        return bits_of(clients, self.start.upload_bits, chosen)

    def _size(self, bits: Integers | None) -> Vector | float:
        """Return the size of uploads over that which the channel's times are those of."""
        return relative_sizes(self.training, bits, self.start.model.size, self.start.buffers.size)

    def _ready_time(self, clients: Integers, steps: Vector) -> Vector:
        """Return when clients are done: those who need it download, then all compute in proportion to their steps."""
        ready: Vector = self.now.compute_time[clients] * (steps / self.training.local_steps)
        if self.fleet.download_time is None:
            return ready
        download = self.fleet.download_time[clients] * float(self.start.models_sent)
        return ready + np.where(np.isin(clients, self.probed.have_the_model), 0.0, download)

    def _time(self, plan: RoundPlan, steps: Integers, bits: Integers | None) -> tuple[float, Booleans]:
        """Return the seconds of the round and who failed: the absent, who take no time, and the late."""
        now, fleet = self.now, self.fleet
        present = np.ones(len(plan.members), dtype=bool) if now.available is None else now.available[plan.members]
        members = plan.members[present]
        still_to_do = steps[present].astype(np.float64) if self.probed.result is None else np.zeros(len(members))
        timing = time_round(
            Uploads(
                ready_time=self._ready_time(members, still_to_do),
                upload_time=now.upload_time[members] * self._size(_part(bits, present)),
                counts=_part(plan.counts, present),
                bandwidth=_part(plan.bandwidth, present),
                bandwidth_cap=_part(fleet.bandwidth_cap, members),
            ),
            total_bandwidth=fleet.total_bandwidth,
            link=self.training.link,
            duplicates=self.training.duplicates,
            deadline=plan.deadline,
        )
        failed = ~present
        failed[present] = timing.late
        return timing.round_time, failed


def _part(values: npt.NDArray[Number] | None, places: Integers | Booleans) -> npt.NDArray[Number] | None:
    return None if values is None else values[places]


def _each(clients: Integers, usual: float, chosen: npt.ArrayLike | None = None) -> Vector:
    return np.full(len(clients), usual if chosen is None else chosen, dtype=np.float64)
