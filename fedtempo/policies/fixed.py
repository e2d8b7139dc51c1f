"""Policies with one distribution for the whole run."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fedtempo.checks import Vector, check_count
from fedtempo.fleet import Fleet
from fedtempo.policies.availability import AvailabilityState, LearnsAvailability
from fedtempo.policies.options import check_switch
from fedtempo.policies.policy import RoundContext, RoundPlan, Stateless
from fedtempo.theory.sampling import DrawTable, aggregation_weights, check_sampling_prob, draw_cohort

Sampler = Callable[[Fleet], Vector]  # a user's own sampler: one function from fleet to q


@dataclass(frozen=True, kw_only=True, slots=True)
class UniformOptions:
    """Of ``uniform``."""

    replacement: bool = True  # False: K distinct clients, as the paper's code draws them

    def __post_init__(self) -> None:
        """Check the options."""
        check_switch("replacement", self.replacement)


class FixedSampling(LearnsAvailability):
    """Draw K clients with replacement from one q each round, among those who are available; weights as in Lemma 1.

    Who is seldom available or seldom reports counts for more when it does, so that the aggregate stays unbiased.
    """

    def __init__(
        self, fleet: Fleet, sampling_prob: Vector, cohort_size: int, state: AvailabilityState | None = None
    ) -> None:
        """Take q and K, and go on from what was seen of the clients, if anything was."""
        self.fleet, self.cohort_size = fleet, check_count("cohort_size", cohort_size)
        self.sampling_prob = check_sampling_prob(sampling_prob, len(fleet))
        self.state = AvailabilityState.at_first(len(fleet)) if state is None else state

    @cached_property
    def table(self) -> DrawTable:
        """What draws from q need, while everyone is available."""
        return DrawTable.of(self.sampling_prob)

    def plan(self, context: RoundContext) -> RoundPlan:
        """Draw a cohort."""
        self.availability.look(context)
        if context.available is None or context.available.all():
            q, table = self.sampling_prob, self.table
        else:
            q = np.where(context.available, self.sampling_prob, 0.0)
            q /= q.sum()
            table = DrawTable(np.cumsum(q) / q.sum())
        drawn = draw_cohort(table, self.cohort_size, context.rng)
        members, first, counts = np.unique(drawn, return_index=True, return_counts=True)
        weights = aggregation_weights(drawn, q, self.fleet.data_share)[first] * counts
        return RoundPlan(
            members=members,
            counts=counts,
            weights=weights / self.availability.response(members),
            note=self.availability.note(context, self.fleet.data_share),
        )


class FullParticipation(LearnsAvailability):
    """Everyone who is available trains in each round, with its data share as weight."""

    def __init__(self, fleet: Fleet) -> None:
        """Take the fleet."""
        self.fleet, self.state = fleet, AvailabilityState.at_first(len(fleet))

    def plan(self, context: RoundContext) -> RoundPlan:
        """Take everyone."""
        self.availability.look(context)
        members = context.available_clients(len(self.fleet))
        return RoundPlan(
            members=members,
            weights=self.fleet.data_share[members] / self.availability.response(members),
            note=self.availability.note(context, self.fleet.data_share),
        )


class AuthorsUniform(Stateless):
    """The uniform baseline of the paper's code: K distinct clients, a plain mean, and local steps scaled by p_i N.

    It is not unbiased; the preset ``authors-code`` keeps it to compare with.
    """

    def __init__(self, fleet: Fleet, cohort_size: int) -> None:
        """Take the fleet; the cohort cannot be larger than it."""
        self.fleet, self.cohort_size = fleet, min(check_count("cohort_size", cohort_size), len(fleet))

    def plan(self, context: RoundContext) -> RoundPlan:
        """Draw distinct clients."""
        available = context.available_clients(len(self.fleet))
        members = np.sort(context.rng.choice(available, min(self.cohort_size, len(available)), replace=False))
        scale = self.fleet.data_share[members] * len(self.fleet)
        weights = np.full(len(members), 1 / max(len(members), 1))
        return RoundPlan(members=members, weights=weights, average=True, step_size=context.step_size * scale)
