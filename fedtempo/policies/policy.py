"""The seam between policies and engines: what a policy is told, what it decides, what it learns of the outcome."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from fedtempo.checks import Integers, Vector
from fedtempo.fleet import Fleet


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class RoundContext:
    """What a policy may know when it plans a round."""

    round_index: int  # r, since training (last) started from w₀
    time: float  # seconds since the run started
    step_size: float  # η of the engine's schedule
    local_steps: int  # E of the engine's settings
    rng: np.random.Generator  # the policy's own stream for this round
    available: npt.NDArray[np.bool_] | None = None  # who is there; None: everyone
    compute_time: Vector | None = None  # current or forecast τ, where the channel tells
    upload_time: Vector | None = None  # and t
    answers: Vector | None = None  # to the probe, if the policy asked for one


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class Probe:
    """A question to some clients before the round is planned; the engine charges the time that it takes.

    ``loss``: each evaluates F_i of the current model. ``update_norm``: each runs its local steps and tells ‖Δ_i‖; those
    planned afterwards need not compute again.
    """

    clients: Integers
    ask: Literal["loss", "update_norm"]


class Restart:
    """A wish to start again from w₀: the engine does so and asks for a plan again, as of round 0. The clock runs on."""


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class RoundPlan:
    """Who trains in a round, and how; arrays have one entry for each member."""

    members: Integers  # distinct clients
    weights: Vector  # of each member's update in the aggregate, multiplicity included
    counts: Integers | None = None  # how often each was drawn; None: once
    bandwidth: Vector | None = None  # f_i; None: the engine's link decides
    local_steps: int | Integers | None = None  # None: the engine's E
    step_size: float | Vector | None = None  # None: the engine's schedule
    deadline: float | None = None  # seconds after which the round ends without those who are late
    evaluate: bool = False  # the policy needs the loss after this round
    phase: str = "train"  # "train", or the name of a pilot, whose time is reported apart
    note: Mapping[str, Any] | None = None  # goes into the records


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class RoundReport:
    """What came of a round; arrays have one entry for each member of the plan, NaN where it failed."""

    plan: RoundPlan
    round_index: int
    round_time: float
    compute_time: Vector  # measured τ_i
    upload_time: Vector  # measured t_i, brought to one unit of bandwidth
    largest_gradient_norm: Vector
    mean_gradient_norm: Vector
    update_norm: Vector
    mean_loss: Vector
    failed: npt.NDArray[np.bool_]
    aggregate_norm: float  # ‖Σ weight Δ‖, from which the signal s² can be estimated
    loss: float | None  # F(w) after the round, where it was evaluated
    accuracy: float | None


@runtime_checkable
class Policy(Protocol):
    """Decides who trains, how often and with what bandwidth.

    A policy with a memory may add ``state() -> dict`` of JSON values and ``restore(state)``, so that a run killed half
    way resumes to the byte; one without needs neither.
    """

    def plan(self, context: RoundContext) -> RoundPlan | Probe | Restart:
        """Plan the next round, or ask for something first."""

    def observe(self, report: RoundReport) -> None:
        """Learn what came of it."""


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class PolicySetting:
    """What a policy is made from: nominal times, and gradient bounds of 1, since nobody knows them yet."""

    fleet: Fleet
    cohort_size: int  # K
    options: Mapping[str, Any] = field(default_factory=dict)  # of the table [policy.<name>] in the configuration
    known_gradient_bound: Callable[[], Vector] | None = None  # for oracles: what no real run knows beforehand
