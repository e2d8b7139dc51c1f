"""TiFL: clients of like speed train together, and tiers that learn badly get more rounds.

Z. Chai, A. Ali, S. Zawad, S. Truex, A. Anwar, N. Baracaldo, Y. Zhou, H. Ludwig, F. Yan, Y. Cheng, "TiFL: A Tier-based
Federated Learning System", HPDC 2020; the adaptive scheme. Clients are sorted by latency into tiers of equal size. Each
round a tier is drawn, which costs it one credit, and K of its clients train, drawn uniformly. All tiers are equally
likely at first. Every I rounds, if the tier drawn last has not improved in the meantime, the n tiers that still have
credits are ranked: the worst gets the probability n/D, the next (n - 1)/D, the best 1/D, with D = n(n + 1)/2.

The aggregate is biased: members count by their data, and tiers are not drawn in proportion to theirs.

Where this departs from the paper:

- The paper evaluates the model on test data of each tier. Here the score of a tier is the mean, weighted by data, of
  the losses that its clients reported when they trained last. A tier without any counts as the worst.
- The latency is that with a fair share of the uplink, τ + K t/f_tot, from nominal times at first, so no rounds are
  spent on profiling. Tiers are made anew every I rounds from the mean latency since the last time.
- The paper leaves the credits open. Here the fastest tier has ``credits`` rounds, the others fewer, in proportion to
  their speed. Where none that could be drawn has any left, all get theirs again; the paper does not say what follows.
- By default there are five tiers, but fewer where they would hold less than K clients.
"""

from dataclasses import dataclass

import numpy as np

from fedtempo.checks import Booleans, Integers, Vector, check_count
from fedtempo.fleet import Fleet
from fedtempo.policies.options import read_options
from fedtempo.policies.policy import Policy, PolicySetting, RoundContext, RoundPlan, RoundReport
from fedtempo.policies.times import Durations, TimesState

TIERS = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class TiFLOptions:
    """Of ``tifl``."""

    tiers: int | None = None  # None: five, fewer where they would hold less than K clients
    interval: int = 10  # I, rounds
    credits: int = 500  # rounds of the fastest tier

    def __post_init__(self) -> None:
        """Check the options."""
        if self.tiers is not None:
            check_count("tiers", self.tiers)
        check_count("interval", self.interval)
        check_count("credits", self.credits)


@dataclass(eq=False, slots=True)
class TiFLState:
    """What was learned."""

    latency: Vector  # of each client, seconds, summed over the rounds since tiers were made
    tier: Integers  # of each client; 0 is the fastest
    loss: Vector  # that each client reported last; NaN: none
    score: Vector  # of each tier when tiers were made; NaN: none
    probability: Vector  # of each tier
    credits: Integers  # that each tier has left
    current: int  # the tier drawn last
    times: TimesState

    @classmethod
    def at_first(cls, fleet: Fleet, tiers: int) -> "TiFLState":
        """Start with tiers that are equally likely; the first round fills them."""
        size = len(fleet)
        return cls(
            latency=np.zeros(size),
            tier=np.zeros(size, dtype=np.int64),
            loss=np.full(size, np.nan),
            score=np.full(tiers, np.nan),
            probability=np.full(tiers, 1 / tiers),
            credits=np.zeros(tiers, dtype=np.int64),
            current=0,
            times=TimesState.nominal(fleet),
        )


class TiFL(Policy):
    """Draw a tier, then clients in it."""

    state: TiFLState

    def __init__(self, setting: PolicySetting) -> None:
        """Read the options."""
        self.options = options = read_options(TiFLOptions, setting.options)
        self.fleet, self.cohort_size = setting.fleet, check_count("cohort_size", setting.cohort_size)
        size = len(self.fleet)
        usual = max(min(TIERS, size // self.cohort_size), 1)
        self.tiers = usual if options.tiers is None else min(options.tiers, size)
        self.state = TiFLState.at_first(self.fleet, self.tiers)

    @property
    def durations(self) -> Durations:
        """How long rounds take clients, as far as that is known."""
        return Durations(self.fleet, self.cohort_size, self.state.times)

    def plan(self, context: RoundContext) -> RoundPlan:
        """Draw a tier that has credits and an available client, then clients in it."""
        state = self.state
        self.durations.look(context)
        state.latency += self.durations.seconds()
        if context.round_index % self.options.interval == 0:
            self._adapt(first=context.round_index == 0)
        available = context.available_clients(len(self.fleet))
        if not available.size:
            return RoundPlan(members=available, weights=np.empty(0))
        state.current = self._draw_tier(available, context.rng)
        ready = available[state.tier[available] == state.current]
        members = np.sort(context.rng.choice(ready, min(self.cohort_size, ready.size), replace=False))
        share = self.fleet.data_share[members]
        return RoundPlan(members=members, weights=share / share.sum(), average=True, note={"tier": state.current})

    def observe(self, report: RoundReport) -> None:
        """Learn latencies and losses of those who reported."""
        self.durations.observe(report)
        reported = np.isfinite(report.mean_loss) & ~report.failed
        self.state.loss[report.plan.members[reported]] = report.mean_loss[reported]

    def tier_scores(self) -> Vector:
        """Return the loss of each tier: of those who reported any, weighted by their data; NaN if nobody did."""
        tier, loss = self.state.tier, self.state.loss
        share = np.where(np.isfinite(loss), self.fleet.data_share, 0.0)
        total = np.bincount(tier, share, self.tiers)
        losses = np.bincount(tier, share * np.nan_to_num(loss), self.tiers)
        scores: Vector = np.divide(losses, total, out=np.full(self.tiers, np.nan), where=total > 0)
        return scores

    def _adapt(self, *, first: bool) -> None:
        """Make tiers from the latencies since the last time, and change their probabilities if training stalls."""
        state = self.state
        order = np.argsort(state.latency, kind="stable")
        for tier, clients in enumerate(np.array_split(order, self.tiers)):
            state.tier[clients] = tier
        if first:
            self._refill()
        before, state.score = state.score[state.current], self.tier_scores()
        improved = state.score[state.current] < before  # not if either is unknown
        if not first and not improved:
            state.probability = tier_probabilities(state.score, state.credits > 0)
        state.latency = np.zeros(len(self.fleet))

    def _refill(self) -> None:
        tier = self.state.tier
        mean = np.bincount(tier, self.durations.seconds(), self.tiers) / np.bincount(tier, minlength=self.tiers)
        self.state.credits = np.ceil(self.options.credits * mean.min() / mean).astype(np.int64)

    def _draw_tier(self, available: Integers, rng: np.random.Generator) -> int:
        state = self.state
        somebody = np.bincount(state.tier[available], minlength=self.tiers) > 0
        if not (somebody & (state.credits > 0)).any():
            self._refill()
        able = somebody & (state.credits > 0)
        chances = np.where(able, state.probability, 0.0)
        if not chances.any():
            chances = able.astype(np.float64)
        drawn = int(rng.choice(self.tiers, p=chances / chances.sum()))
        state.credits[drawn] -= 1
        return drawn


def tier_probabilities(score: Vector, able: Booleans) -> Vector:
    """Return the probability of each tier: by rank among those able to be drawn, the largest loss first, 0 for others.

    Tiers whose loss is unknown come before all; ties go to the faster tier.
    """
    tiers = np.flatnonzero(able)
    losses = np.where(np.isnan(score[tiers]), np.inf, score[tiers])
    ranked, n = tiers[np.argsort(-losses, kind="stable")], tiers.size
    probability = np.zeros(score.size)
    probability[ranked] = np.arange(n, 0, -1) / max(n * (n + 1) / 2, 1)
    return probability
