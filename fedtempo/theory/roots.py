"""Roots of sums of powers: the one equation behind the bandwidth shares (eq. 4) and the optimal sampling (P3).

Both ask for the x > 0 with S(x) = 1, where S(x) = Σ_i b_i (u_i x + d_i)^(-s), all b, u > 0 and d ≥ 0: s = 1 for
bandwidth, s = 1/2 for sampling. S falls strictly to 0, and two of its transforms are concave and increasing:

- S^(-1/s) as a function of x: a power mean of order -s < 1 of affine functions;
- S as a function of v = x^(-s): each term is b v (u + d v^(1/s))^(-s).

A tangent of a concave function lies above it, so the tangent's root never lies beyond the true one. One evaluation of S
and S' at any point therefore gives a lower bound of x from the first transform, and of v, which is an upper bound of x,
from the second: each step tightens a proven bracket from both sides, quadratically once it is narrow. Stepping to the
geometric mean of the bracket halves its logarithm at worst, so poles that lie decades apart cost a few steps, not many.
"""

import math
from collections.abc import Callable

import numpy as np

from fedtempo.checks import Vector

TOLERANCE = 1e-14  # of S(x) around 1
MOST_STEPS = 200


def root(evaluate: Callable[[float], tuple[float, float]], low: float, high: float, power: float) -> float:
    """Return the x in [low, high] with S(x) = 1; ``evaluate`` gives S(x) and its log-log slope -x S'(x)/S(x)."""
    for _ in range(MOST_STEPS):
        x = math.sqrt(low) * math.sqrt(high)
        if high <= low * (1 + TOLERANCE):
            return x
        total, slope = evaluate(x)
        if abs(total - 1) <= TOLERANCE:
            return x
        gain = power / slope
        shrink = 1 + gain * (1 / total - 1)
        low = max(low, x * (1 + gain * (total ** (1 / power) - 1)))
        if shrink > 0:
            high = min(high, x * shrink ** (-1 / power))
    raise ArithmeticError(f"no root of the power sum found between {low} and {high} in {MOST_STEPS} steps")


def reciprocal_roots(evaluate: Callable[[Vector], tuple[Vector, Vector]], low: Vector, high: Vector) -> Vector:
    """Return the roots of many sums with s = 1 at once, each as ``root`` finds one."""
    for _ in range(MOST_STEPS):
        x = np.sqrt(low) * np.sqrt(high)
        done = high <= low * (1 + TOLERANCE)
        if done.all():
            return x
        total, slope = evaluate(x)
        done |= np.abs(total - 1) <= TOLERANCE
        gain = 1 / slope
        shrink = np.maximum(1 + gain * (1 / total - 1), 1e-100)  # at or below 0 the tangent bounds nothing
        np.maximum(low, x * (1 + gain * (total - 1)), out=low)
        np.minimum(high, x / shrink, out=high)
        low[done] = high[done] = x[done]
    raise ArithmeticError(f"no root of the power sums found in {MOST_STEPS} steps")
