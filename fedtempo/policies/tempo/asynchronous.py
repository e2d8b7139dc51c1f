"""Asynchronous steps: some clients start while others are in flight, and the server steps after the next arrivals."""

import math
from typing import NamedTuple

import numpy as np

from fedtempo.checks import Integers, Vector
from fedtempo.policies.policy import BufferedPlan, RoundContext
from fedtempo.policies.tempo import constants
from fedtempo.policies.tempo.draws import Draws
from fedtempo.policies.tempo.knowledge import Knowledge, Seconds
from fedtempo.policies.tempo.means import MeanSeconds, quickest_means
from fedtempo.theory.bits import BITS, Sizes
from fedtempo.theory.bits import solve as minimise_time_over_bits
from fedtempo.theory.closed_network import fewest_that_fill, update_time
from fedtempo.theory.optimum import minimise_time


class Drawing(NamedTuple):
    """Who is drawn how often, and with how many bits a number each uploads; None: the engine's."""

    sampling_prob: Vector
    upload_bits: Integers | None


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
        bits = state.steps.upload_bits
        return BufferedPlan(
            start=start,
            weights=weights,
            wait_for=state.steps.arrivals,
            staleness_exponent=0.0,
            local_steps=state.steps.local_steps,
            upload_bits=None if bits is None else bits[start],
            step_factor=state.caution.step_factor,
            server_factor=state.steps.holding,
            follow_memory=known.follows_memory,
            forget=forget,
            note=known.note(context),
        )

    def _prepare(self, context: RoundContext) -> Integers | None:
        """Decide how many arrivals the step takes, and solve for q once in a while; return whom to forget."""
        known, state, size = self.known, self.known.state.steps, len(self.known.fleet)
        forget = None
        state.steps_with_it += 1
        # What was learned at first is most of what is known: q holds for half of the steps so far, at most.
        most = min(size / constants.CLIENTS_FOR_A_STEP, constants.MOST_STEPS_WITH_ONE_Q, context.round_index / 2)
        anew = state.steps_with_it >= most
        if anew:
            known.caution.adapt(known.novelty, state.steps_with_it)
            forget = known.forget_the_gone(state.steps_with_it * state.arrivals, context)
        if anew or state.sampling_prob is None:
            if state.sampling_prob is not None:
                known.turns.settle(state.sampling_prob)
            self._choose_means(context)
            state.arrivals = self._arrivals()
            state.sampling_prob, state.upload_bits = self.solve(known.seconds(context, state.local_steps))
            state.steps_with_it = 0
        state.arrivals = self._arrivals()
        return forget

    def solve(self, seconds: Seconds) -> Drawing:
        """Return the q of the exact optimum for what is known now, with a floor in proportion to the data, and bits.

        Note with it how many are to be in flight, and the noise to expect in a step.
        """
        known, form, steps = self.known, self.known.form, self.known.state.steps
        p = q = known.fleet.data_share
        bits, steps.holding = steps.upload_bits, known.holding
        if not steps.mean_upload:
            self._note_times(q, bits, seconds)
        if not known.novelty.empty:
            squares = p**2 * known.novelty.squares
            patience = known.departures.patience(slice(None))
            importance, strength = p * patience, 0.0
            # Weights of a mean add up to 1, so that one client with small updates, drawn seldom for them, would be
            # nearly all of it: importance goes by data alone. And its signal is mostly noise: C = 0, the limit where
            # noise is all that counts.
            if known.follows_memory:
                importance = np.sqrt(squares) * patience
                strength = form.signal_factor * steps.arrivals * known.state.novelty.signal
            q, bits = self._minimise(importance, strength, seconds)
            # Residuals are known as far as the memory holds. Who is drawn far less often than by data would swing: the
            # model goes on along what it reported last until it reports again.
            trusted = (1 - form.floor) * steps.holding
            q = trusted * q + (1 - trusted) * p
            factors = np.minimum(1 / (steps.arrivals * q), form.largest_factor)
            known.state.expected_noise = float(((squares * q) @ factors**2) * steps.arrivals)
        elif known.upload_noise.chooses:
            bits = self._minimise(p.copy(), 0.0, seconds).upload_bits
        self._note_times(q, bits, seconds)
        return Drawing(q, bits)

    def _note_times(self, q: Vector, bits: Integers | None, seconds: Seconds) -> None:
        """Note how long updates take, and how many in flight keep the link busy."""
        steps, tau, t = self.known.state.steps, seconds.compute, seconds.upload * self._shares(bits)
        steps.longest_compute, steps.longest_upload = float(tau.max()), float(t.max())
        steps.mean_compute, steps.mean_upload = compute, upload = float(q @ tau), float(q @ t)
        steps.to_fill = fewest_that_fill(compute, upload, self._most_places() + 1, constants.LINK_BUSY)

    def _minimise(self, importance: Vector, strength: float, seconds: Seconds) -> Drawing:
        """Return the q and bits of least time, by what a second of computing and of uploading costs an update."""
        known = self.known
        tau, t, _ = self._prices(seconds)
        if not known.upload_noise.chooses:
            return Drawing(minimise_time(importance, t + tau, strength), None)
        # Along a memory what is new counts, and rounding adds noise to all that is sent.
        new = known.novelty.drifted if known.follows_memory else 1.0
        factors = 1 + known.upload_noise.rows / new
        found = minimise_time_over_bits(
            importance, (t, tau), Sizes(np.array(BITS), known.upload_shares, factors), strength
        )
        return Drawing(found.sampling_prob, np.array(BITS)[found.choice])

    def _prices(self, seconds: Seconds) -> Seconds:
        """Return what computing and uploading cost an update, in seconds by which it delays the next ones.

        Where as many are in flight as keep the link busy, an update along the memory costs its upload alone.
        """
        steps, places = self.known.state.steps, self._places()
        if places >= steps.to_fill and not self.known.steps_are_means:
            return Seconds(0.0 * seconds.compute, seconds.upload)
        price = update_time(max(places, 1), steps.mean_compute, steps.mean_upload)
        return Seconds(price.compute * seconds.compute, price.upload * seconds.upload)

    def _shares(self, bits: Integers | None) -> Vector | float:
        return 1.0 if bits is None else self.known.upload_shares[np.searchsorted(BITS, bits)]

    def _choose_means(self, context: RoundContext) -> None:
        """Choose how many local steps updates have, and where a step is a mean, how many updates it takes."""
        known, steps, usual = self.known, self.known.state.steps, context.local_steps
        steps.local_steps = known.local_steps(context)
        if not known.steps_are_means:
            return
        q = known.fleet.data_share if steps.sampling_prob is None else steps.sampling_prob
        seconds, free = known.seconds(context, steps.local_steps), known.shortens_paths and steps.local_steps is None
        chosen = quickest_means(
            MeanSeconds(
                compute=float(q @ (seconds.compute - seconds.fixed)),
                fixed=float(q @ np.broadcast_to(seconds.fixed, q.shape)),
                upload=float(q @ (seconds.upload * self._shares(steps.upload_bits))),
            ),
            usual=steps.local_steps or usual,
            bend=known.paths.bend if free else None,
            least=self._least_arrivals(),
            most_in_flight=self._most_places(),
        )
        steps.of_a_mean = chosen.arrivals
        if free:
            steps.local_steps = chosen.local_steps
        self._note_times(q, steps.upload_bits, known.seconds(context, steps.local_steps))

    def _least_arrivals(self) -> int:
        known = self.known
        return known.caution.arrivals(known.novelty.unseen_share, len(known.fleet))

    def _arrivals(self) -> int:
        """Return how many updates the next step takes."""
        known, least = self.known, self._least_arrivals()
        return min(max(least, known.state.steps.of_a_mean), len(known.fleet)) if known.steps_are_means else least

    def _places(self) -> int:
        """Return how many are to be in flight."""
        known, steps = self.known, self.known.state.steps
        if not self.known.steps_are_means:
            return steps.arrivals + round((self._in_flight() - 1) / known.caution.level)
        return max(min(self._in_flight(), round((1 + constants.STALE) * steps.arrivals)), steps.arrivals)

    def _in_flight(self) -> int:
        """Return how many keep the link busy, as far as the fleet has so many."""
        return min(self.known.state.steps.to_fill, self._most_places())

    def _most_places(self) -> int:
        most = math.floor(len(self.known.fleet) * constants.MOST_IN_FLIGHT)
        return min(max(most, 1), constants.MOST_PLACES)

    def _start(self, context: RoundContext) -> tuple[Integers, Vector]:
        """Return who starts now, and their weights."""
        known, steps, p = self.known, self.known.state.steps, self.known.fleet.data_share
        places = self._places()
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
