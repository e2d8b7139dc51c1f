"""Synchronous rounds, for engines and fleets that have no asynchronous steps."""

import numpy as np

from fedtempo.checks import Integers, Vector
from fedtempo.policies.policy import RoundContext, RoundPlan
from fedtempo.policies.tempo import constants
from fedtempo.policies.tempo.draws import Draws
from fedtempo.policies.tempo.knowledge import Knowledge, Seconds
from fedtempo.theory.inclusion import inclusion_probabilities, inclusion_with_sum, marginal_round_times


class RoundPlanner:
    """Plans one round after another, with what is known at the moment."""

    def __init__(self, known: Knowledge, draws: Draws) -> None:
        """Take what is known, and how to draw."""
        self.known, self.draws = known, draws

    def plan(self, context: RoundContext) -> RoundPlan:
        """Plan a round of available clients."""
        known, state = self.known, self.known.state
        known.caution.adapt(known.novelty, 1)
        forget = known.forget_the_gone(known.form.cohort_size, context)
        p, available = known.fleet.data_share, context.available_clients(len(known.fleet))
        seconds = known.seconds(context, known.local_steps(context))
        pi = self._inclusion(available, seconds)
        drawn = self.draws.choose(available, pi, known.turns, context.rng)
        members = available[drawn]
        weights = p[members] / (pi[drawn] * known.availability.response(members))
        if known.follows_memory:
            weights = np.minimum(weights, p[members] * known.form.largest_factor)
        else:
            weights = weights / weights.sum()
        self._learn_costs(seconds, members)
        state.in_flight |= dict.fromkeys(members.tolist(), context.time)
        return RoundPlan(
            members=members,
            weights=weights,
            local_steps=known.local_steps(context),
            step_factor=state.caution.step_factor,
            follow_memory=known.follows_memory,
            forget=forget,
            note=known.note(context),
        )

    def _inclusion(self, available: Integers, seconds: Seconds) -> Vector:
        """Return π of the available clients, and note the noise to expect in the round."""
        known, form, rounds = self.known, self.known.form, self.known.state.rounds
        p, patience = known.fleet.data_share, known.departures.patience(available)
        cost = seconds.upload + seconds.compute / form.cohort_size if rounds.cost is None else rounds.cost
        if known.novelty.empty or not known.follows_memory:
            rate = patience * (p / np.sqrt(cost))[available]
            return inclusion_with_sum(rate, min(max(form.cohort_size, constants.SMALL_COHORT), len(available)))
        squares = p**2 * known.novelty.squares
        floor = np.minimum(constants.ROUND_FLOOR * form.floor * len(p) * p, 1.0)
        pi, rounds.theta = inclusion_probabilities(
            np.sqrt(squares[available]) * patience,
            cost[available],
            rounds.fixed_cost,
            form.signal_factor * known.state.novelty.signal,
            floor[available],
            rounds.theta,
        )
        fewest = min(known.caution.arrivals(known.novelty.unseen_share, len(p)), len(available))
        if pi.sum() < fewest:
            pi = inclusion_with_sum(pi, fewest)
        factors = np.minimum(1 / pi, form.largest_factor)
        # That of draws by chance, which in turn is an upper bound.
        known.state.expected_noise = float((squares[available] * pi * (1 - pi) * factors**2).sum())
        return pi

    def _learn_costs(self, seconds: Seconds, members: Integers) -> None:
        """Follow what each client adds to the rounds that are being drawn."""
        rounds, (tau, t, _) = self.known.state.rounds, seconds
        marginal, end = marginal_round_times(tau, t, members)
        marginal = np.maximum(marginal, constants.LEAST_COST * (t + tau))
        fixed = max(end - float(marginal[members].sum()), 0.0)
        past = 0.0 if rounds.cost is None else constants.COST_OF_THE_PAST
        rounds.cost = (1 - past) * marginal + (0.0 if rounds.cost is None else past * rounds.cost)
        rounds.fixed_cost = past * rounds.fixed_cost + (1 - past) * fixed
