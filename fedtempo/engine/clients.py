"""The seam between the loop and those who train, simulated or real: what is asked of them, what comes back."""

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from fedtempo.checks import Integers, Vector
from fedtempo.learning.trainer import Evaluation, LocalResult, Parameters
from fedtempo.policies.policy import BufferedPlan, Probe, RoundPlan

Arrays = dict[str, npt.NDArray[np.generic]]


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class Start:
    """From where a round starts."""

    model: Parameters
    round_index: int  # r, since training (last) started from w₀
    rounds_done: int  # over all phases
    time: float  # seconds since the run started
    step_size: float  # η of the schedule, times the plan's factor


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class Conditions:
    """What is known of the clients before a round."""

    available: npt.NDArray[np.bool_] | None = None  # who is there and idle; None: everyone
    compute_time: Vector | None = None  # τ, where it is told
    upload_time: Vector | None = None  # t


class Outcome(NamedTuple):
    """Who took part in a round and what came of it, one entry for each member of the plan."""

    plan: RoundPlan
    result: LocalResult
    step_size: Vector  # that it trained with
    schedule: Vector  # η of the schedule when it started
    local_steps: Integers  # that it was to run
    compute_time: Vector  # measured, of the usual local steps
    upload_time: Vector  # measured, brought to one unit of bandwidth
    failed: npt.NDArray[np.bool_]
    seconds: float  # of the round, probes included


class Clients(Protocol):
    """Those who train; the loop asks them for one thing after another."""

    repeatable: bool  # whether a round that is run again comes out the same

    @property
    def in_flight(self) -> Integers:
        """Clients that asynchronous plans started and that are still to arrive."""

    def look(self, start: Start) -> Conditions:
        """Begin a round: tell who is there."""

    def ask(self, probe: Probe, start: Start) -> Vector:
        """Answer a probe; what it takes counts towards the round."""

    def train(self, plan: RoundPlan, start: Start) -> Outcome:
        """Let all members train, and wait for all of them or until the deadline."""

    def train_some(self, plan: BufferedPlan, start: Start) -> Outcome:
        """Let some clients start, and wait for the first updates of all that are in flight."""

    def start_again(self) -> Conditions:
        """Forget who is in flight: training starts again from w₀, within the same round."""

    def evaluate(self, model: Parameters) -> Evaluation | None:
        """Return the loss over all training data and the accuracy on the test data, None if nobody can tell.

        This takes no time.
        """

    def state(self) -> Arrays:
        """Return all that a resumed run needs, as arrays."""

    def restore(self, arrays: Arrays) -> None:
        """Take it up."""
