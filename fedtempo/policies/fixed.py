"""Policies with one distribution for the whole run."""

from collections.abc import Callable
from typing import Any

import numpy as np

from fedtempo.checks import Vector, check_count
from fedtempo.fleet import Fleet
from fedtempo.policies.availability import Attentive, Presence
from fedtempo.policies.policy import RoundContext, RoundPlan, RoundReport
from fedtempo.theory.sampling import DrawTable, aggregation_weights, check_sampling_prob, draw_cohort


class Forgetful:
    """A policy that learns nothing, so that a run may go on without anything of it."""

    def observe(self, report: RoundReport) -> None:
        """Learn nothing."""

    def state(self) -> dict[str, Any]:
        """Return nothing."""
        return {}

    def restore(self, state: dict[str, Any]) -> None:
        """Take up nothing."""


class FixedSampling(Attentive):
    """Draw K clients with replacement from one q each round, among those who are there; weights as in Lemma 1.

    Who is seldom there or seldom answers counts for more when it does, so that the aggregate stays unbiased.
    """

    def __init__(
        self, fleet: Fleet, sampling_prob: Vector, cohort_size: int, *, presence: Presence | None = None
    ) -> None:
        """Prepare draws from q."""
        self.fleet, self.cohort_size = fleet, check_count("cohort_size", cohort_size)
        self.sampling_prob = check_sampling_prob(sampling_prob, len(fleet))
        self.table = DrawTable.of(self.sampling_prob)
        self.presence = presence or Presence(len(fleet))

    def plan(self, context: RoundContext) -> RoundPlan:
        """Draw a cohort."""
        self.presence.look(context)
        q, table = self.sampling_prob, self.table
        if context.available is not None and not context.available.all():
            q = np.where(context.available, q, 0.0)
            q /= q.sum()
            table = DrawTable(np.cumsum(q) / q.sum())
        drawn = draw_cohort(table, self.cohort_size, context.rng)
        members, first, counts = np.unique(drawn, return_index=True, return_counts=True)
        weights = aggregation_weights(drawn, q, self.fleet.data_share)[first] * counts
        return RoundPlan(
            members=members,
            counts=counts,
            weights=weights / self.presence.response(members),
            note=self.presence.note(context, self.fleet.data_share),
        )


class FullParticipation(Attentive):
    """Everyone who is there trains in each round, with its data share as weight."""

    def __init__(self, fleet: Fleet) -> None:
        """Take the fleet."""
        self.fleet, self.presence = fleet, Presence(len(fleet))

    def plan(self, context: RoundContext) -> RoundPlan:
        """Take everyone."""
        self.presence.look(context)
        members = context.there(len(self.fleet))
        return RoundPlan(
            members=members,
            weights=self.fleet.data_share[members] / self.presence.response(members),
            note=self.presence.note(context, self.fleet.data_share),
        )


class AuthorsUniform(Forgetful):
    """The uniform baseline of the paper's code: K distinct clients, a plain mean, and local steps scaled by p_i N.

    It is not unbiased; the preset ``authors-code`` keeps it to compare with.
    """

    def __init__(self, fleet: Fleet, cohort_size: int) -> None:
        """Take the fleet; the cohort cannot be larger than it."""
        self.fleet, self.cohort_size = fleet, min(check_count("cohort_size", cohort_size), len(fleet))

    def plan(self, context: RoundContext) -> RoundPlan:
        """Draw distinct clients."""
        there = context.there(len(self.fleet))
        members = np.sort(context.rng.choice(there, min(self.cohort_size, len(there)), replace=False))
        scale = self.fleet.data_share[members] * len(self.fleet)
        weights = np.full(len(members), 1 / max(len(members), 1))
        return RoundPlan(members=members, weights=weights, average=True, step_size=context.step_size * scale)


Sampler = Callable[[Fleet], Vector]  # a user's own sampler: one function from fleet to q
