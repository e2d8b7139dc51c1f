"""The seam between the loop and those who train, simulated or real: what is asked of them, what they report."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from fedtempo.checks import Booleans, Integers, Vector
from fedtempo.learning.trainer import Buffers, Evaluation, LocalResult, Parameters
from fedtempo.policies.policy import BufferedPlan, Probe, RoundPlan
from fedtempo.state import Stateful


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class Start:
    """From where a round starts."""

    model: Parameters
    buffers: Buffers  # of the model, which nobody trains
    round_index: int  # r, since training (last) started from w₀
    rounds_done: int  # over all phases
    time: float  # seconds since the run started
    step_size: float  # η of the schedule
    upload_bits: int | None = None  # of uploads whose plan names none; None: 32, and their noise is not measured
    direction: Parameters | None = None  # the server's last, for each local step, where clients follow it too
    deviation: Callable[[Integers], Parameters] | None = (
        None  # y_i - ȳ of some clients, where these correct their steps
    )

    @property
    def models_sent(self) -> int:
        """How many vectors of the model's size a client downloads."""
        return 1 + (self.direction is not None) + (self.deviation is not None)


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class Conditions:
    """What is known of the clients before a round."""

    available: Booleans | None = None  # who is available and idle; None: everyone
    compute_time: Vector | None = None  # τ, where it is known beforehand
    upload_time: Vector | None = None  # t


class Outcome(NamedTuple):
    """Who took part in a round and what came of it, one entry for each member of the plan."""

    plan: RoundPlan
    result: LocalResult
    step_size: Vector  # that it trained with
    schedule: Vector  # η of the schedule when it started, times the plan's factor
    local_steps: Integers  # that it was to run
    compute_time: Vector  # measured, of the usual local steps
    upload_time: Vector  # measured, brought to one unit of bandwidth
    failed: Booleans
    seconds: float  # of the round, probes included
    upload_bits: Integers | None = None  # of each upload; None: 32
    staleness: Integers | None = None  # server steps since each started; None: none


class Round(Protocol):
    """A round that has begun: it can be asked, and then trained, once."""

    conditions: Conditions

    @property
    def seconds_asked(self) -> float:
        """What probes took so far."""

    def ask(self, probe: Probe) -> Vector:
        """Answer a probe, NaN for who does not; what it takes counts towards the round."""

    def train(self, plan: RoundPlan) -> Outcome:
        """Let all members train, and wait for all of them or until the deadline."""

    def train_some(self, plan: BufferedPlan) -> Outcome:
        """Let some clients start, and wait for the first updates of all that are in flight."""

    def start_again(self, start: Start) -> "Round":
        """Return the same round from w₀, with nobody in flight; the time that probes took stays."""


class Clients(Protocol):
    """Those who train."""

    repeatable: bool  # whether a round that is run again comes out the same

    @property
    def in_flight(self) -> Integers:
        """Clients that asynchronous plans started and that are still to arrive."""

    @property
    def parts(self) -> dict[str, Stateful]:
        """All that a resumed run needs, by name."""

    def begin(self, start: Start) -> Round:
        """Begin a round: find out who is available."""

    def evaluate(self, model: Parameters, buffers: Buffers) -> Evaluation | None:
        """Return the loss over all training data and the accuracy on the test data, None if nobody knows them.

        This takes no time.
        """

    def losses(self, model: Parameters, buffers: Buffers, clients: Integers) -> Vector | None:
        """Return Fᵢ of a model for some clients, None if nobody knows them. This takes no time."""
