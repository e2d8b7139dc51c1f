"""The exact optimum of P3: who to draw how often, and jointly how many.

P3 asks for the q that minimises (Σ q c)(Σ a²/q + C), with a = p G and C = K β/α. Its only stationary point, and so its
global optimum, is q_i = a_i/√(ρ c_i - C) with the one ρ for which Σ q = 1 (docs/theory.md has the proof).
"""

import heapq
import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from fedtempo.checks import InputError, Vector, check_count, check_fraction, check_nonnegative
from fedtempo.fleet import Fleet
from fedtempo.theory.roots import root
from fedtempo.theory.round_time import round_cost

CLIENT_BLOCK = 16_384  # clients in one block: its arrays stay in the cache however large the fleet is


# Of the total time: within it one cohort size is as good as another. Around K* times differ by about 1/K*² from one K
# to the next, so sizes up to a thousand are distinguished; beyond, that would only cost time.
SMALL_COHORT, COHORT_TOLERANCE, LARGE_COHORT_TOLERANCE = 1000, 1e-9, 1e-6


class CohortPlan(NamedTuple):
    """A cohort size and the sampling probabilities that belong to it."""

    cohort_size: int  # K
    sampling_prob: Vector  # q


def optimal_sampling(fleet: Fleet, *, cohort_size: int, beta_over_alpha: float, floor: float = 0.0) -> Vector:
    """Return the q that minimises P3, the total time to a given loss.

    A floor ε > 0 mixes in the data shares, q ← (1-ε) q + ε p, which keeps every aggregation weight p/(K q) at or below
    1/(K ε). Only ε = 0 is exactly optimal.
    """
    check_fraction("floor", floor)
    size, ratio = check_count("cohort_size", cohort_size), check_nonnegative("beta_over_alpha", beta_over_alpha)
    q = minimise_time(fleet.importance, round_cost(fleet, cohort_size=size), size * ratio)
    return with_floor(fleet, q, floor)


def with_floor(fleet: Fleet, q: Vector, floor: float) -> Vector:
    """Mix a share of the data shares into q, which is changed."""
    share = check_fraction("floor", floor)
    if share > 0:
        q *= 1 - share
        q += fleet.data_share * (share / float(fleet.data_share.sum()))
    return q


def optimal_cohort(fleet: Fleet, beta_over_alpha: float, max_cohort: int | None = None) -> CohortPlan:
    """Return the cohort size K and the q that together minimise P3, K at most ``max_cohort``.

    The best total time is not unimodal in K, so descent could end in the wrong valley. But for all K from K₁ to K₂ it
    is at least the optimum of P3 with c = t/f_tot + τ/K₂ and C = K₁ β/α: intervals are split, the most promising first,
    until none can hold a K that beats the best one found by more than ``COHORT_TOLERANCE``. For β = 0 a larger cohort
    never takes longer, so there is no best one and ``max_cohort`` must be given.
    """
    ratio = check_nonnegative("beta_over_alpha", beta_over_alpha)
    if max_cohort is None and ratio == 0:
        raise InputError(
            name="max_cohort", rule="be given for beta_over_alpha 0, since a larger cohort is then never slower"
        )
    largest = math.inf if max_cohort is None else check_count("max_cohort", max_cohort)
    importance = fleet.importance
    upload, private = fleet.upload_time / fleet.total_bandwidth, fleet.private_time

    def least_time(first: int, last: float) -> float:
        return _least_objective(importance, upload + private / last, first * ratio)

    best = search_cohort(lambda first, last: (least_time(first, last),) * 2, largest, only_falls=ratio == 0)
    return CohortPlan(best, optimal_sampling(fleet, cohort_size=best, beta_over_alpha=ratio))


def search_cohort(
    least: Callable[[int, float], tuple[float, float]],
    largest: float,
    *,
    only_falls: bool = False,
    finest: float = COHORT_TOLERANCE,
) -> int:
    """Return the cohort size with the least time.

    ``least`` bounds the times of all sizes from one to another from below; where both are the same, it also returns a
    time that this size takes. ``only_falls``: whether time falls with the size. ``finest``: share of the time by which
    a size must be better than the best one found.
    """
    best_time, best = math.inf, 1
    intervals: list[tuple[float, int, float]] = [(least(1, largest)[0], 1, largest)]
    while intervals:
        bound, first, last = heapq.heappop(intervals)
        tolerance = max(COHORT_TOLERANCE if best <= SMALL_COHORT else LARGE_COHORT_TOLERANCE, finest)
        if bound > best_time * (1 - tolerance):
            break
        middle = 2 * first if math.isinf(last) else math.isqrt(first * int(last))
        if only_falls:
            middle = int(last)
        time = least(middle, middle)[1]
        if (time, middle) < (best_time, best):
            best_time, best = time, middle
        for low, high in ((first, middle - 1), (middle + 1, last)):
            if low <= high:
                heapq.heappush(intervals, (least(low, high)[0], low, high))
    return best


def least_times(fleet: Fleet, cohort_sizes: list[int], *, beta_over_alpha: float) -> Vector:
    """Return the least value of P3 over q for each of some cohort sizes."""
    ratio, importance = check_nonnegative("beta_over_alpha", beta_over_alpha), fleet.importance
    costs = ((size, round_cost(fleet, cohort_size=size) / size) for size in cohort_sizes)
    return np.array([_least_objective(importance, cost, size * ratio) for size, cost in costs])


def _least_objective(importance: Vector, cost: Vector, constant: float) -> float:
    q = minimise_time(importance.copy(), cost.copy(), constant)
    return float(q @ cost) * (float((importance * importance / q).sum()) + constant)


def minimise_time(importance: Vector, cost: Vector, constant: float) -> Vector:
    """Return q; it takes the place of ``importance``, and ``cost`` is overwritten too.

    With e_i = c_i/c_min - 1, a scaled to sum 1 (and C with it) and x = ρ c_min - C > 0,
    ρ c_i - C = x + (x + C) e_i: no cancellation, also where the fastest client has a tiny a_i.
    """
    scale = float(importance.sum())
    constant = constant / scale / scale if scale > 0 else math.inf
    if not (math.isfinite(scale) and math.isfinite(constant)):
        raise InputError(
            name="beta_over_alpha", rule="be comparable with the squared gradient bounds", got="a ratio beyond 1e300"
        )
    importance /= scale
    fastest = float(cost.min())
    cost -= fastest
    cost /= fastest
    extra = cost
    parts = [slice(start, start + CLIENT_BLOCK) for start in range(0, extra.size, CLIENT_BLOCK)]
    under, chance = np.empty(min(extra.size, CLIENT_BLOCK)), np.empty(min(extra.size, CLIENT_BLOCK))

    def probabilities(part: slice, x: float) -> tuple[Vector, Vector]:
        e = extra[part]
        y, q = under[: e.size], chance[: e.size]
        np.multiply(e, x + constant, out=y)
        y += x
        np.sqrt(y, out=q)
        np.divide(importance[part], q, out=q)
        return y, q

    def total(x: float) -> tuple[float, float]:
        chances, over_y = 0.0, 0.0
        for part in parts:
            y, q = probabilities(part, x)
            chances += float(q.sum())
            np.divide(q, y, out=q)
            over_y += float(q.sum())
        return chances, x * (chances + constant * over_y) / (2 * (x + constant) * chances)

    x = root(total, *_bracket(importance, extra, constant, parts), power=0.5)
    for part in parts:
        importance[part] = probabilities(part, x)[1]
    importance /= importance.sum()
    if not importance.min() > 0:
        raise InputError(
            name="importance and cost", rule="span less than 300 decades", got="a client whose probability is 0"
        )
    return importance


def _bracket(importance: Vector, extra: Vector, constant: float, parts: list[slice]) -> tuple[float, float]:
    """Bounds of x: below, the fastest clients alone and Jensen's inequality; above, the closed form for C = 0."""
    fastest, mean_extra, closed_form = 0.0, 0.0, 0.0
    for part in parts:
        a, e = importance[part], extra[part]
        fastest += float(a[e == 0].sum())
        mean_extra += float(a @ e)
        closed_form += float((a / np.sqrt(1 + e)).sum())
    high = closed_form * closed_form
    if constant == 0:
        return high, high
    return max(fastest * fastest, (1 - constant * mean_extra) / (1 + mean_extra)), high
