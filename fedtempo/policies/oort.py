"""Oort: prefer clients whose data still has much to teach and who are fast, and keep exploring the others.

F. Lai, X. Zhu, H. V. Madhyastha, M. Chowdhury, "Oort: Efficient Federated Learning via Guided Participant Selection",
OSDI 2021. In round R (from 1 on) a client i that has reported before, last in round L(i), has the utility

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

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fedtempo.checks import Integers, Vector, check_count, check_fraction, check_nonnegative, check_positive
from fedtempo.fleet import Fleet
from fedtempo.policies.options import read_options
from fedtempo.policies.policy import Policy, PolicySetting, RoundContext, RoundPlan, RoundReport
from fedtempo.policies.times import Durations, TimesState

STALENESS = 0.1  # of the bonus √(0.1 log R / L)
FIRST_PERCENTILE = 30  # of the durations, where T starts


@dataclass(frozen=True, kw_only=True, slots=True)
class OortOptions:
    """Of ``oort``."""

    exploration: float = 0.9  # ε at first
    exploration_decay: float = 0.98  # factor each round
    least_exploration: float = 0.2
    penalty: float = 2.0  # α
    clip: float = 0.95  # quantile of U
    cutoff: float = 0.95  # share of the utility of the last one that would fit
    window: int = 20  # W, rounds
    preferred_duration: float | None = None  # T at first, seconds; None: a percentile of the nominal durations
    pacer_step: float | None = None  # Δ, seconds; None: T at first
    most_picks: int | None = None  # None: nobody is left out for being picked often

    def __post_init__(self) -> None:
        """Check the options."""
        for name in ("exploration", "exploration_decay", "least_exploration", "clip", "cutoff"):
            check_fraction(name, getattr(self, name))
        for name in ("preferred_duration", "pacer_step"):
            if (seconds := getattr(self, name)) is not None:
                check_positive(name, seconds)
        check_nonnegative("penalty", self.penalty)
        check_count("window", self.window)
        if self.most_picks is not None:
            check_count("most_picks", self.most_picks)


@dataclass(eq=False, slots=True)
class OortState:
    """What was learned."""

    statistical: Vector  # U(i), NaN until the client has reported
    last_round: Integers  # L(i)
    picks: Integers  # how often each was a member
    preferred_duration: float  # T, seconds
    gained: tuple[float, ...]  # ΣU of the rounds in the last two windows
    times: TimesState

    @classmethod
    def at_first(cls, fleet: Fleet, preferred_duration: float) -> "OortState":
        """Start knowing nothing but nominal times."""
        last_round, picks = np.zeros((2, len(fleet)), dtype=np.int64)
        return cls(np.full(len(fleet), np.nan), last_round, picks, preferred_duration, (), TimesState.nominal(fleet))


class Oort(Policy):
    """Exploit clients of high utility, explore the unknown by speed."""

    state: OortState

    def __init__(self, setting: PolicySetting) -> None:
        """Read the options."""
        self.options = read_options(OortOptions, setting.options)
        self.fleet, self.cohort_size = setting.fleet, check_count("cohort_size", setting.cohort_size)
        self.state = OortState.at_first(self.fleet, self.first_duration)

    @cached_property
    def first_duration(self) -> float:
        """T at first, seconds."""
        if self.options.preferred_duration is not None:
            return float(self.options.preferred_duration)
        nominal = Durations(self.fleet, self.cohort_size, TimesState.nominal(self.fleet))
        return float(np.percentile(nominal.seconds(), FIRST_PERCENTILE))

    @property
    def pacer_step(self) -> float:
        """Δ, seconds."""
        return float(self.options.pacer_step or self.first_duration)

    @property
    def durations(self) -> Durations:
        """How long rounds take clients, as far as that is known."""
        return Durations(self.fleet, self.cohort_size, self.state.times)

    def plan(self, context: RoundContext) -> RoundPlan:
        """Draw known clients by utility and unknown ones by speed."""
        self.durations.look(context)
        available = context.available_clients(len(self.fleet))
        wanted = min(self.cohort_size, available.size)
        seen = np.isfinite(self.state.statistical[available])
        known, unknown = self._not_worn_out(available[seen], int(wanted - (~seen).sum())), available[~seen]
        explore = min(int(self.epsilon(context.round_index) * wanted + context.rng.random()), unknown.size)
        exploit = min(wanted - explore, known.size)
        explore = wanted - exploit
        utility = self.utilities(known, context.round_index + 1)
        admitted = utility >= self.options.cutoff * (np.sort(utility)[-exploit] if exploit else np.inf)
        best = draw_in_proportion(context.rng, known[admitted], utility[admitted], exploit)
        new = draw_in_proportion(context.rng, unknown, 1 / self.durations.seconds(unknown), explore)
        members = np.sort(np.r_[best, new])
        share = self.fleet.data_share[members]
        return RoundPlan(
            members=members,
            weights=share / share.sum(),
            average=True,
            note={"explored": explore, "preferred_duration": self.state.preferred_duration},
        )

    def observe(self, report: RoundReport) -> None:
        """Learn utilities and durations of those who reported, and let the pacer look back."""
        state = self.state
        self.durations.observe(report)
        state.picks[report.plan.members] += 1
        reported = np.isfinite(report.mean_loss) & ~report.failed
        clients = report.plan.members[reported]
        state.statistical[clients] = self.fleet.data_share[clients] * report.mean_loss[reported]
        state.last_round[clients] = report.round_index + 1
        state.gained += (float(state.statistical[clients].sum()),)
        window = self.options.window
        if len(state.gained) == 2 * window:
            before, lately = state.gained[:window], state.gained[window:]
            if sum(before) > sum(lately):
                state.preferred_duration += self.pacer_step
            state.gained = lately

    def epsilon(self, round_index: int) -> float:
        """Return the share of the cohort that explores."""
        decayed = self.options.exploration * self.options.exploration_decay**round_index
        return float(max(decayed, self.options.least_exploration))

    def utilities(self, clients: Integers, now: int) -> Vector:
        """Return the utility of known clients in round R = ``now``."""
        if not clients.size:
            return np.empty(0)
        raw = self.state.statistical[clients]
        raw = np.minimum(raw, np.quantile(raw, self.options.clip))
        low, high = raw.min(), raw.max()
        scaled = (raw - low) / (high - low) if high > low else np.ones(clients.size)
        utility: Vector = scaled + np.sqrt(STALENESS * np.log(now) / self.state.last_round[clients])
        too_slow = self.state.preferred_duration / self.durations.seconds(clients)
        return utility * np.minimum(too_slow, 1.0) ** float(self.options.penalty)

    def _not_worn_out(self, known: Integers, needed: int) -> Integers:
        """Return those who were not picked too often, or all where too few are left."""
        if self.options.most_picks is None:
            return known
        fresh = known[self.state.picks[known] < self.options.most_picks]
        return fresh if fresh.size >= needed else known


def draw_in_proportion(rng: np.random.Generator, clients: Integers, values: Vector, count: int) -> Integers:
    """Draw so many distinct clients, one after another, in proportion to the values of those who are left."""
    if count >= clients.size:
        return clients
    # Values of 0 get a chance next to nothing, so that there are always enough to draw from.
    chances = np.maximum(values, 1e-9 * values.max()) if values.max() > 0 else np.ones(clients.size)
    return rng.choice(clients, count, replace=False, p=chances / chances.sum())
