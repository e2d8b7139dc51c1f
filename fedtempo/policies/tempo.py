"""Tempo: no pilots; learns while it trains who has something new to tell and who takes how long.

The server remembers each client's last direction y_i and steps along their mean, so a client matters by its residual,
what it would tell beyond that. Tempo draws clients by residual norm against upload time, with the q of the exact
optimum of P3 (theory/optimum.py), solved anew as training goes: a_i = p_i ‖residual‖, c_i = t_i/f_tot, and C in
proportion to the signal ‖d‖². Clients come in turn, as often as q says (theory/turns.py): by chance, what is remembered
of them would be older. It does not wait for a cohort: the server steps as soon as a few updates have arrived,
while others compute and upload, so that the link is never idle and computing takes no time of its own.

That takes a memory that holds. Where it was not seen to hold yet, and where it fails for good, as with networks whose
directions turn within a few steps, a step is the mean of a cohort of arrivals, with weights p/π over their sum. And it
takes steps that are not too long: where clients' directions turn back on those before, step sizes fall below the
engine's until they do not.

How many updates a step takes: one, more while part of the data was never heard, and 1/(1 - m) times as many with
server momentum m, which makes steps so many times longer. With more, each step would be less noisy, but the link would
carry no more updates in the same time.

Weights p_i/(K q_i) would make each step unbiased; they are cut at ``largest_factor`` p_i, in a large fleet nearly all
of them, so that most of what is new enters with the next steps, of which the memory holds the whole direction: as in
SAG, steps lag behind, and are far less noisy. ``largest_factor = inf`` keeps the unbiased form, drawn by chance, which
takes longer (benchmarks/forms.md). With ``memory = false`` the server remembers nothing, for models or fleets too large
for it even with ``memory_bits = 8``: weights are never cut then, and draws go by chance.

``overlap = false`` plans synchronous rounds instead, for engines and fleets that have no asynchronous ones: inclusion
probabilities π_i ∝ a_i/√c_i with c_i the seconds that a client adds to a round (theory/inclusion.py), from which the
size of the cohort follows.

Who fails is tried again half as often each time. Who was away for as long as several draws, or failed as often, is
forgotten: the mean of the others stands for it, until it tells again.
"""

import math
from typing import Any

import numpy as np

from fedtempo.checks import InputError, Integers, Vector, check_fraction, check_positive
from fedtempo.policies.availability import Presence
from fedtempo.policies.local_steps import LocalSteps
from fedtempo.policies.novelty import Novelty
from fedtempo.policies.options import checked_options
from fedtempo.policies.policy import BufferedPlan, PolicySetting, RoundContext, RoundPlan, RoundReport
from fedtempo.policies.times import ClientTimes
from fedtempo.theory.inclusion import (
    DrawsFromMany,
    draw_systematically,
    inclusion_probabilities,
    inclusion_with_sum,
    marginal_round_times,
)
from fedtempo.theory.optimum import minimise_time
from fedtempo.theory.turns import Turns

OPTIONS = {
    "memory": True, "memory_bits": 32, "overlap": None, "choose_local_steps": False, "largest_factor": None,
    "floor": None, "signal_factor": None,
}  # fmt: skip
MEMORY_BITS = (8, 32)
# With server momentum m each direction goes on for 1/(1 - m) steps, and a memory that lags makes the model swing. So
# steps take more arrivals, weights are cut later, and more of the draws go by data share.
ARRIVALS = 0.8  # of a step without momentum, all data heard; rounded up
LARGEST_FACTOR = 4.0  # without momentum
FLOOR, FLOOR_WITH_MOMENTUM = 0.1, 0.5  # without momentum, and times m more with it
ARRIVALS_FOR_THE_UNHEARD = 2.0  # times as many more where no data were heard yet
COMPUTING_AHEAD = 1.5  # clients that compute while one uploads, for each upload time that computing takes
# q is solved for in each step of a small fleet, and once in a few steps of a large one, where a step changes little.
CLIENTS_FOR_A_STEP, MOST_STEPS_WITH_ONE_Q = 100, 64
LARGE_FLEET = {True: 10_000, False: 500}  # clients from which draws in turn, or by chance, need not look at each
MOST_AHEAD = 20  # of those who compute, since old updates mislead
SIGNAL_FACTOR = {True: 0.1, False: 16.0}  # of the signal, with overlap and without: chosen by experiment
ROUND_FLOOR = 0.04  # of a synchronous round, in units of N p_i ``floor``
# While the memory fails, steps take more arrivals and fewer clients compute ahead, whose updates would be old: in the
# end nearly a synchronous round. Caution comes 1 + m times as fast, and goes as slowly as the momentum forgets. Where
# the greatest caution does not help, the memory is not followed any more, until it would have done well again.
GREATEST_SURPRISE, CAUTION_GAIN = 0.6, 0.1
# A memory that is not followed would do well where the surprise is below SURPRISE_TO_FOLLOW - DOUBT × novelty.doubt.
SURPRISE_TO_FOLLOW, DOUBT = 0.7, 0.5
SMALL_COHORT = 4
# Where what clients tell turns back on what they told before, steps are too long, and become shorter.
SHORTEN, LENGTHEN = 0.3, 0.1  # gains of a step, for each unit of agreement
SHORTEST = 0.1  # of the engine's step size
OVERDUE = 2.0  # times as long as the longest computing, and as many of the longest uploads as may be in flight
ROUNDING = 1e-9
COST_OF_THE_PAST = 0.9  # share in the running means of what clients add to a round
LEAST_COST = 1e-3  # of a client's own seconds: one that others hide is cheap, but not free


class Tempo:
    """Decides for each step who starts, by what it would tell and how long it takes."""

    def __init__(self, setting: PolicySetting) -> None:
        """Read the options; start with nothing known but data shares and nominal times."""
        options = checked_options(setting, OPTIONS)
        for name in ("memory", "overlap", "choose_local_steps"):
            if not isinstance(options[name], bool) and (name, options[name]) != ("overlap", None):
                raise InputError(name=name, rule="be true or false", got=repr(options[name]))
        if type(options["memory_bits"]) is not int or options["memory_bits"] not in MEMORY_BITS:
            raise InputError(name="memory_bits", rule="be the number 8 or 32", got=repr(options["memory_bits"]))
        self.fleet, self.options = setting.fleet, options
        self.server_memory = options["memory"]
        self.memory_bits = options["memory_bits"]
        # A capped link has no asynchronous mode.
        self.overlap = setting.fleet.bandwidth_cap is None if options["overlap"] is None else options["overlap"]
        m = setting.server_momentum
        usual = {
            "largest_factor": LARGEST_FACTOR / (1 - m),
            "floor": FLOOR + FLOOR_WITH_MOMENTUM * m,
            "signal_factor": SIGNAL_FACTOR[self.overlap],
        }
        chosen = {name: value if options[name] is None else options[name] for name, value in usual.items()}
        largest = chosen["largest_factor"]
        self.largest_factor = (
            largest if largest == math.inf else check_positive("largest_factor, unless the number inf,", largest)
        )
        if not self.server_memory:
            if options["largest_factor"] not in (None, math.inf):
                raise InputError(
                    name="largest_factor",
                    rule="be left out without a server memory, which alone makes up for what is cut off",
                    got=repr(largest),
                )
            self.largest_factor = math.inf
        self.floor = check_fraction("floor", chosen["floor"])
        self.signal_factor = check_positive("signal_factor", chosen["signal_factor"])
        self.cohort_size = setting.cohort_size
        self.forgetting = 1 - m  # by the server's momentum, a step
        self.usual_arrivals = math.ceil(ARRIVALS / self.forgetting - ROUNDING)
        # A cohort is enough for other policies, unless it is small: they step anew, while a memory lags behind. With
        # momentum it takes as many more as for the usual step.
        most = max(self.cohort_size, SMALL_COHORT) / self.forgetting
        self.most_caution = max(1.0, most / self.usual_arrivals)
        size = len(self.fleet)
        self.presence, self.times = Presence(size), ClientTimes(self.fleet)
        self.novelty = Novelty(self.fleet.data_share, grows=self.server_memory)
        self.paths = LocalSteps(synchronous=not self.overlap, server_momentum=m)
        self.local_steps: int | None = None  # E, where it is chosen
        self.arrivals = 1  # K of the last step
        self.flying: dict[int, float] = {}  # when each of those in flight started
        self.caution = 1.0  # times as many arrivals as usual, and as few who compute ahead
        # What was never tried is not followed: a step is the mean of those who arrive. Unbiased steps need no trust.
        self.follows_memory = self.largest_factor == math.inf
        self.step_factor = 1.0  # of the engine's step size
        self.theta, self.fixed_cost = 0.0, 0.0
        self.cost: Vector | None = None
        self.expected_noise = 0.0
        self.sampling_prob: Vector | None = None  # q, solved for ``age`` steps ago
        # Steps that need not be unbiased one by one draw in turn, so that what is remembered of a client is less old.
        self.in_turn = self.largest_factor < math.inf
        self.turns = Turns(size)
        self.draws: DrawsFromMany | None = None  # with q, from a large fleet
        self.age, self.ahead, self.longest_compute, self.longest_upload = 0, 1, 0.0, 0.0

    def plan(self, context: RoundContext) -> BufferedPlan | RoundPlan:
        """Draw who starts now."""
        self.presence.look(context)
        self.times.look(context)
        if self.options["choose_local_steps"]:
            self.local_steps = self.paths.best(context.local_steps)
        return self._start_some(context) if self.overlap else self._plan_round(context)

    def observe(self, report: RoundReport) -> None:
        """Learn what was new, and who answered."""
        for client in report.plan.members.tolist():
            self.flying.pop(client, None)
        self.presence.observe(report)
        self.times.observe(report)
        self.novelty.observe(report, self.expected_noise)
        if self.options["choose_local_steps"]:
            self.paths.observe(report, self.fleet.total_bandwidth)

    def state(self) -> dict[str, Any]:
        """Return all that was learned."""
        return {
            **{name: getattr(self, name).state() for name in LEARNERS},
            **{name: None if (it := getattr(self, name)) is None else it.tolist() for name in ARRAYS},
            "flying": sorted(self.flying.items()),
            **{name: getattr(self, name) for name in STATE},
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        for name in LEARNERS:
            getattr(self, name).restore(state[name])
        for name in ARRAYS:
            setattr(self, name, None if state[name] is None else np.array(state[name]))
        for name in STATE:
            setattr(self, name, state[name])
        self.flying, self.draws = dict(map(tuple, state["flying"])), None

    def _seconds(self, context: RoundContext) -> tuple[Vector, Vector]:
        """Return how long clients compute, and how long they upload with the whole link."""
        tau, t, cap = self.times.compute, self.times.upload / self.fleet.total_bandwidth, self.fleet.bandwidth_cap
        if self.local_steps is not None:
            tau = tau * (self.local_steps / context.local_steps)
        if cap is not None:  # what a slow link of its own adds hinders nobody else, as computing
            tau = tau + (self.times.upload / np.minimum(cap, self.fleet.total_bandwidth) - t)
        return tau if self.fleet.download_time is None else tau + self.fleet.download_time, t

    def _start_some(self, context: RoundContext) -> BufferedPlan:
        """Fill up the flight, and step after the next arrivals."""
        p, available = self.fleet.data_share, context.available
        self.age += 1
        forget = None
        anew = self.age >= min(len(p) / CLIENTS_FOR_A_STEP, MOST_STEPS_WITH_ONE_Q)
        if anew:
            self._take_care(self.age)
            forget = self._forget(self.age * self.arrivals, context)
        self.arrivals = self._number_of_arrivals()
        if self.sampling_prob is None or anew:
            if self.sampling_prob is not None:
                self.turns.settle(self.sampling_prob)
            self.sampling_prob = self._solve(context.round_index, *self._seconds(context))
            self.draws, self.age = None, 0
        flight = self.arrivals + round(self.ahead / self._care())
        idle = len(p) if available is None else int(np.count_nonzero(available))
        expected = self._expected(flight, context.time)
        free = min(max(flight - expected, 0 if expected else 1), idle)
        start, weights = np.empty(0, dtype=np.int64), np.empty(0)
        if free:
            start, inclusion = self._draw(self.sampling_prob, free, context)
            landing = min(self.arrivals, expected + free)
            weights = p[start] / (inclusion * self.presence.response(start))
            if self.follows_memory:
                weights = np.minimum(weights * (free / landing), p[start] * self.largest_factor)
            else:
                weights *= len(start) / (landing * weights.sum())
        self.flying |= dict.fromkeys(start.tolist(), context.time)
        return BufferedPlan(
            start=start, weights=weights, wait_for=self.arrivals, staleness_exponent=0.0,
            local_steps=self.local_steps, step_factor=self.step_factor, follow_memory=self.follows_memory,
            forget=forget, note=self._note(context),
        )  # fmt: skip

    def _expected(self, flight: int, time: float) -> int:
        """Return how many are in flight and likely to arrive; who takes far too long holds nobody else up."""
        longest = OVERDUE * (self.longest_compute + flight * self.longest_upload)
        return sum(time - start <= longest for start in self.flying.values())

    def _note(self, context: RoundContext) -> dict[str, Any]:
        note = self.presence.note(context, self.fleet.data_share) or {}
        return {**note, "follows_memory": self.follows_memory} if self.server_memory else dict(note)

    def _draw(self, q: Vector, number: int, context: RoundContext) -> tuple[Integers, Vector]:
        """Draw so many of those who are there; return them, and the inclusion probabilities that they had."""
        if len(q) > LARGE_FLEET[self.in_turn]:
            if self.in_turn:
                found = self.turns.draw_near(q, number, context.available, context.rng)
            else:
                self.draws = self.draws or DrawsFromMany(q)
                found = self.draws.draw(number, context.available, context.rng)
            if found is not None:
                return found
            self.turns.settle(q)
        there = context.there(len(q))
        inclusion = inclusion_with_sum(q[there], number)
        chosen = self._choose(there, inclusion, context.rng)
        return there[chosen], inclusion[chosen]

    def _choose(self, there: Integers, inclusion: Vector, rng: np.random.Generator) -> Integers:
        """Return the places of those who are drawn: in turn, or by chance where each step is to be unbiased."""
        return self.turns.draw(there, inclusion, rng) if self.in_turn else draw_systematically(inclusion, rng)

    def _take_care(self, steps: int) -> None:
        """Follow how well the memory did in the last steps: how careful to be, how long steps are, whether it holds."""
        if not (self.server_memory and self.novelty.news):
            return
        self.novelty.news = False
        surprise = self.novelty.surprise
        gain = CAUTION_GAIN * (2 - self.forgetting if surprise > GREATEST_SURPRISE else self.forgetting)
        caution = self.caution * (surprise / GREATEST_SURPRISE) ** (gain * steps)
        self.caution = min(max(caution, 1.0), self.most_caution)
        agreement = self.novelty.agreement
        gain = SHORTEN if agreement < 0 else LENGTHEN * self.forgetting
        factor = self.step_factor * math.exp(gain * min(steps, 1 / gain) * agreement)
        self.step_factor = min(max(factor, SHORTEST), 1.0)
        if self.largest_factor < math.inf:
            holds = self.follows_memory or surprise < SURPRISE_TO_FOLLOW - DOUBT * self.novelty.doubt
            self.follows_memory = holds and self.caution < self.most_caution

    def _forget(self, draws: int, context: RoundContext) -> Integers | None:
        """Return whom the server is to forget after so many draws: what the gone told last would mislead for ever."""
        if not self.server_memory:
            return None
        gone = self.presence.gone(context, draws * self.fleet.data_share, self.flying)
        clients = np.flatnonzero(gone & (self.novelty.told >= 0))
        self.novelty.forget(clients)
        return clients if clients.size else None

    def _care(self) -> float:
        return self.caution if self.follows_memory else self.most_caution

    def _number_of_arrivals(self) -> int:
        if not self.server_memory:
            return min(self.cohort_size, len(self.fleet))  # nothing but a larger cohort makes a step less noisy
        unheard = max(1 - self.novelty.heard, 0.0)
        wanted = self._care() * (1 + ARRIVALS_FOR_THE_UNHEARD * unheard)
        most = max(self.most_caution, 1 + ARRIVALS_FOR_THE_UNHEARD)
        return max(1, min(round(self.usual_arrivals * min(wanted, most)), len(self.fleet)))

    def _solve(self, round_index: int, tau: Vector, t: Vector) -> Vector:
        """Return the q of the exact optimum for what is known now, with a floor in proportion to the data.

        Note with it how many clients compute ahead, and the noise to expect in a step.
        """
        p = q = self.fleet.data_share
        if not self.novelty.empty:
            squares = p**2 * self.novelty.squares(round_index)
            patience = np.exp2(-self.presence.silent)  # who fails is tried again half as often each time
            importance, strength = p * patience, 0.0
            # Weights of a mean add up to 1, so that one client with small updates, drawn seldom for them, would be
            # nearly all of it: importance goes by data alone. And its signal is mostly noise: C = 0, the limit where
            # noise is all that counts.
            if self.follows_memory:
                importance = np.sqrt(squares) * patience
                strength = self.signal_factor * self.arrivals * self.novelty.signal
            q = (1 - self.floor) * minimise_time(importance, t.copy(), strength) + self.floor * p
            factors = np.minimum(1 / (self.arrivals * q), self.largest_factor)
            self.expected_noise = float(((squares * q) @ factors**2) * self.arrivals)
        ahead = COMPUTING_AHEAD * float(q @ tau) / float(q @ t)
        self.longest_compute, self.longest_upload = float(tau.max()), float(t.max())
        self.ahead = math.ceil(min(ahead, len(p) / 8, MOST_AHEAD))
        return q

    def _plan_round(self, context: RoundContext) -> RoundPlan:
        """Plan a synchronous round of those who are there."""
        self._take_care(1)
        forget = self._forget(self.cohort_size, context)
        tau, t = self._seconds(context)
        p, there = self.fleet.data_share, context.there(len(self.fleet))
        cost = t + tau / self.cohort_size if self.cost is None else self.cost
        patience = np.exp2(-self.presence.silent[there])
        if self.novelty.empty or not self.follows_memory:
            rate = patience * (p / np.sqrt(cost))[there]
            pi = inclusion_with_sum(rate, min(max(self.cohort_size, SMALL_COHORT), len(there)))
        else:
            squares = p**2 * self.novelty.squares(context.round_index)
            floor = np.minimum(ROUND_FLOOR * self.floor * len(p) * p, 1.0)
            pi, self.theta = inclusion_probabilities(
                np.sqrt(squares[there]) * patience, cost[there], self.fixed_cost,
                self.signal_factor * self.novelty.signal, floor[there], self.theta,
            )  # fmt: skip
            fewest = min(self._number_of_arrivals(), len(there))
            if pi.sum() < fewest:
                pi = inclusion_with_sum(pi, fewest)
            factors = np.minimum(1 / pi, self.largest_factor)
            # That of draws by chance, which in turn is an upper bound.
            self.expected_noise = float((squares[there] * pi * (1 - pi) * factors**2).sum())
        drawn = self._choose(there, pi, context.rng)
        members = there[drawn]
        weights = p[members] / (pi[drawn] * self.presence.response(members))
        weights = (
            np.minimum(weights, p[members] * self.largest_factor) if self.follows_memory else weights / weights.sum()
        )
        self._learn_costs(tau, t, members)
        self.flying |= dict.fromkeys(members.tolist(), context.time)
        return RoundPlan(
            members=members, weights=weights, local_steps=self.local_steps, step_factor=self.step_factor,
            follow_memory=self.follows_memory, forget=forget, note=self._note(context),
        )  # fmt: skip

    def _learn_costs(self, tau: Vector, t: Vector, members: Any) -> None:  # noqa: ANN401
        """Follow what each client adds to the rounds that are being drawn."""
        marginal, end = marginal_round_times(tau, t, members)
        marginal = np.maximum(marginal, LEAST_COST * (t + tau))
        fixed = max(end - float(marginal[members].sum()), 0.0)
        past = 0.0 if self.cost is None else COST_OF_THE_PAST
        self.cost = (1 - past) * marginal + (0.0 if self.cost is None else past * self.cost)
        self.fixed_cost = past * self.fixed_cost + (1 - past) * fixed


LEARNERS = ("presence", "times", "novelty", "paths", "turns")
ARRAYS = ("cost", "sampling_prob")
STATE = (
    "age", "ahead", "arrivals", "caution", "follows_memory", "longest_compute", "longest_upload", "step_factor",
    "theta", "fixed_cost", "expected_noise",
)  # fmt: skip
