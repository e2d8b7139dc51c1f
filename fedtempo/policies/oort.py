"""Oort: prefer clients whose data still has much to teach and who are fast, and keep exploring the others.

F. Lai, X. Zhu, H. V. Madhyastha, M. Chowdhury, "Oort: Efficient Federated Learning via Guided Participant Selection",
OSDI 2021. In round R (from 1 on) a client i that has answered before, last in round L(i), has the utility

    (U(i) + √(0.1 log R / L(i))) · (T/D(i))^α      with U(i) = |B_i| √(mean of squared losses),

the last factor only where its round takes longer than the preferred duration, D(i) > T. A share 1 - ε of the cohort is
drawn in proportion to utility, among clients with at least 95 % of the utility of the last one that would fit; the rest
are clients never seen so far, drawn in proportion to their speed. ε falls from 0.9 by 2 % a round down to 0.2. When the
sum of U over a window of W rounds is below that of the window before, the pacer raises T by Δ.

The aggregate is biased: members count by their data, whatever made them members.

Where this departs from the paper:

- The losses of single samples stay with the client. Its mean loss along the local path stands for their root mean
  square, and the data share for |B_i|.
- U is clipped at its 95th percentile and then scaled to [0, 1] between the smallest and the largest, as the authors'
  program does: else the bonus for stale clients, which has no unit, would weigh as much as a unit of data and loss.
- D(i) is the time with a fair share of the uplink, τ + K t/f_tot.
- T starts from the 30th percentile of the nominal durations, as in the authors' program; Δ is as long, since T starts
  from Δ in the paper. The pacer looks once in W rounds.
- ε K is rounded up or down at random, so that small cohorts explore as often as the paper means.
- Clients that were picked too often are not left out unless ``most_picks`` says so: small fleets would run dry. They
  are taken back in rounds that would lack members without them.
"""

from typing import Any

import numpy as np

from fedtempo.checks import Integers, Vector, check_count, check_fraction, check_nonnegative, check_positive
from fedtempo.policies.options import checked_options
from fedtempo.policies.policy import PolicySetting, RoundContext, RoundPlan, RoundReport
from fedtempo.policies.times import Durations

STALENESS = 0.1  # of the bonus √(0.1 log R / L)
FIRST_PERCENTILE = 30  # of the durations, where T starts

OPTIONS = {
    "exploration": 0.9,  # ε at first
    "exploration_decay": 0.98,  # factor each round
    "least_exploration": 0.2,
    "penalty": 2.0,  # α
    "clip": 0.95,  # quantile of U
    "cutoff": 0.95,  # share of the utility of the last one that would fit
    "window": 20,  # W, rounds
    "preferred_duration": None,  # T at first, seconds
    "pacer_step": None,  # Δ, seconds
    "most_picks": None,  # None: nobody is left out for being picked often
}


class Oort:
    """Exploit clients of high utility, explore the unknown by speed."""

    def __init__(self, setting: PolicySetting) -> None:
        """Start knowing nothing but nominal times."""
        options = checked_options(setting, OPTIONS)
        for name in ("exploration", "exploration_decay", "least_exploration", "clip", "cutoff"):
            check_fraction(name, options[name])
        for name in ("preferred_duration", "pacer_step"):
            if options[name] is not None:
                check_positive(name, options[name])
        self.options = options
        self.penalty, self.window = (
            check_nonnegative("penalty", options["penalty"]),
            check_count("window", options["window"]),
        )
        self.most_picks = None if options["most_picks"] is None else check_count("most_picks", options["most_picks"])
        self.fleet, self.cohort_size = setting.fleet, check_count("cohort_size", setting.cohort_size)
        self.durations = Durations(self.fleet, self.cohort_size)
        usual = float(np.percentile(self.durations.seconds, FIRST_PERCENTILE))
        self.preferred_duration = float(options["preferred_duration"] or usual)  # T
        self.pacer_step = float(options["pacer_step"] or self.preferred_duration)  # Δ
        size = len(self.fleet)
        self.statistical = np.full(size, np.nan)  # U(i), NaN until the client has answered
        self.last_round = np.zeros(size, dtype=np.int64)  # L(i)
        self.picks = np.zeros(size, dtype=np.int64)
        self.gained: list[float] = []  # ΣU of the rounds in the last two windows

    def plan(self, context: RoundContext) -> RoundPlan:
        """Draw known clients by utility and unknown ones by speed."""
        self.durations.look(context)
        there = context.there(len(self.fleet))
        wanted = min(self.cohort_size, there.size)
        seen = np.isfinite(self.statistical[there])
        known, unknown = self._not_worn_out(there[seen], int(wanted - (~seen).sum())), there[~seen]
        explore = min(int(self.epsilon(context.round_index) * wanted + context.rng.random()), unknown.size)
        exploit = min(wanted - explore, known.size)
        explore = wanted - exploit
        utility = self.utilities(known, context.round_index + 1)
        admitted = utility >= self.options["cutoff"] * (np.sort(utility)[-exploit] if exploit else np.inf)
        best = draw_in_proportion(context.rng, known[admitted], utility[admitted], exploit)
        new = draw_in_proportion(context.rng, unknown, 1 / self.durations.of(unknown), explore)
        members = np.sort(np.r_[best, new])
        share = self.fleet.data_share[members]
        return RoundPlan(
            members=members,
            weights=share / share.sum(),
            average=True,
            note={"explored": explore, "preferred_duration": self.preferred_duration},
        )

    def observe(self, report: RoundReport) -> None:
        """Learn utilities and durations of those who answered, and let the pacer look back."""
        self.durations.observe(report)
        self.picks[report.plan.members] += 1
        answered = np.isfinite(report.mean_loss) & ~report.failed
        clients = report.plan.members[answered]
        self.statistical[clients] = self.fleet.data_share[clients] * report.mean_loss[answered]
        self.last_round[clients] = report.round_index + 1
        self.gained.append(float(self.statistical[clients].sum()))
        if len(self.gained) == 2 * self.window:
            before, lately = self.gained[: self.window], self.gained[self.window :]
            if sum(before) > sum(lately):
                self.preferred_duration += self.pacer_step
            self.gained = lately

    def epsilon(self, round_index: int) -> float:
        """Return the share of the cohort that explores."""
        decayed = self.options["exploration"] * self.options["exploration_decay"] ** round_index
        return float(max(decayed, self.options["least_exploration"]))

    def utilities(self, clients: Integers, now: int) -> Vector:
        """Return the utility of known clients in round R = ``now``."""
        if not clients.size:
            return np.empty(0)
        raw = self.statistical[clients]
        raw = np.minimum(raw, np.quantile(raw, self.options["clip"]))
        low, high = raw.min(), raw.max()
        scaled = (raw - low) / (high - low) if high > low else np.ones(clients.size)
        utility: Vector = scaled + np.sqrt(STALENESS * np.log(now) / self.last_round[clients])
        too_slow = self.preferred_duration / self.durations.of(clients)
        return utility * np.minimum(too_slow, 1.0) ** self.penalty

    def _not_worn_out(self, known: Integers, needed: int) -> Integers:
        """Return those who were not picked too often, or all where too few are left."""
        if self.most_picks is None:
            return known
        fresh = known[self.picks[known] < self.most_picks]
        return fresh if fresh.size >= needed else known

    def state(self) -> dict[str, Any]:
        """Return what was learned."""
        return {
            "statistical": [None if np.isnan(u) else u for u in self.statistical.tolist()],
            "last_round": self.last_round.tolist(),
            "picks": self.picks.tolist(),
            "durations": self.durations.state(),
            "preferred_duration": self.preferred_duration,
            "gained": list(self.gained),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Take it up."""
        self.statistical = np.array([np.nan if u is None else u for u in state["statistical"]], dtype=np.float64)
        self.last_round = np.array(state["last_round"], dtype=np.int64)
        self.picks = np.array(state["picks"], dtype=np.int64)
        self.durations.restore(state["durations"])
        self.preferred_duration, self.gained = state["preferred_duration"], list(state["gained"])


def draw_in_proportion(rng: np.random.Generator, clients: Integers, values: Vector, count: int) -> Integers:
    """Draw so many distinct clients, one after another, in proportion to the values of those who are left."""
    if count >= clients.size:
        return clients
    # Values of 0 get a chance next to nothing, so that there are always enough to draw from.
    chances = np.maximum(values, 1e-9 * values.max()) if values.max() > 0 else np.ones(clients.size)
    return rng.choice(clients, count, replace=False, p=chances / chances.sum())
