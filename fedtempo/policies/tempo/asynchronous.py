"""Asynchronous steps: some clients start while others are in flight, and the server steps after the next arrivals."""

import math

import numpy as np

from fedtempo.checks import Integers, Vector
from fedtempo.policies.policy import BufferedPlan, RoundContext
from fedtempo.policies.tempo import constants
from fedtempo.policies.tempo.draws import Draws
from fedtempo.policies.tempo.knowledge import Knowledge, Seconds
from fedtempo.theory.optimum import minimise_time


class StepPlanner:
    """Plans one step after another, with what is known at the moment."""

    def __init__(self, known: Knowledge, draws: Draws) -> None:
        """Take what is known, and how to draw."""
        self.known, self.draws = known, draws

    def plan(self, context: RoundContext) -> BufferedPlan:
        """Keep the link busy, and step after the next arrivals."""
        known, state = self.known, self.known.state
        forget = self._prepare(context)
        start, weights = self._start(context)
        state.in_flight |= dict.fromkeys(start.tolist(), context.time)
        return BufferedPlan(
            start=start,
            weights=weights,
            wait_for=state.steps.arrivals,
            staleness_exponent=0.0,
            local_steps=known.local_steps(context),
            step_factor=state.caution.step_factor,
            follow_memory=known.follows_memory,
            forget=forget,
            note=known.note(context),
        )

    def _prepare(self, context: RoundContext) -> Integers | None:
        """Decide how many arrivals the step takes, and solve for q once in a while; return whom to forget."""
        known, state, size = self.known, self.known.state.steps, len(self.known.fleet)
        forget = None
        state.steps_with_it += 1
        anew = state.steps_with_it >= min(size / constants.CLIENTS_FOR_A_STEP, constants.MOST_STEPS_WITH_ONE_Q)
        if anew:
            known.caution.adapt(known.novelty, state.steps_with_it)
            forget = known.forget_the_gone(state.steps_with_it * state.arrivals, context)
        state.arrivals = known.caution.arrivals(known.novelty.unseen_share, size)
        if anew or state.sampling_prob is None:
            if state.sampling_prob is not None:
                known.turns.settle(state.sampling_prob)
            state.sampling_prob = self.solve(context.round_index, known.seconds(context))
            state.steps_with_it = 0
        return forget

    def solve(self, round_index: int, seconds: Seconds) -> Vector:
        """Return the q of the exact optimum for what is known now, with a floor in proportion to the data.

        Note with it how many clients compute ahead, and the noise to expect in a step.
        """
        known, form, steps = self.known, self.known.form, self.known.state.steps
        p = q = known.fleet.data_share
        tau, t = seconds
        if not known.novelty.empty:
            squares = p**2 * known.novelty.squares(round_index)
            patience = known.departures.patience(slice(None))
            importance, strength = p * patience, 0.0
            # Weights of a mean add up to 1, so that one client with small updates, drawn seldom for them, would be
            # nearly all of it: importance goes by data alone. And its signal is mostly noise: C = 0, the limit where
            # noise is all that counts.
            if known.follows_memory:
                importance = np.sqrt(squares) * patience
                strength = form.signal_factor * steps.arrivals * known.state.novelty.signal
            q = (1 - form.floor) * minimise_time(importance, t.copy(), strength) + form.floor * p
            factors = np.minimum(1 / (steps.arrivals * q), form.largest_factor)
            known.state.expected_noise = float(((squares * q) @ factors**2) * steps.arrivals)
        ahead = constants.COMPUTING_AHEAD * float(q @ tau) / float(q @ t)
        steps.longest_compute, steps.longest_upload = float(tau.max()), float(t.max())
        steps.computing_ahead = math.ceil(min(ahead, len(p) * constants.MOST_AHEAD_SHARE, constants.MOST_AHEAD))
        return q

    def _start(self, context: RoundContext) -> tuple[Integers, Vector]:
        """Return who starts now, and their weights."""
        known, steps, p = self.known, self.known.state.steps, self.known.fleet.data_share
        places = steps.arrivals + round(steps.computing_ahead / known.caution.level)
        idle = len(p) if context.available is None else int(np.count_nonzero(context.available))
        expected = self._expected(places, context.time)
        free = min(max(places - expected, 0 if expected else 1), idle)
        if not free or steps.sampling_prob is None:
            return np.empty(0, dtype=np.int64), np.empty(0)
        start, inclusion = self.draws.draw(steps.sampling_prob, free, known.turns, context)
        landing = min(steps.arrivals, expected + free)
        weights = p[start] / (inclusion * known.availability.response(start))
        if known.follows_memory:
            return start, np.minimum(weights * (free / landing), p[start] * known.form.largest_factor)
        return start, weights * (len(start) / (landing * weights.sum()))

    def _expected(self, places: int, time: float) -> int:
        """Return how many are in flight and likely to arrive; who takes far too long holds nobody else up."""
        steps = self.known.state.steps
        longest = constants.OVERDUE * (steps.longest_compute + places * steps.longest_upload)
        return sum(time - start <= longest for start in self.known.state.in_flight.values())
