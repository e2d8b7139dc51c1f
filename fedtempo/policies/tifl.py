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

from typing import Any

import numpy as np
import numpy.typing as npt

from fedtempo.checks import Integers, Vector, check_count
from fedtempo.policies.options import checked_options
from fedtempo.policies.policy import PolicySetting, RoundContext, RoundPlan, RoundReport
from fedtempo.policies.times import Durations

TIERS = 5


class TiFL:
    """Draw a tier, then clients in it. Options: how many ``tiers``, ``interval`` I, ``credits`` of the fastest tier."""

    def __init__(self, setting: PolicySetting) -> None:
        """Start with tiers by nominal latency, all equally likely."""
        options = checked_options(setting, {"tiers": None, "interval": 10, "credits": 500})
        self.fleet, self.cohort_size = setting.fleet, check_count("cohort_size", setting.cohort_size)
        size = len(self.fleet)
        if options["tiers"] is None:
            self.tiers = max(min(TIERS, size // self.cohort_size), 1)
        else:
            self.tiers = min(check_count("tiers", options["tiers"]), size)
        self.interval = check_count("interval", options["interval"])
        self.most_credits = check_count("credits", options["credits"])
        self.durations = Durations(self.fleet, self.cohort_size)
        self.latency = np.zeros(size)  # seconds, summed over the rounds since tiers were made
        self.tier = np.zeros(size, dtype=np.int64)  # of each client; 0 is the fastest
        self.loss = np.full(size, np.nan)  # that each client reported last
        self.score = np.full(self.tiers, np.nan)  # of each tier when tiers were made
        self.probability = np.full(self.tiers, 1 / self.tiers)
        self.credits = np.zeros(self.tiers, dtype=np.int64)
        self.current = 0  # the tier drawn last

    def plan(self, context: RoundContext) -> RoundPlan:
        """Draw a tier with credits and with somebody there, then clients in it."""
        self.durations.look(context)
        self.latency += self.durations.seconds
        if context.round_index % self.interval == 0:
            self._adapt(first=context.round_index == 0)
        there = context.there(len(self.fleet))
        if not there.size:
            return RoundPlan(members=there, weights=np.empty(0))
        self.current = self._draw_tier(there, context.rng)
        ready = there[self.tier[there] == self.current]
        members = np.sort(context.rng.choice(ready, min(self.cohort_size, ready.size), replace=False))
        share = self.fleet.data_share[members]
        return RoundPlan(members=members, weights=share / share.sum(), average=True, note={"tier": self.current})

    def observe(self, report: RoundReport) -> None:
        """Learn latencies and losses of those who answered."""
        self.durations.observe(report)
        answered = np.isfinite(report.mean_loss) & ~report.failed
        self.loss[report.plan.members[answered]] = report.mean_loss[answered]

    def tier_scores(self) -> Vector:
        """Return the loss of each tier: of those who reported any, weighted by their data; NaN if nobody did."""
        share = np.where(np.isfinite(self.loss), self.fleet.data_share, 0.0)
        total = np.bincount(self.tier, share, self.tiers)
        losses = np.bincount(self.tier, share * np.nan_to_num(self.loss), self.tiers)
        scores: Vector = np.divide(losses, total, out=np.full(self.tiers, np.nan), where=total > 0)
        return scores

    def _adapt(self, *, first: bool) -> None:
        """Make tiers from the latencies since the last time, and change their probabilities if training stalls."""
        order = np.argsort(self.latency, kind="stable")
        for tier, clients in enumerate(np.array_split(order, self.tiers)):
            self.tier[clients] = tier
        if first:
            self._refill()
        before, self.score = self.score[self.current], self.tier_scores()
        improved = self.score[self.current] < before  # not if either is unknown
        if not first and not improved:
            self.probability = tier_probabilities(self.score, self.credits > 0)
        self.latency = np.zeros(len(self.fleet))

    def _refill(self) -> None:
        mean = np.bincount(self.tier, self.durations.seconds, self.tiers) / np.bincount(self.tier, minlength=self.tiers)
        self.credits = np.ceil(self.most_credits * mean.min() / mean).astype(np.int64)

    def _draw_tier(self, there: Integers, rng: np.random.Generator) -> int:
        somebody = np.bincount(self.tier[there], minlength=self.tiers) > 0
        if not (somebody & (self.credits > 0)).any():
            self._refill()
        able = somebody & (self.credits > 0)
        chances = np.where(able, self.probability, 0.0)
        if not chances.any():
            chances = able.astype(np.float64)
        drawn = int(rng.choice(self.tiers, p=chances / chances.sum()))
        self.credits[drawn] -= 1
        return drawn

    def state(self) -> dict[str, Any]:
        """Return what was learned."""
        values = {name: getattr(self, name).tolist() for name in ("latency", "tier", "probability", "credits")}
        for name in ("loss", "score"):
            values[name] = [None if np.isnan(x) else x for x in getattr(self, name).tolist()]
        return values | {"durations": self.durations.state(), "current": self.current}

    def restore(self, state: dict[str, Any]) -> None:
        """Take it up."""
        for name in ("tier", "credits"):
            setattr(self, name, np.array(state[name], dtype=np.int64))
        for name in ("latency", "probability"):
            setattr(self, name, np.array(state[name], dtype=np.float64))
        for name in ("loss", "score"):
            setattr(self, name, np.array([np.nan if x is None else x for x in state[name]], dtype=np.float64))
        self.durations.restore(state["durations"])
        self.current = state["current"]


def tier_probabilities(score: Vector, able: npt.NDArray[np.bool_]) -> Vector:
    """Return the probability of each tier: by rank among those able to be drawn, the largest loss first, 0 for others.

    Tiers whose loss is unknown come before all; ties go to the faster tier.
    """
    tiers = np.flatnonzero(able)
    losses = np.where(np.isnan(score[tiers]), np.inf, score[tiers])
    ranked, n = tiers[np.argsort(-losses, kind="stable")], tiers.size
    probability = np.zeros(score.size)
    probability[ranked] = np.arange(n, 0, -1) / max(n * (n + 1) / 2, 1)
    return probability
