"""Sends assignments to clients and reads their replies, under whatever clock."""

import math
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from flwr.app import ArrayRecord, MessageType

from fedtempo.checks import Integers, Vector
from fedtempo.engine.clients import Start
from fedtempo.flower.strategy.assignment import Assignment, ClientReport, SentAssignment
from fedtempo.flower.strategy.failures import Failure, FailureKind
from fedtempo.flower.strategy.judge import Judge
from fedtempo.flower.strategy.layout import Layout
from fedtempo.flower.strategy.messages import (
    ARRAYS,
    ASK,
    BANDWIDTH,
    CLIENT,
    COHORT,
    COHORT_SIZE,
    COMPUTE_SECONDS,
    FETCH,
    KEEP,
    ROUND,
    ROUND_INDEX,
    STEP_SIZE,
    STEPS,
    ConfigValue,
    MessageConfig,
)
from fedtempo.flower.strategy.messenger import Messenger, Reply
from fedtempo.flower.strategy.metric_names import EVALUATION_LOSSES, loss_of

Numbers = Mapping[str, float]
NO_MEASUREMENTS: Mapping[int, Numbers] = {}


class Dispatch:
    """What clients are sent, and what their replies amount to."""

    def __init__(self, messenger: Messenger, layout: Layout, config: MessageConfig) -> None:
        """Take the way to clients, the layout of models, and what an app sends along with every assignment."""
        self.messenger, self.layout, self.config = messenger, layout, dict(config)
        self.judge = Judge(layout)

    def send(
        self, assignments: Sequence[Assignment], start: Start, *, together: bool = False
    ) -> dict[str, SentAssignment]:
        """Send each client the model, or ask for what it keeps; return what was sent by the id of the message.

        ``together``: they are the cohort of a round, and each message names it.
        """
        fetched = [one for one in assignments if one.fetched]
        trained = [one for one in assignments if not one.fetched]
        cohort: MessageConfig = {COHORT: secrets.token_hex(8), COHORT_SIZE: len(trained)} if together else {}
        at, message_of = time.monotonic(), dict[int, str]()
        for some, arrays, extra in (
            (fetched, None, {ASK: FETCH}),
            (trained, self.layout.pack(start.model, start.buffers), cohort),
        ):
            configs = [{**self._training(one, start), **extra} for one in some]
            sent = self.messenger.send([one.client for one in some], MessageType.TRAIN, arrays, configs)
            message_of |= {client: message for message, client in sent.items()}
        return {message_of[one.client]: SentAssignment(one, at) for one in assignments}

    def collect(
        self, sent: Mapping[str, SentAssignment], seconds: float, kept: Mapping[int, Numbers] = NO_MEASUREMENTS
    ) -> list[ClientReport]:
        """Wait for the replies, at most so long; return a report for each assignment, in their order.

        ``kept``: what clients measured whose updates are fetched.
        """
        replies = self.messenger.collect({message: one.client for message, one in sent.items()}, seconds)
        return [self.read(one, replies.get(one.client), kept) for one in sent.values()]

    def read(
        self, sent: SentAssignment, reply: Reply | None, kept: Mapping[int, Numbers] = NO_MEASUREMENTS
    ) -> ClientReport:
        """Return what a client reported; refuse what cannot reach the model."""
        report = ClientReport(assignment=sent.assignment, sent=sent.at)
        if reply is None:
            waited = f"within {time.monotonic() - sent.at:.3g} s"
            return replace(report, failure=Failure(FailureKind.NO_REPLY, waited))
        if reply.failure is not None:
            return replace(report, arrived=reply.at, failure=reply.failure)
        measured = kept[sent.client] if sent.assignment.fetched else {}
        report = replace(report, arrived=reply.at, numbers={**measured, **reply.numbers()})
        found = self.judge.read(sent.assignment.model, reply.content.array_records.get(ARRAYS, ArrayRecord()))
        if isinstance(found, Failure):
            return replace(report, failure=found)
        return replace(report, update=found[0], buffers=found[1])

    def train_and_keep(
        self, assignments: Sequence[Assignment], start: Start, seconds: float
    ) -> dict[int, dict[str, float]]:
        """Let clients train and keep the result; return what those measured who reply within so many seconds."""
        arrays = self.layout.pack(start.model, start.buffers)
        configs = [{**self._training(one, start), ASK: KEEP} for one in assignments]
        at = time.monotonic()
        sent = self.messenger.send([one.client for one in assignments], MessageType.TRAIN, arrays, configs)
        replies = [one for one in self.messenger.collect(sent, seconds).values() if one.failure is None]
        kept = {one.client: one.numbers() for one in replies}
        for one in replies:
            if kept[one.client].get(COMPUTE_SECONDS, 0.0) > one.at - at:
                del kept[one.client][COMPUTE_SECONDS]  # nobody computes for longer than it takes to answer
        return kept

    def losses(self, clients: Integers, start: Start, seconds: float) -> Vector:
        """Return F_i of the model for some clients, NaN for those who do not report it in time."""
        numbers, arrays = clients.tolist(), self.layout.pack(start.model, start.buffers)
        configs = [self._place(client, start) for client in numbers]
        sent = self.messenger.send(numbers, MessageType.EVALUATE, arrays, configs)
        replies = self.messenger.collect(sent, seconds)
        return np.array([_loss(replies.get(client)) for client in numbers])

    def _place(self, client: int, start: Start) -> dict[str, ConfigValue]:
        return {**self.config, ROUND: start.rounds_done + 1, ROUND_INDEX: start.round_index, CLIENT: client}

    def _training(self, one: Assignment, start: Start) -> dict[str, ConfigValue]:
        how = {STEPS: one.local_steps, STEP_SIZE: one.step_size, BANDWIDTH: one.bandwidth}
        return {**self._place(one.client, start), **how}


def _loss(reply: Reply | None) -> float:
    return math.nan if reply is None or reply.failure is not None else loss_of(reply.numbers(), EVALUATION_LOSSES)
