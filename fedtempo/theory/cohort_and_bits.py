"""P3 over the cohort size too: how many clients to draw, who, and with how many bits a number each uploads.

Divide P3 by K: V(K) = min over q and b of (Σ q (t s(b)/f_tot + τ/K)) (Σ a² (1 + ω(b))/q + K β/α), s(b) the size of an
upload. For K₁ ≤ K ≤ K₂ the first factor is at least that with τ/K₂, the second at least that with K₁ β/α, so one
solution of P3 bounds V on a whole interval of K, as without bits (optimum.py).
"""

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from fedtempo.checks import InputError, Vector, check_count, check_nonnegative
from fedtempo.fleet import Fleet
from fedtempo.theory.bits import BITS, Sizes, Solution, solve
from fedtempo.theory.optimum import search_cohort

TOLERANCE = 1e-5  # of the time: sizes of cohorts that differ by less are equally good


def optimal_cohort_and_bits(
    fleet: Fleet,
    beta_over_alpha: float,
    max_cohort: int | None = None,
    *,
    bits: Sequence[int] = BITS,
    quantisation_noise: npt.ArrayLike,
    upload_shares: npt.ArrayLike | None = None,
) -> int:
    """Return the cohort size K that with the best q and bits minimises P3, K at most ``max_cohort``.

    Other arguments are those of ``optimal_sampling_and_bits``. For β = 0 a larger cohort never takes longer, so
    ``max_cohort`` must be given.
    """
    ratio = check_nonnegative("beta_over_alpha", beta_over_alpha)
    if max_cohort is None and ratio == 0:
        raise InputError("max_cohort", "be given for beta_over_alpha 0, since a larger cohort is then never slower")
    largest = math.inf if max_cohort is None else check_count("max_cohort", max_cohort)
    sizes = Sizes.of(bits, quantisation_noise, upload_shares, len(fleet))

    def least(first: int, last: float) -> tuple[float, float]:
        found = _least(fleet, first, last, ratio, sizes)
        return found.bound, found.time

    return search_cohort(least, largest, only_falls=ratio == 0, finest=TOLERANCE)


def least_times_with_bits(
    fleet: Fleet,
    cohort_sizes: list[int],
    *,
    beta_over_alpha: float,
    bits: Sequence[int] = BITS,
    quantisation_noise: npt.ArrayLike,
    upload_shares: npt.ArrayLike | None = None,
) -> Vector:
    """Return the least value of P3 over q and bits for each of some cohort sizes."""
    ratio = check_nonnegative("beta_over_alpha", beta_over_alpha)
    sizes = Sizes.of(bits, quantisation_noise, upload_shares, len(fleet))
    scale = float(fleet.importance.sum()) ** 2
    return np.array([_least(fleet, size, size, ratio, sizes).time * scale for size in cohort_sizes])


def _least(fleet: Fleet, first: int, last: float, ratio: float, sizes: Sizes) -> Solution:
    """Solve P3 with the costs of the largest and the progress of the smallest of some cohort sizes."""
    upload = fleet.upload_time / fleet.total_bandwidth
    own_link = fleet.private_time - fleet.ready_time  # what a client's own link adds to the shared one
    return solve(fleet.importance, (upload + own_link / last, fleet.ready_time / last), sizes, first * ratio)
