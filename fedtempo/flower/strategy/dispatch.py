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
from fedtempo.flower.strategy.failures import Failure, FailureKind, refused
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
    FOLLOWED_DIRECTION,
    KEEP,
    LOCAL_DIRECTION,
    ROUND,
    ROUND_INDEX,
    STEP_SIZE,
    STEPS,
    ConfigValue,
    MessageConfig,
)
from fedtempo.flower.strategy.messenger import Messenger, Reply
from fedtempo.flower.strategy.metric_names import EVALUATION_LOSSES, loss_of
from fedtempo.flower.strategy.packing import Packing, packing_config
from fedtempo.learning.quantisation import Quantiser

Numbers = Mapping[str, float]
NOT_FOLLOWED = (
    "local_direction must be followed by the app's own steps, which its reply does not say; "
    "the ClientApp needs the mod tempo_client() of this version, and its training follow_direction(model)"
)
NO_MEASUREMENTS: Mapping[int, Numbers] = {}


class Dispatch:
    """What clients are sent, and what their replies amount to."""

    def __init__(
        self,
        messenger: Messenger,
        layout: Layout,
        config: MessageConfig,
        *,
        quantiser: Quantiser | None = None,
        local_direction: float = 0.0,
    ) -> None:
        """Take the way to clients, the layout of models, and what an app sends along with every assignment.

        ``quantiser``: from what clients draw who round their updates; ``local_direction``: the share of the server's
        direction in their steps.
        """
        self.messenger, self.layout, self.config = messenger, layout, dict(config)
        self.key: list[int] = (quantiser or Quantiser(0)).key.tolist()
        self.local_direction = local_direction
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
            direction = None if arrays is None else self._direction(start)
            sent = self.messenger.send([one.client for one in some], MessageType.TRAIN, arrays, configs, direction)
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
        arrays = reply.content.array_records.get(ARRAYS, ArrayRecord())
        found = self.judge.read(sent.assignment.model, arrays, self._packing(sent.assignment))
        if isinstance(found, Failure):
            return replace(report, failure=found)
        if self.local_direction and report.numbers.get(FOLLOWED_DIRECTION) != self.local_direction:
            return replace(report, failure=refused(NOT_FOLLOWED))
        return replace(report, update=found[0], buffers=found[1])

    def train_and_keep(
        self, assignments: Sequence[Assignment], start: Start, seconds: float
    ) -> dict[int, dict[str, float]]:
        """Let clients train and keep the result; return what those measured who reply within so many seconds."""
        arrays = self.layout.pack(start.model, start.buffers)
        configs = [{**self._training(one, start), ASK: KEEP} for one in assignments]
        at = time.monotonic()
        numbers = [one.client for one in assignments]
        sent = self.messenger.send(numbers, MessageType.TRAIN, arrays, configs, self._direction(start))
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
        how: dict[str, ConfigValue] = {STEPS: one.local_steps, STEP_SIZE: one.step_size, BANDWIDTH: one.bandwidth}
        if self.local_direction:
            how[LOCAL_DIRECTION] = self.local_direction
        return {**self._place(one.client, start), **how, **packing_config(one.upload_bits, self.key)}

    def _packing(self, one: Assignment) -> Packing | None:
        """Return how a client was to pack its update."""
        if one.upload_bits is None:
            return None
        return Packing(bits=one.upload_bits, key=tuple(self.key), client=one.client, round_index=one.version)

    def _direction(self, start: Start) -> ArrayRecord | None:
        """Return the server's last direction, where clients follow it and there is one."""
        return None if start.direction is None else self.layout.pack_parameters(start.direction)


def _loss(reply: Reply | None) -> float:
    return math.nan if reply is None or reply.failure is not None else loss_of(reply.numbers(), EVALUATION_LOSSES)
