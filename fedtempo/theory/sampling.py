"""Who is drawn, and with what weight: baseline distributions, draws with replacement, Lemma 1."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedtempo.checks import InputError, Integers, Vector, as_integers, as_numbers, check_count, first_violation
from fedtempo.fleet import Fleet

SUM_TOLERANCE = 1e-6
ROUNDING = 1e-12


def uniform_sampling(fleet: Fleet) -> Vector:
    """q_i = 1/N."""
    return np.full(len(fleet), 1 / len(fleet))


def weighted_sampling(fleet: Fleet) -> Vector:
    """q_i = p_i."""
    return np.asarray(fleet.data_share / fleet.data_share.sum())


def statistical_sampling(fleet: Fleet) -> Vector:
    """q_i ∝ p_i G_i: the least sampling variance, blind to time."""
    importance = fleet.importance
    importance /= importance.sum()
    return importance


def check_sampling_prob(sampling_prob: npt.ArrayLike, size: int | None = None) -> Vector:
    """Return q as an array: positive, since a client that is never drawn biases the model, and summing to 1."""
    q = as_numbers("sampling_prob", sampling_prob)
    if q.ndim != 1 or q.size == 0 or (size is not None and q.size != size):
        wanted = "client" if size is None else f"of the {size} clients"
        raise InputError(name="sampling_prob", rule=f"have one entry for each {wanted}", got=f"shape {q.shape}")
    bad = first_violation(q, allow_zero=False)
    if bad is not None:
        raise InputError(name="sampling_prob", rule="be positive", got=f"{q[bad]:g} for client number {bad}")
    total = float(q.sum())
    if abs(total - 1) > SUM_TOLERANCE:
        raise InputError(name="sampling_prob", rule="sum to 1", got=f"{total:.6g}", remedy="divide it by its sum")
    return q if abs(total - 1) < ROUNDING else q / total


@dataclass(frozen=True, eq=False, slots=True)
class DrawTable:
    """q made ready for repeated draws: O(N) once, O(log N) for each draw."""

    cumulative: Vector

    @classmethod
    def of(cls, sampling_prob: npt.ArrayLike) -> "DrawTable":
        """Prepare draws from q."""
        cumulative = np.cumsum(check_sampling_prob(sampling_prob))
        cumulative /= cumulative[-1]
        return cls(cumulative)


def draw_cohort(
    sampling_prob: npt.ArrayLike | DrawTable, cohort_size: int, rng: np.random.Generator, *, cohorts: int | None = None
) -> Integers:
    """Draw K clients with replacement from q: their numbers, a client drawn m times standing there m times.

    Pass ``DrawTable.of(q)`` instead of q to draw often from the same q. With ``cohorts`` the result has a row for each.
    """
    table = sampling_prob if isinstance(sampling_prob, DrawTable) else DrawTable.of(sampling_prob)
    size = check_count("cohort_size", cohort_size)
    shape = size if cohorts is None else (check_count("cohorts", cohorts), size)
    # The last entry is exactly 1 and a random number is below it, so the search never runs over the end.
    return np.searchsorted(table.cumulative, rng.random(shape), side="right")


def aggregation_weights(cohort: npt.ArrayLike, sampling_prob: npt.ArrayLike, data_share: npt.ArrayLike) -> Vector:
    """p_j/(K q_j) for each draw j (Lemma 1): with these weights the expected update is that of full participation.

    ``cohort`` is what ``draw_cohort`` returned, of shape (K,) or (cohorts, K); so is the result.
    """
    drawn = as_integers("cohort", cohort)
    if drawn.ndim == 0 or drawn.shape[-1] == 0:
        raise InputError(name="a cohort", rule="have at least one member", got=f"shape {drawn.shape}")
    q, p = as_numbers("sampling_prob", sampling_prob), as_numbers("data_share", data_share)
    if q.shape != p.shape:
        raise InputError(name="sampling_prob and data_share", rule="have the same length", got=f"{q.size} and {p.size}")
    if drawn.min() < 0 or drawn.max() >= q.size:
        raise InputError(
            name="cohort", rule=f"hold numbers from 0 to {q.size - 1}", got=f"{drawn.min()} to {drawn.max()}"
        )
    chance = q[drawn]
    if not np.all(chance > 0):
        raise InputError(
            name="sampling_prob",
            rule="be positive for each client in the cohort",
            got="0",
            remedy="it cannot have been drawn",
        )
    return np.asarray(p[drawn] / (drawn.shape[-1] * chance))
