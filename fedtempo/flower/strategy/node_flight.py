"""Nodes in flight: asynchronous plans started them, and their reports are still to come."""

import time
from dataclasses import replace

import numpy as np

from fedtempo.checks import Integers
from fedtempo.engine.clients import Start
from fedtempo.flower.strategy.assignment import ClientReport, SentAssignment, assign
from fedtempo.flower.strategy.dispatch import Dispatch
from fedtempo.flower.strategy.failures import Failure, FailureKind
from fedtempo.flower.strategy.messenger import Reply


class NodeFlight:
    """Who has started and is still to arrive; ``lost`` are those whose replies went to an earlier process."""

    def __init__(self, dispatch: Dispatch, deadline: float) -> None:
        """Start with nobody; ``deadline``: seconds that a client has to report."""
        self.dispatch, self.deadline = dispatch, deadline
        self.sent: dict[str, SentAssignment] = {}  # by the id of the message
        self.lost: list[int] = []

    @property
    def clients(self) -> Integers:
        """Their numbers."""
        return np.array([*(one.client for one in self.sent.values()), *self.lost], dtype=np.int64)

    def forget_all(self) -> None:
        """Wait for nobody any longer."""
        self.dispatch.messenger.forget(self.sent)
        self.sent, self.lost = {}, []

    def report_lost(self, start: Start, step_size: float) -> list[ClientReport]:
        """Report those who were lost with an earlier process, once; since when they were in flight is not known."""
        clients, self.lost = np.array(self.lost, dtype=np.int64), []
        unknown = assign(start, clients, local_steps=1, step_size=step_size, schedule=step_size, bandwidth=1.0)
        failure = Failure(FailureKind.LOST)
        return [ClientReport(assignment=replace(one, version=0), sent=None, failure=failure) for one in unknown]

    def arrivals(self, wait_for: int) -> list[ClientReport]:
        """Wait for so many updates, or for all; return them, and those who failed meanwhile.

        The first updates of a run are judged together, once there are enough to know a usual size from an absurd one.
        """
        judge = self.dispatch.judge
        landed, unjudged, taken = dict[int, ClientReport](), list[ClientReport](), 0
        while self.sent and taken < wait_for:
            reports = self._next_reports()
            landed |= {one.client: one for one in reports}
            unjudged += [one for one in reports if one.update is not None]
            if judge.can_judge(len(unjudged)) or not self.sent:
                judged = judge.refuse_absurd(unjudged)
                landed |= {one.client: one for one in judged}
                taken += sum(one.update is not None for one in judged)
                unjudged = []
        return list(landed.values())

    def _next_reports(self) -> list[ClientReport]:
        """Wait for the next replies, or until a client has missed its deadline."""
        sent, messenger = self.sent, self.dispatch.messenger
        next_end = min(one.at for one in sent.values()) + self.deadline
        waiting = {message: one.client for message, one in sent.items()}
        replies = messenger.arrived(waiting, max(next_end - time.monotonic(), 0.0))
        late = [message for message, one in sent.items() if one.at + self.deadline <= time.monotonic()]
        messenger.forget(late)
        found: dict[str, Reply | None] = {**dict.fromkeys(late), **{reply.message_id: reply for reply in replies}}
        return [self.dispatch.read(sent.pop(message), reply) for message, reply in found.items()]
