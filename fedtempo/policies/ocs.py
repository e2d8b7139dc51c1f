"""Optimal Client Sampling: many compute, and those with the largest updates upload.

W. Chen, S. Horváth and P. Richtárik, "Optimal Client Sampling for Federated Learning", TMLR 2022.

All clients compute and report u_i = w_i ‖Δ_i‖. Each then uploads independently of the others with probability π_i, K of
them in expectation, and counts with w_i/π_i, so the aggregate is unbiased. Its variance Σ u_i² (1/π_i - 1) is least
for the π of the paper's equation (7). Algorithm 2 of the paper (AOCS) comes close to it by a few sums over clients, as
secure aggregation allows them; ``approximate`` takes that one, with four passes at most, as the authors do.

The price is time: a round waits until the slowest has computed, and only the uploads are few. ``candidates`` lets so
many clients compute that are drawn uniformly each round, as in the paper's experiments; the weights make up for it.

Departures from the paper: where clients come and go, w_i is the data share divided by the response probability; who
does not report its norm counts as absent. A client whose update is (nearly) zero keeps a tiny probability, so that
weights are finite and unbiased for every client.
The round is empty where nobody's lot falls, which the paper allows too.
"""

from dataclasses import dataclass

import numpy as np

from fedtempo.checks import InputError, Vector, check_count
from fedtempo.policies.availability import AvailabilityState, LearnsAvailability
from fedtempo.policies.options import check_switch, read_options
from fedtempo.policies.policy import PolicySetting, Probe, RoundContext, RoundPlan
from fedtempo.theory.inclusion import inclusion_with_sum, relative

PASSES = 4  # of sums in AOCS, as in the authors' experiments
BROKEN = 1e100  # norm of an update that is no longer finite: it is sent, and the engine sees that training diverged


@dataclass(frozen=True, kw_only=True, slots=True)
class OCSOptions:
    """Of ``ocs``."""

    candidates: int | None = None  # clients that compute; None: everyone
    approximate: bool = False  # π by sums alone, AOCS

    def __post_init__(self) -> None:
        """Check the options."""
        if self.candidates is not None:
            check_count("candidates", self.candidates)
        check_switch("approximate", self.approximate)


class OptimalClientSampling(LearnsAvailability):
    """Ask for the norms of updates, then include each client with the probability of least variance."""

    def __init__(self, setting: PolicySetting) -> None:
        """Read the options."""
        options = read_options(OCSOptions, setting.options)
        self.fleet, self.cohort_size = setting.fleet, check_count("cohort_size", setting.cohort_size)
        self.candidates = options.candidates
        if self.candidates is not None and self.candidates < self.cohort_size:
            raise InputError(
                name="candidates",
                rule=f"be at least the cohort size {self.cohort_size}",
                got=f"{self.candidates}",
                remedy="leave it out to let everybody compute",
            )
        self.inclusion = approximate_inclusion if options.approximate else inclusion_with_sum
        self.state = AvailabilityState.at_first(len(self.fleet))

    def plan(self, context: RoundContext) -> RoundPlan | Probe:
        """Let the candidates compute; then draw who uploads."""
        available, asked = context.available_clients(len(self.fleet)), context.asked
        if context.answers is None or asked is None:
            self.availability.look(context)
            asked = available
            if self.candidates is not None and self.candidates < len(available):
                asked = np.sort(context.rng.choice(available, self.candidates, replace=False))
            return Probe(clients=asked, ask="update_norm")
        answered = ~np.isnan(context.answers)
        self.availability.count_absent(asked[~answered])
        able = asked[answered]
        weights = self.fleet.data_share[able] / self.availability.response(able) * (len(available) / len(asked))
        pi = self.inclusion(weights * np.minimum(context.answers[answered], BROKEN), self.cohort_size)
        included = context.rng.random(len(pi)) < pi
        return RoundPlan(
            members=able[included],
            weights=weights[included] / pi[included],
            note=self.availability.note(context, self.fleet.data_share),
        )


def approximate_inclusion(importance: Vector, expected: int, passes: int = PASSES) -> Vector:
    """Come near to the same by sums over all clients only: the paper's Algorithm 2 (AOCS).

    From π_i = min(1, m u_i / Σ u), each pass spreads over those below 1 what the cut at 1 left of the budget m.
    """
    size = len(importance)
    if expected >= size:
        return np.ones(size)
    u = relative(importance)
    pi: Vector = np.minimum(expected * u / u.sum(), 1.0)
    for _ in range(passes):
        below = pi < 1
        growth = (expected - size + np.count_nonzero(below)) / pi[below].sum()
        if growth <= 1:
            break
        pi[below] = np.minimum(growth * pi[below], 1.0)
    return pi
