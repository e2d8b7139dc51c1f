"""Shadowheart SGD: each client computes as many batches, and sends as much, as fits into one equilibrium time.

A. Tyurin, M. Pozzi, I. Ilin, P. Richtárik, "Shadowheart SGD: Distributed Asynchronous SGD with Optimal Time Complexity
Under Arbitrary Computation and Communication Heterogeneity", NeurIPS 2024. Client i takes h_i seconds for one batch and
τ_i for one compressed vector, whose noise is ω; R = σ²/ε is the noise of a batch over the accuracy that is wanted. The
equilibrium time t* is the smallest max(max(h_j, τ_j), s_j) over j, clients in the order of max(h, τ), where s_j solves

    Σ_{i ≤ j} s/(2 τ_i ω + 4 τ_i h_i ω R/s + 2 h_i R) = 1.

In a round each client with max(h, τ) ≤ t* computes b = ⌊t*/h⌋ batches, sends m = ⌊t*/τ⌋ compressed vectors of their
sum, and the server takes Σ w_i m_i (sum of i's batches)/Σ w_i m_i b_i for the gradient, with w = 1/(b ω + ω R + m R).
All others take no part in the round.

Departures from the paper, which has equal data everywhere, all clients in each round, and a link for each client:

- Members are K distinct draws by data share, and each counts on f_tot/K of the one link. A slow client never takes
  part, so with unlike data the aggregate is biased.
- Batches are b local steps of η E/b, along a path as long as that of E steps of η, rather than at one model. b is at
  most ``most_local_steps``, four times E unless it is given.
- m vectors of one update have the noise ω/m. Here a client sends one vector, with as many bits a number as m vectors of
  2 bits would take, which is less noise in the same time; ω_i is that of its bits and stands for ω/m_i in all formulas.
  It does so for ``upload_bits = "auto"``. Where the settings of training fix the bits, m is 1 and ω that of these bits:
  with 32 bits ω = 0, and t* decides on members and local steps alone.
- ε is not known beforehand. R is K E/2 unless it is given: with equal clients and no noise of uploads, t* is then the
  time of E steps.
- ω is what is usual until reports say better. The deadline is planned, not enforced.
"""

from dataclasses import dataclass

import numpy as np

from fedtempo.checks import Integers, Vector, check_count, check_positive
from fedtempo.policies.options import read_options
from fedtempo.policies.policy import Policy, PolicySetting, RoundContext, RoundPlan, RoundReport
from fedtempo.policies.times import ClientTimes, TimesState
from fedtempo.theory.bits import BITS, USUAL_NOISE

PAST = 0.9  # share of the past in running means of ω
LONGEST = 4  # times E
HALVINGS = 100


@dataclass(frozen=True, kw_only=True, slots=True)
class ShadowheartOptions:
    """Of ``shadowheart``."""

    noise_ratio: float | None = None  # R = σ²/ε; None: K E/2
    most_local_steps: int | None = None  # None: 4 E

    def __post_init__(self) -> None:
        """Check the options."""
        if self.noise_ratio is not None:
            check_positive("noise_ratio", self.noise_ratio)
        if self.most_local_steps is not None:
            check_count("most_local_steps", self.most_local_steps)


@dataclass(eq=False, slots=True)
class ShadowheartState:
    """What was learned."""

    noise: Vector  # ω of each size of uploads
    times: TimesState


class Shadowheart(Policy):
    """Draw K clients, and let those take part who have something to send by the equilibrium time."""

    state: ShadowheartState

    def __init__(self, setting: PolicySetting) -> None:
        """Read the options."""
        self.options = read_options(ShadowheartOptions, setting.options)
        self.fleet, self.cohort_size = setting.fleet, check_count("cohort_size", setting.cohort_size)
        self.bits, self.shares = setting.upload_bits, np.array(setting.upload_shares)
        self.state = ShadowheartState(np.array(USUAL_NOISE), TimesState.nominal(self.fleet))

    @property
    def times(self) -> ClientTimes:
        """How long clients take, as far as that is known."""
        return ClientTimes(self.state.times)

    def plan(self, context: RoundContext) -> RoundPlan:
        """Draw clients, find their equilibrium time, and let each do what fits into it."""
        self.times.look(context)
        drawn = self._draw(context)
        if not drawn.size:
            return RoundPlan(members=drawn, weights=np.empty(0))
        steps = context.local_steps
        ratio = self.options.noise_ratio or drawn.size * steps / 2
        batch = np.maximum(self.state.times.compute[drawn] / steps, 1e-12)
        whole = self.state.times.upload[drawn] / self._bandwidth(drawn)
        vector = whole * (self.shares[0] if self.bits == "auto" else 1.0)
        smallest = 0 if self.bits == "auto" else BITS.index(self.bits)
        seconds = equilibrium_time(batch, vector, float(self.state.noise[smallest]), ratio)
        able = np.maximum(batch, vector) <= seconds * (1 + 1e-9)
        members, room = drawn[able], seconds * (1 + 1e-9)
        most = self.options.most_local_steps or LONGEST * steps
        batches = np.clip(np.floor(room / batch[able]), 1, most).astype(np.int64)
        size = np.full(members.size, smallest)
        if self.bits == "auto":  # the largest whose bytes are at most those of m vectors
            fits = self.shares <= (np.floor(room / vector[able]) * self.shares[0] * (1 + 1e-9))[:, np.newaxis]
            size = np.array([np.flatnonzero(row)[-1] for row in fits])
        return RoundPlan(
            members=members,
            weights=batches * weights_of(batches, self.state.noise[size], ratio),
            local_steps=batches,
            step_size=context.step_size * steps / batches,
            upload_bits=np.array(BITS)[size] if self.bits == "auto" else None,
            note={"equilibrium_time": seconds, "drawn": int(drawn.size)},
        )

    def observe(self, report: RoundReport) -> None:
        """Learn times and noise from those who reported."""
        self.times.observe(report)
        if report.noise is None:
            return
        seen = report.noise[~report.failed & np.isfinite(report.noise).all(axis=1)]
        if len(seen):
            self.state.noise = PAST * self.state.noise + (1 - PAST) * seen.mean(axis=0)

    def _draw(self, context: RoundContext) -> Integers:
        available = context.available_clients(len(self.fleet))
        if available.size <= self.cohort_size:
            return available
        share = self.fleet.data_share[available]
        return np.sort(context.rng.choice(available, self.cohort_size, replace=False, p=share / share.sum()))

    def _bandwidth(self, clients: Integers) -> Vector:
        equal = np.full(clients.size, self.fleet.total_bandwidth / clients.size)
        cap = self.fleet.bandwidth_cap
        return equal if cap is None else np.minimum(equal, cap[clients])


def equilibrium_time(batch: Vector, vector: Vector, noise: float, ratio: float) -> float:
    """Return t* for the seconds h of a batch and τ of a vector, ω and R.

    s_j falls in j, as more clients share the work, and max(h_j, τ_j) does not. So t* is the smallest t for which the
    sum over all clients with max(h, τ) ≤ t is at least 1; the sum rises in t.
    """
    slower = np.maximum(batch, vector)

    def enough(seconds: float) -> bool:
        h, tau = batch[slower <= seconds], vector[slower <= seconds]
        cost = 2 * tau * noise + 4 * tau * h * noise * ratio / seconds + 2 * h * ratio
        return bool((seconds / cost).sum() >= 1)

    low = high = float(slower.min())
    if enough(high):
        return high
    while not enough(high):
        low, high = high, 2 * high
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        if not low < middle < high:
            break
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def weights_of(batches: Vector | Integers, noise: Vector, ratio: float) -> Vector:
    """Return w_i m_i/Σ w_j m_j b_j, with ω_i for ω/m_i: w_i m_i = 1/(b_i ω_i + ω_i R + R)."""
    value = 1 / (batches * noise + (noise + 1) * ratio)
    weights: Vector = value / float(value @ batches)
    return weights
