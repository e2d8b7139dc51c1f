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
clients come and go, q is solved for those who are there, and both p_i/π_i and a²/π_i are divided by the response
probability. The round is empty where nobody's lot falls.
"""

from typing import Any

import numpy as np

from fedtempo.checks import Integers, Vector, check_count, check_fraction, check_positive
from fedtempo.policies.availability import Presence
from fedtempo.policies.options import checked_options
from fedtempo.policies.policy import PolicySetting, RoundContext, RoundPlan, RoundReport
from fedtempo.theory.inclusion import inclusion_with_sum


class KVib:
    """Include each client independently, more often the larger its updates were."""

    def __init__(self, setting: PolicySetting) -> None:
        """Check the options; nothing is known yet."""
        options = checked_options(setting, {"theta": 0.3, "gamma": None})
        self.theta = check_fraction("theta", check_positive("theta", options["theta"]))
        self.gamma = None if options["gamma"] is None else check_positive("gamma", options["gamma"])
        self.fleet, self.cohort_size = setting.fleet, check_count("cohort_size", setting.cohort_size)
        self.feedback = np.zeros(len(self.fleet))  # ω
        self.presence = Presence(len(self.fleet))

    def plan(self, context: RoundContext) -> RoundPlan:
        """Draw each client that is there on its own."""
        self.presence.look(context)
        there = context.there(len(self.fleet))
        pi = self.inclusion(there)
        included = context.rng.random(len(there)) < pi
        members = there[included]
        return RoundPlan(
            members=members,
            weights=self.fleet.data_share[members] / (pi[included] * self.presence.response(members)),
            note=self.presence.note(context, self.fleet.data_share),
        )

    def inclusion(self, clients: Integers) -> Vector:
        """Return π of the clients that are there."""
        q = inclusion_with_sum(np.sqrt(self.feedback[clients] + (self.gamma or 1.0)), self.cohort_size)
        return np.asarray((1 - self.theta) * q + self.theta * min(self.cohort_size / len(clients), 1.0))

    def observe(self, report: RoundReport) -> None:
        """Add to ω what the members tell; the first of them set γ."""
        self.presence.observe(report)
        answered = ~report.failed
        members = report.plan.members[answered]
        share = self.fleet.data_share[members]
        squares = (share * report.update_norm[answered]) ** 2
        if self.gamma is None and squares.any():
            size = len(self.fleet)
            self.gamma = float(squares.mean()) * size / (self.theta * min(self.cohort_size, size))
        self.feedback[members] += squares * (report.plan.weights[answered] / share)  # a²/π: the weight is p/π

    def state(self) -> dict[str, Any]:
        """Return what was learned."""
        return {"gamma": self.gamma, "feedback": self.feedback.tolist(), "presence": self.presence.state()}

    def restore(self, state: dict[str, Any]) -> None:
        """Take it up."""
        self.gamma, self.feedback = state["gamma"], np.array(state["feedback"])
        self.presence.restore(state["presence"])
