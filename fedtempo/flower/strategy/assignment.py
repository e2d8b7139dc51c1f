"""One client's local training: what it is asked for, when that was sent, and what it reported."""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from fedtempo.checks import Integers
from fedtempo.engine.clients import Start
from fedtempo.flower.strategy.failures import Failure
from fedtempo.flower.strategy.messages import COMPUTE_SECONDS
from fedtempo.learning.trainer import NO_BUFFERS, Buffers, Parameters
from fedtempo.theory.bits import WHOLE


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class Assignment:
    """Local training that one client is asked for."""

    client: int
    model: Parameters  # that it starts from
    local_steps: int
    step_size: float  # that it trains with
    schedule: float  # η of the schedule at its start, times the plan's factor
    bandwidth: float  # that its upload has
    weight: float = 0.0  # of its update, before the discount for staleness; for asynchronous plans
    version: int = 0  # server steps that had been taken when it started
    upload_bits: int | None = None  # of a number in its update, which it packs; None: it sends its model as it is
    fetched: bool = False  # the client has trained already, and keeps the result until it is fetched

    @property
    def path(self) -> float:
        """Step size times steps: updates grow with it."""
        return self.step_size * self.local_steps


def assign(
    start: Start,
    clients: Integers,
    *,
    local_steps: npt.ArrayLike,
    step_size: npt.ArrayLike,
    schedule: float,
    bandwidth: npt.ArrayLike,
    weights: npt.ArrayLike = 0.0,
    upload_bits: Integers | None = None,
    kept: Container[int] = (),
) -> list[Assignment]:
    """Return an assignment for each client; numbers hold for all, or there is one for each.

    ``upload_bits``: of each; None: models travel as they are. ``kept``: clients that have trained already, and keep
    the result.
    """
    numbers = (local_steps, step_size, bandwidth, weights)
    bits = [None] * len(clients) if upload_bits is None else upload_bits.tolist()
    rows = zip(*(np.broadcast_to(one, clients.shape).tolist() for one in (clients, *numbers)), bits, strict=True)
    return [
        Assignment(
            client=client,
            model=start.model,
            local_steps=steps,
            step_size=size,
            schedule=schedule,
            bandwidth=share,
            weight=weight,
            version=start.round_index,
            upload_bits=size_of_upload,
            fetched=client in kept,
        )
        for client, steps, size, share, weight, size_of_upload in rows
    ]


@dataclass(frozen=True, eq=False, slots=True)
class SentAssignment:
    """An assignment on its way, or being worked on."""

    assignment: Assignment
    at: float  # on the monotonic clock

    @property
    def client(self) -> int:
        """Whose it is."""
        return self.assignment.client


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class ClientReport:
    """What came of an assignment: an update, or a failure."""

    assignment: Assignment
    sent: float | None  # on the monotonic clock; None: by an earlier process
    arrived: float | None = None  # None: no reply
    numbers: Mapping[str, float] = field(default_factory=dict)  # metrics, where they are finite
    update: Parameters | None = None
    buffers: Buffers = field(default_factory=lambda: NO_BUFFERS)  # of the model after training
    failure: Failure | None = None

    @property
    def client(self) -> int:
        """Whose it is."""
        return self.assignment.client

    @property
    def compute_seconds(self) -> float | None:
        """How long the client says that it computed; None if it does not, or cannot have."""
        seconds = self.numbers.get(COMPUTE_SECONDS)
        if seconds is None or seconds < 0:
            return None
        if self.assignment.fetched:
            return seconds
        elapsed = None if self.arrived is None or self.sent is None else self.arrived - self.sent
        return seconds if elapsed is not None and seconds <= elapsed else None


def upload_bits_of(assignments: Sequence[Assignment]) -> Integers | None:
    """Return how many bits a number each upload has; None: models travel as they are."""
    bits = [one.upload_bits for one in assignments]
    if all(one is None for one in bits):
        return None
    return np.array([WHOLE if one is None else one for one in bits], dtype=np.int64)
