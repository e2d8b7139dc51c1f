"""The paper's scheme: pilot runs first, then one q from what they told."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedtempo.checks import InputError, Vector, as_numbers, check_count, check_fraction, first_violation
from fedtempo.fleet import Fleet
from fedtempo.policies.availability import Presence
from fedtempo.policies.fixed import FixedSampling
from fedtempo.policies.policy import Restart, RoundContext, RoundPlan, RoundReport
from fedtempo.theory.estimation import estimate_beta_over_alpha, estimate_gradient_bounds
from fedtempo.theory.optimum import optimal_sampling
from fedtempo.theory.sampling import statistical_sampling, uniform_sampling, weighted_sampling

PILOTS = {"pilot-uniform": uniform_sampling, "pilot-weighted": weighted_sampling}


@dataclass(frozen=True, kw_only=True, slots=True)
class PilotSettings:
    """How long pilots run, and what follows if they tell too little."""

    losses: tuple[float, ...]  # F_s: a pilot ends at the lowest
    max_rounds: int = 500  # or after so many rounds
    floor: float = 0.05  # share of the data shares in q: keeps weights below 1/(K floor)

    def __post_init__(self) -> None:
        """Check the settings."""
        losses = as_numbers("losses", self.losses)
        if losses.ndim != 1 or not losses.size or first_violation(losses, allow_zero=False) is not None:
            raise InputError(name="losses", rule="be a list of positive losses for the pilots", got=repr(self.losses))
        object.__setattr__(self, "losses", tuple(losses.tolist()))
        check_count("max_rounds", self.max_rounds)
        check_fraction("floor", self.floor)


class PilotedSampling:
    """Run uniform and weighted sampling from w₀ down to the losses F_s, then start again with the q they lead to.

    ``proposed``: gradient bounds and β/α from the pilots, then the exact optimum of P3. Where the ratio of rounds
    allows no estimate of β/α, the closed form for β/α = 0 is used; either way with a floor, and the records say which.
    ``statistical``: gradient bounds from the same pilots, then q ∝ p G.
    """

    def __init__(self, fleet: Fleet, cohort_size: int, pilots: PilotSettings, *, scheme: str) -> None:
        """Start with the first pilot."""
        self.fleet, self.cohort_size, self.pilots, self.scheme = fleet, cohort_size, pilots, scheme
        self.remaining = list(PILOTS)
        self.rounds: dict[str, list[float]] = {}  # of each pilot, to each F_s; NaN where it did not get there
        self.norms, self.presence = np.zeros(len(fleet)), Presence(len(fleet))
        self.note: dict[str, Any] | None = None
        self.phase, self.fresh = "", True
        self.sampling: FixedSampling
        self._begin(self.remaining.pop(0))

    def plan(self, context: RoundContext) -> RoundPlan | Restart:
        """Draw from the q of the present phase, which starts from w₀."""
        if self.fresh and context.round_index > 0:
            return Restart()
        self.fresh = False
        plan = self.sampling.plan(context)
        if self.note is not None:
            plan = replace(plan, note={**(plan.note or {}), **self.note})
            self.note = None
        return replace(plan, evaluate=self.phase != "train", phase=self.phase)

    def observe(self, report: RoundReport) -> None:
        """Keep the largest norms; note the losses reached, and go on to the next phase at the end of a pilot."""
        self.presence.observe(report)
        if self.phase == "train":
            return
        norms = np.where(report.failed, 0.0, report.largest_gradient_norm)
        np.maximum.at(self.norms, report.plan.members, norms)
        reached = self.rounds[self.phase]
        for s, target in enumerate(self.pilots.losses):
            if np.isnan(reached[s]) and report.loss is not None and report.loss <= target:
                reached[s] = report.round_index + 1
        if not np.isnan(reached).any() or report.round_index + 1 >= self.pilots.max_rounds:
            self._begin(self.remaining.pop(0) if self.remaining else "train")

    def state(self) -> dict[str, Any]:
        """Return what the pilots told so far."""
        return {
            "phase": self.phase,
            "fresh": self.fresh,
            "remaining": self.remaining,
            "rounds": {phase: [None if np.isnan(r) else r for r in rounds] for phase, rounds in self.rounds.items()},
            "norms": self.norms.tolist(),
            "note": self.note,
            "presence": self.presence.state(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        self.remaining, self.norms = state["remaining"], np.array(state["norms"])
        self.rounds = {phase: [np.nan if r is None else r for r in rounds] for phase, rounds in state["rounds"].items()}
        rounds = self.rounds.get(state["phase"])
        self._begin(state["phase"])
        if rounds is not None:
            self.rounds[state["phase"]] = rounds
        self.fresh, self.note = state["fresh"], state["note"]
        self.presence.restore(state["presence"])

    def _begin(self, phase: str) -> None:
        self.phase, self.fresh = phase, True
        if phase == "train":
            q = self._conclude()
        else:
            q = PILOTS[phase](self.fleet)
            self.rounds[phase] = [np.nan] * len(self.pilots.losses)
        self.sampling = FixedSampling(self.fleet, q, self.cohort_size, presence=self.presence)

    def _conclude(self) -> Vector:
        seen = np.flatnonzero(self.norms)
        bound = estimate_gradient_bounds(seen, self.norms[seen], num_clients=len(self.fleet))
        known = replace(self.fleet, gradient_bound=bound.gradient_bound)
        self.note = {"gradient_bound": bound.gradient_bound.tolist(), "measured": int(bound.measured.sum())}
        if self.scheme == "statistical":
            return statistical_sampling(known)
        uniform, weighted = (self.rounds[phase] for phase in PILOTS)
        ratio = estimate_beta_over_alpha(known, uniform, weighted, cohort_size=self.cohort_size)
        self.note |= {"beta_over_alpha": ratio.value, "fallback": ratio.value is None, "estimate": str(ratio)}
        q = optimal_sampling(
            known, cohort_size=self.cohort_size, beta_over_alpha=ratio.value or 0.0, floor=self.pilots.floor
        )
        self.note |= {"floor": self.pilots.floor, "sampling_prob": q.tolist()}
        return q
