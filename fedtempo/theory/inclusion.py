"""Cohorts without replacement: who is included with what probability, and draws that keep to it.

A cohort includes client i with probability π_i; weights p_i/π_i make the aggregate unbiased. Its noise is at most
Σ a_i² (1/π_i - 1) with a_i = p_i ‖residual of i‖, and a round takes about c₀ + Σ π_i c_i seconds, c_i being what i adds
to it. The time to a target goes as

    (c₀ + Σ π c) (b + Σ a² (1/π - 1)),

b being the signal in the units of the noise. Stationarity gives π_i = θ a_i/√c_i with θ² = A/B, the ratio of the two
factors, and bounds on π keep that form for those between them. So how many clients take part follows from θ.
"""

import math

import numpy as np
import numpy.typing as npt

from fedtempo.checks import Integers, Vector

MOST_STEPS = 60
MOST_PERMUTED = 10_000  # clients
LIKELY, TIMES_THE_USUAL = 1e-3, 10.0  # q of those likely to be drawn from a large fleet, or so many times 1/N
SMALL_PROBABILITY = 0.1  # for each of the others
TRIES = 20  # for each of them that is to be drawn
SMALLEST = 1e-9  # of the largest importance: less counts as this much
PRECISION = 1e-3  # of θ: noise in a and b is far greater


def inclusion_probabilities(
    importance: Vector, cost: Vector, fixed_cost: float, signal: float, floor: Vector, start: float = 0.0
) -> tuple[Vector, float]:
    """Return π and θ, from the θ of an earlier call if there is one.

    The right side of θ² = A(θ)/B(θ) rises with θ, so steps θ ← √(A/B) go one way, to the nearest solution.
    """
    rate = importance / np.sqrt(cost)
    theta = start or 1 / max(float(rate.max()), 1e-300)
    squares = importance**2
    for _ in range(MOST_STEPS):
        pi = np.clip(theta * rate, floor, 1.0)
        seconds = fixed_cost + float(pi @ cost)
        noise = signal + float((squares / pi).sum() - squares.sum())
        if noise <= 0:
            return np.ones_like(pi), theta
        before, theta = theta, math.sqrt(seconds / noise)
        if abs(theta - before) <= PRECISION * theta:
            break
    return np.clip(theta * rate, floor, 1.0), theta


def inclusion_with_sum(importance: Vector, expected: int) -> Vector:
    """Minimise Σ u_i²/π_i where Σ π_i = m and 0 < π_i ≤ 1 (equation 7 of Chen, Horváth and Richtárik, 2022).

    π_i ∝ u_i for all but the most important, which are certain. Whoever would exceed 1 becomes certain, and the others
    share what is left, which may lift more of them to 1: at most m times, seldom more than twice.
    """
    size = len(importance)
    if expected >= size:
        return np.ones(size)
    u = relative(importance)
    pi: Vector = u * (expected / u.sum())
    certain = pi > 1
    while certain.any():
        u[certain] = 0.0
        scale = (expected - np.count_nonzero(certain)) / float(u.sum())
        np.multiply(u, scale, out=pi)
        if float(pi.max()) <= 1:
            pi[certain] = 1.0
            break
        certain |= pi > 1
    return pi


def relative(importance: Vector) -> Vector:
    """Return the importance in units of the largest, none of it zero; all alike where all are zero."""
    largest = float(importance.max())
    return np.maximum(importance / largest, SMALLEST) if largest > 0 else np.ones(len(importance))


def draw_systematically(inclusion: Vector, rng: np.random.Generator) -> Integers:
    """Draw each client with its π, in all ⌊Σπ⌋ or ⌈Σπ⌉ of them: marks at distance 1 along the sums of π.

    The order is drawn anew each time, so that any two clients may meet, except in large fleets.
    """
    # In a large fleet two given clients hardly ever meet anyway, and a permutation would take the most time.
    order = rng.permutation(len(inclusion)) if len(inclusion) <= MOST_PERMUTED else np.arange(len(inclusion))
    ends = np.cumsum(inclusion[order])
    marks = np.arange(rng.random(), ends[-1], 1.0)
    # Rounding may put a mark on a client with π = 1 twice; a set has it once.
    return np.unique(order[np.searchsorted(ends, marks, side="right").clip(max=len(order) - 1)])


class DrawsFromMany:
    """Draws of a few distinct clients from a large fleet, again and again with one q, without passes over the fleet.

    Those who are likely to be drawn are few, and get their exact π. All others together are a pool; how many come from
    it is drawn with the likely ones, and who they are, one after another in proportion to q. Whoever is not free or was
    drawn is passed over, so each in the pool has π close to its share of it, since that is small.
    """

    def __init__(self, sampling_prob: Vector) -> None:
        """Find the likely ones, and sum up the others."""
        self.q, self.bound = sampling_prob, max(LIKELY, TIMES_THE_USUAL / len(sampling_prob))
        self.likely = np.flatnonzero(sampling_prob > self.bound)
        self.all_ends = np.cumsum(sampling_prob)
        others = sampling_prob.copy()
        others[self.likely] = 0.0
        self.ends = np.cumsum(others)

    def draw(
        self, number: int, free: npt.NDArray[np.bool_] | None, rng: np.random.Generator
    ) -> tuple[Integers, Vector] | None:
        """Return who was drawn of those who are free, and their π; None if the pool is too small for that."""
        q, likely, pool = self.q, self.likely, float(self.ends[-1])
        busy = q[:0] if free is None else q[np.flatnonzero(~free)]
        if number == 1:  # nobody's π is above 1: in proportion to q, exactly
            one = _draw_distinct(self.all_ends, 1, free, rng)
            return None if one is None else (one, q[one] / (self.all_ends[-1] - busy.sum()))
        if free is not None:
            likely = likely[free[likely]]
            pool -= float(busy[busy <= self.bound].sum())
        if pool <= 0:
            return None
        # The pool as that many equal parts: none of them has π above 1.
        inclusion = inclusion_with_sum(np.append(q[likely], np.full(number, pool / number)), number)
        share = number * float(inclusion[-1]) / pool
        if share * self.bound > SMALL_PROBABILITY:
            return None
        chosen = draw_systematically(inclusion, rng)
        certain = chosen[chosen < len(likely)]
        others = _draw_distinct(self.ends, len(chosen) - len(certain), free, rng)
        if others is None:
            return None
        return np.append(likely[certain], others), np.append(inclusion[certain], q[others] * share)


def _draw_distinct(
    ends: Vector, number: int, free: npt.NDArray[np.bool_] | None, rng: np.random.Generator
) -> Integers | None:
    """Draw clients that are free one after another, in proportion to what the sums grow by; None if that takes long."""
    found: set[int] = set()
    for client in ends.searchsorted(rng.random(TRIES * number) * ends[-1], side="right").tolist():
        if len(found) == number:
            break
        if client < len(ends) and (free is None or free[client]):
            found.add(client)
    return np.array(sorted(found), dtype=np.int64) if len(found) == number else None


def marginal_round_times(compute_time: Vector, upload_time: Vector, members: Integers) -> tuple[Vector, float]:
    """Return what each client adds to the round of a cohort, and the round's time, on a link that is never idle.

    Upload times are those with the whole bandwidth. The round ends at max_k (τ_k + Σ_{τ_j ≥ τ_k} t_j). One more client
    delays all that are ready before it by its t, and may end last itself; a member adds what its absence would save.
    """
    ready, work = compute_time[members], upload_time[members]
    marginal, end = _added_by(compute_time, upload_time, ready, work)
    for k, member in enumerate(members.tolist()):
        others = np.delete(ready, k), np.delete(work, k)
        added, _ = _added_by(compute_time[[member]], upload_time[[member]], *others)
        marginal[member] = added[0]
    return marginal, end


def _added_by(tau: Vector, t: Vector, ready: Vector, work: Vector) -> tuple[Vector, float]:
    order = np.argsort(ready, kind="stable")
    ready, work = ready[order], work[order]
    to_send = np.append(np.cumsum(work[::-1])[::-1], 0.0)  # by those ready at k or later
    ends = ready + to_send[:-1]
    end = float(ends.max(initial=0.0))
    place = np.searchsorted(ready, tau, side="right")
    before = np.append(-np.inf, np.maximum.accumulate(ends))[place]  # of those ready before the new one
    new_end = np.maximum(np.maximum(before, tau + to_send[place]) + t, end)
    return new_end - end, end
