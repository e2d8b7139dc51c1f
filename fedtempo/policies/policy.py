"""The seam between policies and engines: what a policy knows, what it decides, what it learns of the outcome."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias, get_args, runtime_checkable

import numpy as np
import numpy.typing as npt

from fedtempo.checks import (
    Booleans,
    InputError,
    Integers,
    Vector,
    as_integers,
    as_numbers,
    check_choice,
    check_count,
    check_nonnegative,
    check_positive,
)
from fedtempo.fleet import Fleet
from fedtempo.state import NoState
from fedtempo.theory.bandwidth import LinkMode
from fedtempo.theory.bits import BITS
from fedtempo.theory.round_time import Duplicates

MemoryBits: TypeAlias = Literal[8, 32]
ServerOptimiser: TypeAlias = Literal["sgd", "adam", "yogi", "fedexp", "amsgrad"]
UploadBits: TypeAlias = Literal[2, 3, 4, 8, 16, 32, "auto"]


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class RoundContext:
    """What a policy may know when it plans a round."""

    round_index: int  # r, since training (last) started from w₀
    time: float  # seconds since the run started
    step_size: float  # η of the engine's schedule
    local_steps: int  # E of the engine's settings
    rng: np.random.Generator  # the policy's own stream for this round
    available: Booleans | None = None  # who can start: somebody, unless all are in flight; None: everyone
    compute_time: Vector | None = None  # current or forecast τ, where the channel reports it
    upload_time: Vector | None = None  # and t
    asked: Integers | None = None  # whom the last probe of this round asked; None: there was none
    answers: Vector | None = None  # of each of them; NaN: no answer

    def available_clients(self, size: int) -> Integers:
        """Return the clients that can start now, out of ``size`` in the fleet."""
        return np.arange(size) if self.available is None else np.flatnonzero(self.available)

    def there(self, size: int) -> Integers:
        """Return ``available_clients(size)``, by the name that earlier policies call it."""
        return self.available_clients(size)


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class Probe:
    """A question to some clients before the round is planned; the engine charges the time that it takes.

    ``loss``: each evaluates F_i of the current model. ``update_norm``: each runs its local steps and reports ‖Δ_i‖;
    those planned afterwards need not compute again. ``path_loss``: each runs local steps of ``step_size`` and reports
    the mean loss on the way, ∞ where it left the numbers; nothing of it is kept.
    """

    clients: Integers  # distinct
    ask: Literal["loss", "update_norm", "path_loss"]
    step_size: float | None = None  # of a path_loss alone
    local_steps: int | None = None  # likewise; None: the engine's E

    def __post_init__(self) -> None:
        """Check what the engine relies on."""
        object.__setattr__(self, "clients", _distinct("clients", self.clients))
        check_choice("ask", self.ask, ("loss", "update_norm", "path_loss"))
        if self.ask == "path_loss":
            check_positive("step_size", math.nan if self.step_size is None else self.step_size)
        elif self.step_size is not None or self.local_steps is not None:
            raise InputError("step_size and local_steps", "be those of a path_loss", f"a probe of {self.ask}")
        if self.local_steps is not None:
            check_count("local_steps", self.local_steps)
        if not self.clients.size:
            raise InputError(name="clients", rule="name whom the probe asks", got="nobody")


class Restart:
    """A wish to start again from w₀: the engine does so and asks for a plan again, as of round 0. The clock runs on."""


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class RoundPlan:
    """Who trains in a round, and how; arrays have one entry for each member."""

    members: Integers  # distinct clients
    weights: Vector  # of each member's update in the aggregate, multiplicity included
    counts: Integers | None = None  # how often each was drawn; None: once
    bandwidth: Vector | None = None  # f_i; None: the engine's link decides
    upload_bits: int | Integers | None = None  # of a number in each upload; None: the engine's
    local_steps: int | Integers | None = None  # None: the engine's E
    step_size: float | Vector | None = None  # of local training alone; None: the engine's schedule
    step_factor: float = 1.0  # of the schedule's η in this round, of those who start and of the server's step
    server_factor: float = 1.0  # of the server's step alone, beside it
    average: bool = False  # whether those who report take over the weight of those who fail
    deadline: float | None = None  # seconds after which the round ends without those who are late
    evaluate: bool = False  # the policy needs the loss after this round
    phase: str = "train"  # "train", or the name of a pilot, whose time is reported apart
    follow_memory: bool = True  # of the server, where it has one; False: it is only kept up to date
    forget: Integers | None = None  # clients of whom it is to remember nothing from now on
    note: Mapping[str, object] | None = None  # goes into the records

    def __post_init__(self) -> None:
        """Check what the engine relies on, and turn lists into arrays."""
        members = _distinct("members", self.members)
        object.__setattr__(self, "members", members)
        object.__setattr__(self, "weights", _for_each("weights", self.weights, members, above=-np.inf))
        for name in ("counts", "bandwidth", "local_steps", "step_size"):
            plain = getattr(self, name)
            if plain is not None:
                values = _for_each(name, plain, members, above=0.0, whole=name in ("counts", "local_steps"))
                object.__setattr__(self, name, values)
        _keep_bits(self, members)
        check_positive("step_factor", self.step_factor)
        check_positive("server_factor", self.server_factor)
        if self.forget is not None:
            object.__setattr__(self, "forget", _distinct("forget", self.forget))
        if self.deadline is not None:
            check_positive("deadline", self.deadline)

    def weights_of(self, reported: Booleans) -> Vector:
        """Return the weights of those who reported."""
        weights = self.weights[reported]
        return weights * (self.weights.sum() / weights.sum()) if self.average and weights.size else weights


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class BufferedPlan:
    """Who starts now while others may still be in flight: asynchronous training, one server step after another.

    Those who start train from the current model and upload over the shared link, first come, first served, whatever the
    link of synchronous rounds is. The round ends when ``wait_for`` updates have arrived, or all that are in flight; the
    others stay in flight and are not available meanwhile; who has started arrives, even if it is absent in between. The
    report's plan names the clients whose updates arrived, with the weights that these had in the end, and those who
    failed because they were not available when they should start.
    """

    start: Integers  # distinct clients, none of them in flight; may be empty while others are
    weights: Vector  # of each of their updates in the aggregate that it will land in
    wait_for: int  # arrivals that end the round
    local_steps: int | Integers | None = None  # of those who start; None: the engine's E
    upload_bits: int | Integers | None = None  # as in a RoundPlan, of those who start
    step_factor: float = 1.0  # as in a RoundPlan
    server_factor: float = 1.0  # as in a RoundPlan
    staleness_exponent: float = 0.5  # a: an update that arrives s server steps after its start counts (1+s)^-a times
    staleness_limit: float | None = None  # τ: where the stalest update of a step has s > τ, the step is τ/s as long
    mix_models: bool = False  # of those who start: w ← w + Σ weight (w_i - w) with their models w_i, not their updates
    follow_memory: bool = True  # as in a RoundPlan
    forget: Integers | None = None  # as in a RoundPlan
    note: Mapping[str, object] | None = None  # goes into the records

    def __post_init__(self) -> None:
        """Check what the engine relies on, and turn lists into arrays."""
        object.__setattr__(self, "start", _distinct("start", self.start))
        object.__setattr__(self, "weights", _for_each("weights", self.weights, self.start, above=-np.inf))
        if self.local_steps is not None:
            steps = _for_each("local_steps", self.local_steps, self.start, above=0.0, whole=True)
            object.__setattr__(self, "local_steps", steps)
        _keep_bits(self, self.start)
        if self.forget is not None:
            object.__setattr__(self, "forget", _distinct("forget", self.forget))
        check_count("wait_for", self.wait_for)
        check_positive("step_factor", self.step_factor)
        check_positive("server_factor", self.server_factor)
        check_nonnegative("staleness_exponent", self.staleness_exponent)
        if self.staleness_limit is not None:
            check_positive("staleness_limit", self.staleness_limit)


MEASURED = (
    "compute_time",
    "upload_time",
    "largest_gradient_norm",
    "mean_gradient_norm",
    "update_norm",
    "mean_loss",
)  # in a RoundReport, by member


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class RoundReport:
    """What came of a round; arrays have one entry for each member of the plan, NaN where it failed."""

    plan: RoundPlan
    round_index: int
    round_time: float
    compute_time: Vector  # measured τ_i
    upload_time: Vector  # measured t_i, brought to one unit of bandwidth
    step_size: Vector  # η of the engine's schedule when each started, times the plan's factor
    local_steps: Integers  # that each was to run
    largest_gradient_norm: Vector
    mean_gradient_norm: Vector
    update_norm: Vector
    mean_loss: Vector
    failed: Booleans
    residual_norm: Vector  # ‖Δ_i/η - y_i‖: what is new in each direction; y_i = 0 without a server memory
    aggregate_norm: float  # ‖Σ weight Δ‖, from which the signal s² can be estimated
    direction_norm: float  # ‖d‖ of the server's step w ← w + η d, memory included, momentum not
    loss: float | None  # F(w) after the round, where it was evaluated
    accuracy: float | None
    upload_bits: Integers | None = None  # of a number in each upload; None: 32
    noise: Vector | None = None  # ω, the noise of an upload of each size over its squared norm, as rows; None: unknown

    def __post_init__(self) -> None:
        """Blank what the engine knows of those who failed: a server would not."""
        if self.failed.any():
            for name in MEASURED:
                object.__setattr__(self, name, np.where(self.failed, np.nan, getattr(self, name)))

    @property
    def noise_of_uploads(self) -> Vector | None:
        """ω of each member's upload, with the bits that it had; None where it is not known."""
        if self.noise is None or self.upload_bits is None:
            return None
        own: Vector = self.noise[np.arange(len(self.noise)), np.searchsorted(BITS, self.upload_bits)]
        return np.where(self.failed, np.nan, own)


@runtime_checkable
class Policy(Protocol):
    """Decides who trains, how often and with what bandwidth.

    ``state`` is one dataclass with all that the policy learned (``fedtempo.state`` says what it may hold). A run that
    was stopped makes the policy anew from the same setting, assigns the state that was saved, and goes on to the byte.
    So whatever else a policy has is a setting, or follows from its state. None instead of a dataclass means that
    nothing can be carried over, and that a run which was stopped starts again. Inherit from this class for the
    defaults.

    A method that is more than a choice of clients names what its server does (``SERVER_TRAITS``); that comes before the
    settings of training.
    """

    state: Any = None
    server_memory: bool = False  # whether the policy counts on the server's memory of each client's last direction
    memory_bits: MemoryBits = 32  # of a number in that memory; 8: a quarter of its size
    server_optimiser: ServerOptimiser | None = None  # None: that of the settings of training
    server_momentum: float | None = None  # m; None: that of the settings of training
    server_lookahead: bool = False  # whether clients start from where the server's momentum alone would lead

    def plan(self, context: RoundContext) -> RoundPlan | BufferedPlan | Probe | Restart:
        """Plan the next round, or ask for something first."""

    def observe(self, report: RoundReport) -> None:
        """Learn what came of it."""


SERVER_TRAITS = ("server_memory", "memory_bits", "server_optimiser", "server_momentum", "server_lookahead")


class Stateless(Policy):
    """A policy that learns nothing."""

    state = NoState()

    def observe(self, report: RoundReport) -> None:
        """Learn nothing."""


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class PolicySetting:
    """What a policy is made from: nominal times, and gradient bounds of 1, since nobody knows them yet."""

    fleet: Fleet
    cohort_size: int  # K
    link: LinkMode = "paper"  # how members share the bandwidth
    duplicates: Duplicates = "paper"
    server_momentum: float = 0.0
    upload_bits: UploadBits = 32  # that plans have which name none; auto: a plan may name its own
    upload_shares: tuple[float, ...] = tuple(bits / BITS[-1] for bits in BITS)  # of 32 bits' bytes, by size
    upload_noise: tuple[float, ...] = ()  # ω to expect by size, where a plan may name its own bits
    plain_paths: bool = False  # clients run the local steps that they are asked for, along gradients as they are
    options: Mapping[str, object] = field(default_factory=dict)  # of the table [policy.<name>] in the configuration
    known_gradient_bound: Callable[[], Vector] | None = None  # for oracles: what no real run knows beforehand


def check_upload_bits(name: str, bits: object) -> None:
    """Refuse what is no size of uploads."""
    if isinstance(bits, bool) or bits not in get_args(UploadBits):
        raise InputError(name, f"be one of {', '.join(map(str, BITS))}, or auto", repr(bits))


def _keep_bits(plan: RoundPlan | BufferedPlan, members: Integers) -> None:
    if plan.upload_bits is None:
        return
    bits = _for_each("upload_bits", plan.upload_bits, members, above=0.0, whole=True)
    if not np.isin(bits, BITS).all():
        raise InputError("upload_bits", f"be of {', '.join(map(str, BITS))}", f"{str(bits.tolist())[:60]}")
    object.__setattr__(plan, "upload_bits", bits)


def _distinct(name: str, clients: npt.ArrayLike) -> Integers:
    numbers = as_integers(name, clients)
    ordered = numbers if numbers.size < 2 or (np.diff(numbers) > 0).all() else np.unique(numbers)
    if numbers.ndim != 1 or ordered.size < numbers.size or (numbers.size and ordered[0] < 0):
        raise InputError(name=name, rule="be distinct clients, from 0 on", got=f"{str(numbers.tolist())[:60]}")
    return numbers


def _for_each(
    name: str, values: npt.ArrayLike, members: Integers, *, above: float, whole: bool = False
) -> Vector | Integers:
    """Return one finite number for each member; one number alone holds for all."""
    numbers = as_integers(name, values) if whole else as_numbers(name, values)
    if numbers.ndim > 1 or numbers.shape not in ((), members.shape):
        raise InputError(
            name=name, rule=f"have one entry for each of {members.size} members", got=f"shape {numbers.shape}"
        )
    if not (np.isfinite(numbers).all() and (numbers > above).all()):
        rule = "finite" if above < 0 else "positive and finite"
        raise InputError(name=name, rule=f"be {rule}", got=f"{str(numbers.tolist())[:60]}")
    return numbers if numbers.ndim else np.full(members.shape, numbers)
