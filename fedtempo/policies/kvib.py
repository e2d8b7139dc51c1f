"""K-Vib: inclusion probabilities learned online from the norms of the updates that came.

D. Zeng, Z. Xu, Y. Pan, X. Luo, Q. Wang and X. Tang, "Enhanced Federated Optimization: Adaptive Unbiased Client Sampling
with Reduced Variance", TMLR 2025 (arXiv 2310.02698), Algorithm 2.

Each client is included independently with probability π_i, K of them in expectation, and counts with p_i/π_i, so the
aggregate is unbiased. The variance of round t is a sum of a_ti²/π_i with a_ti = p_i ‖Δ_i‖, and the best π in hindsight
is followed with a regulariser γ Σ 1/π_i:

    ω_i = Σ a_ti²/π_ti over the rounds t in which i took part: unbiased for the sum over all rounds,
    q = the minimum of Σ (ω_i + γ)/q_i with Σ q_i = K and q_i ≤ 1: in proportion to √(ω_i + γ), cut at 1,
    π_i = (1 - θ) q_i + θ K/N: never below θ K/N.

The theory takes θ = (N/(T K))^⅓ for T rounds and γ = G² N/(θ K) with a bound G on a, the most that one round can add to
ω where π is least. A policy does not know T: ``theta`` is 0.3 unless given, as in the paper's experiments with fewer
rounds than clients. ``gamma`` may be given too. If it is not, the mean of a² in the first round that brought any update
stands for G²; until then all clients are alike, so that γ plays no part. Where the step size falls from round to round,
so do the norms; ω then hardly outgrows γ, and π stays near K/N.

Departures from the paper: G² is a mean where the theory has a bound; the authors' code has it set by hand. That code
also takes q in proportion to ω + γ, without the root; here the root stands, which solves the problem above. Where
clients come and go, q is solved for those who are available, and both p_i/π_i and a²/π_i are divided by the response
probability. The round is empty where nobody's lot falls.
"""

from dataclasses import dataclass

import numpy as np

from fedtempo.checks import Integers, Vector, check_count, check_fraction, check_positive
from fedtempo.policies.availability import Availability, AvailabilityState
from fedtempo.policies.options import read_options
from fedtempo.policies.policy import Policy, PolicySetting, RoundContext, RoundPlan, RoundReport
from fedtempo.theory.inclusion import inclusion_with_sum


@dataclass(frozen=True, kw_only=True, slots=True)
class KVibOptions:
    """Of ``kvib``."""

    theta: float = 0.3  # share of the draws that is uniform
    gamma: float | None = None  # regulariser, in units of a squared update norm; None: from the first updates

    def __post_init__(self) -> None:
        """Check the options."""
        check_fraction("theta", check_positive("theta", self.theta))
        if self.gamma is not None:
            check_positive("gamma", self.gamma)


@dataclass(eq=False, slots=True)
class KVibState:
    """What was learned."""

    gamma: float | None  # γ, once it is known
    feedback: Vector  # ω of each client
    availability: AvailabilityState


class KVib(Policy):
    """Include each client independently, more often the larger its updates were."""

    state: KVibState

    def __init__(self, setting: PolicySetting) -> None:
        """Read the options; nothing is known yet."""
        options = read_options(KVibOptions, setting.options)
        self.fleet, self.cohort_size = setting.fleet, check_count("cohort_size", setting.cohort_size)
        self.theta, size = float(options.theta), len(self.fleet)
        gamma = None if options.gamma is None else float(options.gamma)
        self.state = KVibState(gamma, np.zeros(size), AvailabilityState.at_first(size))

    @property
    def availability(self) -> Availability:
        """Who was available and reported so far."""
        return Availability(self.state.availability)

    def plan(self, context: RoundContext) -> RoundPlan:
        """Draw each available client on its own."""
        self.availability.look(context)
        available = context.available_clients(len(self.fleet))
        pi = self.inclusion(available)
        included = context.rng.random(len(available)) < pi
        members = available[included]
        return RoundPlan(
            members=members,
            weights=self.fleet.data_share[members] / (pi[included] * self.availability.response(members)),
            note=self.availability.note(context, self.fleet.data_share),
        )

    def inclusion(self, clients: Integers) -> Vector:
        """Return π of the available clients."""
        q = inclusion_with_sum(np.sqrt(self.state.feedback[clients] + (self.state.gamma or 1.0)), self.cohort_size)
        return np.asarray((1 - self.theta) * q + self.theta * min(self.cohort_size / len(clients), 1.0))

    def observe(self, report: RoundReport) -> None:
        """Add to ω what the members report; the first of them set γ."""
        state, reported = self.state, ~report.failed
        self.availability.observe(report)
        members = report.plan.members[reported]
        share = self.fleet.data_share[members]
        squares = (share * report.update_norm[reported]) ** 2
        if state.gamma is None and squares.any():
            size = len(self.fleet)
            state.gamma = float(squares.mean()) * size / (self.theta * min(self.cohort_size, size))
        state.feedback[members] += squares * (report.plan.weights[reported] / share)  # a²/π: the weight is p/π
