"""The paper's scheme: pilot runs first, then one q from what they measured; and the oracle that needs no pilots."""

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from fedtempo.checks import (
    InputError,
    Vector,
    as_numbers,
    check_count,
    check_fraction,
    check_nonnegative,
    first_violation,
)
from fedtempo.fleet import Fleet
from fedtempo.policies.availability import AvailabilityState
from fedtempo.policies.fixed import FixedSampling
from fedtempo.policies.options import read_options
from fedtempo.policies.policy import Policy, PolicySetting, Restart, RoundContext, RoundPlan, RoundReport
from fedtempo.theory.estimation import estimate_beta_over_alpha, estimate_gradient_bounds
from fedtempo.theory.optimum import optimal_sampling
from fedtempo.theory.sampling import statistical_sampling, uniform_sampling, weighted_sampling

PILOTS = {"pilot-uniform": uniform_sampling, "pilot-weighted": weighted_sampling}
TRAIN = "train"  # the phase after the pilots


@dataclass(frozen=True, kw_only=True, slots=True)
class PilotOptions:
    """Of ``statistical``: how long pilots run."""

    losses: tuple[float, ...]  # F_s: a pilot ends at the lowest
    max_rounds: int = 500  # or after so many rounds

    def __post_init__(self) -> None:
        """Check the options."""
        losses = as_numbers("losses", self.losses)
        if losses.ndim != 1 or not losses.size or first_violation(losses, allow_zero=False) is not None:
            raise InputError(name="losses", rule="be a list of positive losses for the pilots", got=repr(self.losses))
        object.__setattr__(self, "losses", tuple(losses.tolist()))
        check_count("max_rounds", self.max_rounds)


@dataclass(frozen=True, kw_only=True, slots=True)
class ProposedOptions(PilotOptions):
    """Of ``proposed``: how long pilots run, and how far q may go."""

    floor: float = 0.05  # share of the data shares in q: keeps weights below 1/(K floor)

    def __post_init__(self) -> None:
        """Check the options."""
        PilotOptions.__post_init__(self)
        check_fraction("floor", self.floor)


@dataclass(frozen=True, kw_only=True, slots=True)
class OracleOptions:
    """Of ``proposed-oracle``: what no real run knows beforehand."""

    beta_over_alpha: float  # β/α
    gradient_bound: npt.ArrayLike | None = None  # G of each client; None: the engine measures them
    floor: float = 0.05  # as in ProposedOptions

    def __post_init__(self) -> None:
        """Check the options."""
        check_nonnegative("beta_over_alpha", self.beta_over_alpha)
        check_fraction("floor", self.floor)


@dataclass(eq=False, slots=True)
class PilotState:
    """How far the pilots are, and what they measured."""

    phase: str  # the pilot that runs, or "train"
    starting: bool  # whether the phase has still to start from w₀
    sampling_prob: Vector  # q of the phase
    rounds: dict[str, tuple[float, ...]]  # of each pilot, to each F_s; NaN where it did not get there
    norms: Vector  # the largest gradient norm that each client reported; 0: none
    note: dict[str, object] | None  # what the pilots led to, until the records have it
    availability: AvailabilityState


class PilotedSampling(Policy):
    """Run uniform and weighted sampling from w₀ down to the losses F_s, then start again with the q they lead to.

    With a ``floor`` (``proposed``): gradient bounds and β/α from the pilots, then the exact optimum of P3. Where the
    ratio of rounds allows no estimate of β/α, the closed form for β/α = 0 is used; the records say which. Without one
    (``statistical``): gradient bounds from the same pilots, then q ∝ p G.
    """

    state: PilotState

    def __init__(self, fleet: Fleet, cohort_size: int, pilots: PilotOptions) -> None:
        """Start with the first pilot; ``pilots`` are ``ProposedOptions`` or those of ``statistical``."""
        self.fleet, self.cohort_size, self.pilots = fleet, check_count("cohort_size", cohort_size), pilots
        first, size = next(iter(PILOTS)), len(fleet)
        self.state = PilotState(
            phase=first,
            starting=True,
            sampling_prob=PILOTS[first](fleet),
            rounds={first: self._not_reached()},
            norms=np.zeros(size),
            note=None,
            availability=AvailabilityState.at_first(size),
        )

    @property
    def sampling(self) -> FixedSampling:
        """Draws from the q of the present phase."""
        return FixedSampling(self.fleet, self.state.sampling_prob, self.cohort_size, self.state.availability)

    def plan(self, context: RoundContext) -> RoundPlan | Restart:
        """Draw from the q of the present phase, which starts from w₀."""
        state = self.state
        if state.starting and context.round_index > 0:
            return Restart()
        state.starting = False
        plan = self.sampling.plan(context)
        if state.note is not None:
            plan = replace(plan, note={**(plan.note or {}), **state.note})
            state.note = None
        return replace(plan, evaluate=state.phase != TRAIN, phase=state.phase)

    def observe(self, report: RoundReport) -> None:
        """Keep the largest norms; note the losses reached, and go on to the next phase at the end of a pilot."""
        state = self.state
        self.sampling.observe(report)
        if state.phase == TRAIN:
            return
        norms = np.where(report.failed, 0.0, report.largest_gradient_norm)
        np.maximum.at(state.norms, report.plan.members, norms)
        loss, rounds = np.inf if report.loss is None else report.loss, report.round_index + 1
        state.rounds[state.phase] = reached = tuple(
            float(rounds) if np.isnan(before) and loss <= target else before
            for before, target in zip(state.rounds[state.phase], self.pilots.losses, strict=True)
        )
        if not np.isnan(reached).any() or rounds >= self.pilots.max_rounds:
            self._next_phase()

    def _next_phase(self) -> None:
        state, pilots = self.state, list(PILOTS)
        place = pilots.index(state.phase) + 1
        state.starting = True
        if place == len(pilots):
            state.phase = TRAIN
            state.sampling_prob, state.note = self._conclude()
        else:
            state.phase = pilots[place]
            state.sampling_prob = PILOTS[state.phase](self.fleet)
            state.rounds[state.phase] = self._not_reached()

    def _not_reached(self) -> tuple[float, ...]:
        return (np.nan,) * len(self.pilots.losses)

    def _conclude(self) -> tuple[Vector, dict[str, object]]:
        """Return q for training, and for the records what it follows from."""
        seen = np.flatnonzero(self.state.norms)
        bound = estimate_gradient_bounds(seen, self.state.norms[seen], num_clients=len(self.fleet))
        known = replace(self.fleet, gradient_bound=bound.gradient_bound)
        note = {"gradient_bound": bound.gradient_bound.tolist(), "measured": int(bound.measured.sum())}
        if not isinstance(self.pilots, ProposedOptions):
            return statistical_sampling(known), note
        uniform, weighted = (self.state.rounds[phase] for phase in PILOTS)
        ratio = estimate_beta_over_alpha(known, uniform, weighted, cohort_size=self.cohort_size)
        note |= {"beta_over_alpha": ratio.value, "fallback": ratio.value is None, "estimate": str(ratio)}
        floor = self.pilots.floor
        q = optimal_sampling(known, cohort_size=self.cohort_size, beta_over_alpha=ratio.value or 0.0, floor=floor)
        return q, note | {"floor": floor, "sampling_prob": q.tolist()}


def piloted(kind: type[PilotOptions], setting: PolicySetting) -> PilotedSampling:
    """Make ``proposed`` or ``statistical``, by the kind of its options."""
    return PilotedSampling(setting.fleet, setting.cohort_size, read_options(kind, setting.options))


def oracle(setting: PolicySetting) -> FixedSampling:
    """Make ``proposed-oracle``: the q of the exact optimum, with gradient bounds and β/α known beforehand."""
    options = read_options(OracleOptions, setting.options)
    bound = options.gradient_bound
    if bound is None:
        if setting.known_gradient_bound is None:
            raise InputError(
                name="proposed-oracle",
                rule="know the gradient bounds beforehand",
                got="an engine that does not know them",
                remedy="give them as its option gradient_bound, from fedtempo estimate",
            )
        bound = setting.known_gradient_bound()
    fleet = replace(setting.fleet, gradient_bound=as_numbers("gradient_bound", bound))
    ratio = float(options.beta_over_alpha)
    q = optimal_sampling(fleet, cohort_size=setting.cohort_size, beta_over_alpha=ratio, floor=options.floor)
    return FixedSampling(setting.fleet, q, setting.cohort_size)
