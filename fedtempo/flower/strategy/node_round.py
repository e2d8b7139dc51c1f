"""A round of Flower nodes that has begun: it can be asked, and then trained."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from fedtempo.checks import InputError, Integers, Vector
from fedtempo.engine.clients import Conditions, Outcome, Start
from fedtempo.engine.upload_sizes import bits_of, relative_sizes
from fedtempo.flower.strategy.assignment import ClientReport, assign, upload_bits_of
from fedtempo.flower.strategy.messages import UPDATE_NORM
from fedtempo.flower.strategy.notes import STALENESS_NOTE, round_note
from fedtempo.flower.strategy.results import local_result, own_metrics
from fedtempo.flower.strategy.uplink import cohort_bandwidth, cohort_mode
from fedtempo.policies.policy import BufferedPlan, Probe, RoundPlan

if TYPE_CHECKING:
    from fedtempo.flower.strategy.nodes import FlowerClients

PROBE_SHARE = 0.5  # of the deadline, to answer what a policy asks; the rest is for those who are chosen then


@dataclass(frozen=True, slots=True)
class RoundClock:
    """Since when a round counts, on the monotonic clock."""

    began: float  # while clients are in flight, the end of the round before
    looked: float  # when the server began to work on the round

    def seconds(self, ended: float, reports: Sequence[ClientReport]) -> float:
        """Return what the round took, without the time in which all had arrived already and the server was busy."""
        waited_for = [one for one in reports if one.sent is not None]
        ready = max((one.arrived or ended for one in waited_for), default=self.looked)
        return ended - self.began - max(self.looked - max(ready, self.began), 0.0)


class NodeRound:
    """A round under way."""

    def __init__(self, clients: "FlowerClients", start: Start, clock: RoundClock, conditions: Conditions) -> None:
        """Take the clients, from where they start, since when the round counts, and who is available."""
        self.clients, self.start, self.clock, self.conditions = clients, start, clock, conditions
        self.dispatch, self.fleet, self.training = clients.dispatch, clients.fleet, clients.training
        self._kept: dict[int, dict[str, float]] = {}  # what clients measured that keep an update until it is fetched

    @property
    def seconds_asked(self) -> float:
        """What probes took so far."""
        return time.monotonic() - self.clock.began

    def ask(self, probe: Probe) -> Vector:
        """Ask for losses, or for the norms of updates that clients keep; NaN for who does not answer."""
        start, seconds = self.start, PROBE_SHARE * self.clients.deadline
        if probe.ask == "path_loss":
            raise InputError("a probe", "ask for losses or update norms on Flower", "path_loss")
        if probe.ask == "loss":
            return self.dispatch.losses(probe.clients, start, seconds)
        assignments = assign(
            start,
            probe.clients,
            local_steps=self.training.local_steps,
            step_size=start.step_size,
            schedule=start.step_size,
            bandwidth=self.fleet.total_bandwidth,
            upload_bits=bits_of(probe.clients, start.upload_bits),
        )
        self._kept = self.dispatch.train_and_keep(assignments, start, seconds)
        return np.array([self._kept.get(one, {}).get(UPDATE_NORM, np.nan) for one in probe.clients.tolist()])

    def train(self, plan: RoundPlan) -> Outcome:
        """Send all members their assignments, and wait for them until the deadline."""
        clients, schedule = self.clients, self.start.step_size * plan.step_factor
        steps = np.full(len(plan.members), self.training.local_steps if plan.local_steps is None else plan.local_steps)
        # Who answered a probe has packed its update already, with the usual bits.
        bits = bits_of(plan.members, self.start.upload_bits, None if self._kept else plan.upload_bits)
        assignments = assign(
            self.start,
            plan.members,
            local_steps=steps,
            step_size=schedule if plan.step_size is None else plan.step_size,
            schedule=schedule,
            bandwidth=self._bandwidth(plan, steps, bits),
            upload_bits=bits,
            kept=self._kept,
        )
        clients.uplink.allot(assignments, cohort_mode(self.fleet, self.training, plan))
        sent = self.dispatch.send(assignments, self.start, together=True)
        limit = clients.deadline if plan.deadline is None else min(plan.deadline, clients.deadline)
        reports = self.dispatch.collect(sent, self.clock.began + limit - time.monotonic(), self._kept)
        return self._outcome(plan, self.dispatch.judge.refuse_absurd(reports))

    def train_some(self, plan: BufferedPlan) -> Outcome:
        """Send some clients their assignments, and wait for the first updates of all that are in flight."""
        clients, start, schedule = self.clients, self.start, self.start.step_size * plan.step_factor
        assignments = assign(
            start,
            plan.start,
            local_steps=self.training.local_steps if plan.local_steps is None else plan.local_steps,
            step_size=schedule,
            schedule=schedule,
            bandwidth=self.fleet.total_bandwidth,
            weights=plan.weights,
            upload_bits=bits_of(plan.start, start.upload_bits, plan.upload_bits),
        )
        clients.uplink.allot(assignments, "shared")
        clients.flight.sent |= self.dispatch.send(assignments, start)
        landed = [*clients.flight.report_lost(start, schedule), *clients.flight.arrivals(plan.wait_for)]
        staleness = [start.round_index - one.assignment.version for one in landed]
        weights = np.array([one.assignment.weight for one in landed])
        arrived = RoundPlan(
            members=np.array([one.client for one in landed], dtype=np.int64),
            weights=weights * (1.0 + np.array(staleness)) ** -plan.staleness_exponent,
            note={**(plan.note or {}), STALENESS_NOTE: staleness},
        )
        return self._outcome(arrived, landed)._replace(staleness=np.array(staleness, dtype=np.int64))

    def start_again(self, start: Start) -> "NodeRound":
        """Return the round from w₀, with nobody in flight; its clock runs on."""
        self.clients.start_again()
        return NodeRound(self.clients, start, self.clock, self.clients.conditions())

    def _bandwidth(self, plan: RoundPlan, steps: Integers, bits: Integers | None) -> Vector:
        if plan.bandwidth is not None:
            return plan.bandwidth
        return cohort_bandwidth(self.fleet, self.training, plan.members, steps, self._sizes(bits))

    def _sizes(self, bits: Integers | None) -> Vector | float:
        """Return the size of uploads over that which upload times are those of."""
        return relative_sizes(self.training, bits, self.start.model.size, self.start.buffers.size)

    def _outcome(self, plan: RoundPlan, reports: list[ClientReport]) -> Outcome:
        """Return what came of the round."""
        clients, ended = self.clients, time.monotonic()
        clients.last_end = ended
        seconds = self.clock.seconds(ended, reports)
        clients.check_fruitless(reports)
        uploads = clients.uplink.measured(reports)
        steps = np.array([one.assignment.local_steps for one in reports], dtype=np.int64)
        bits = upload_bits_of([one.assignment for one in reports])
        work, reported = steps / self.training.local_steps, [one.compute_seconds for one in reports]
        seconds_each = np.array([np.nan if one is None else one for one in reported])
        compute_time = np.where(np.isnan(seconds_each), self.fleet.compute_time[plan.members], seconds_each / work)
        clients.metrics = own_metrics(reports, self.fleet)
        return Outcome(
            plan=replace(plan, note=round_note(plan.note, reports, uploads, self.clock.began)),
            result=local_result(reports, self.dispatch.judge),
            step_size=np.array([one.assignment.step_size for one in reports]),
            schedule=np.array([one.assignment.schedule for one in reports]),
            local_steps=steps,
            compute_time=compute_time,
            upload_time=clients.uplink.upload_times(
                reports, uploads, compute_time * work, self.fleet.upload_time[plan.members], self._sizes(bits)
            ),
            failed=np.array([one.update is None for one in reports], dtype=bool),
            seconds=seconds,
            upload_bits=bits,
        )
