"""Clustered sampling: one client from each of K distributions, which are filled by sample size.

Y. Fraboni, R. Vidal, L. Kameni and M. Lorenzi, "Clustered Sampling: Low-Variance and Improved Representativity for
Clients Selection in Federated Learning", ICML 2021, Algorithm 1.

With r_ki the probability of client i in distribution k, Σ_i r_ki = 1 and Σ_k r_ki = K p_i. One client is drawn from
each, and each draw counts 1/K, so the aggregate is unbiased. No client's weight varies more than in K draws from p:
the variance is Σ_k r_ki (1 - r_ki) / K², which is at most p_i (1 - p_i) / K.

The algorithm fills one distribution after another, with the clients in descending order of p. That is to lay parts of
length K p_i end to end on a line from 0 to K: distribution k is the unit from k to k + 1, and r_ki is the length of
client i in it. So a draw is a point in each unit, and the K × N matrix is never built.

Where clients come and go, the line is laid anew from those who are available, and weights are divided by the response
probability; in the paper everyone is always available. Its Algorithm 2, which clusters clients by the similarity of
their updates, is not here: it needs the updates themselves, and a policy knows only their norms.
"""

from functools import cached_property
from typing import NamedTuple

import numpy as np

from fedtempo.checks import Integers, Vector, check_count
from fedtempo.policies.availability import AvailabilityState, LearnsAvailability
from fedtempo.policies.options import NoOptions, read_options
from fedtempo.policies.policy import PolicySetting, RoundContext, RoundPlan


class SegmentLine(NamedTuple):
    """Clients in descending order of size, and where the part of each ends on the line from 0 to K."""

    order: Integers
    ends: Vector


def lay_out(data_share: Vector, cohort_size: int) -> SegmentLine:
    """Lay parts of length K p_i / Σ p end to end, the largest first."""
    order = np.argsort(-data_share, kind="stable")
    ends = np.cumsum(data_share[order])
    return SegmentLine(order, cohort_size * (ends / ends[-1]))


class ClusteredSampling(LearnsAvailability):
    """Draw one client from each of K distributions of equal weight; a client drawn several times counts so."""

    def __init__(self, setting: PolicySetting) -> None:
        """Take the fleet and K; there are no options."""
        read_options(NoOptions, setting.options)
        self.fleet, self.cohort_size = setting.fleet, check_count("cohort_size", setting.cohort_size)
        self.state = AvailabilityState.at_first(len(self.fleet))

    @cached_property
    def line(self) -> SegmentLine:
        """The distributions while everyone is available."""
        return lay_out(self.fleet.data_share, self.cohort_size)

    def plan(self, context: RoundContext) -> RoundPlan:
        """Draw a point in each unit of the line."""
        self.availability.look(context)
        available = context.available_clients(len(self.fleet))
        share = self.fleet.data_share[available]
        line = self.line if len(available) == len(self.fleet) else lay_out(share, self.cohort_size)
        points = np.arange(self.cohort_size) + context.rng.random(self.cohort_size)
        # A point may round up to K.
        places = np.searchsorted(line.ends, points, side="right").clip(max=len(available) - 1)
        members, counts = np.unique(available[line.order[places]], return_counts=True)
        return RoundPlan(
            members=members,
            counts=counts,
            weights=counts * (share.sum() / self.cohort_size) / self.availability.response(members),
            note=self.availability.note(context, self.fleet.data_share),
        )
