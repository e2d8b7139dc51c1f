"""What pilot runs show: gradient bounds G_i, and β/α from a ratio of rounds (eqs. 34-35)."""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedtempo.checks import InputError, Vector, as_integers, as_numbers, check_count
from fedtempo.fleet import Fleet


@dataclass(frozen=True, eq=False, slots=True)
class GradientBoundEstimate:
    """G_i for each client, and which of them were measured."""

    gradient_bound: Vector
    measured: npt.NDArray[np.bool_]


def estimate_gradient_bounds(
    clients: npt.ArrayLike, gradient_norms: npt.ArrayLike, *, num_clients: int
) -> GradientBoundEstimate:
    """Return for each client the largest gradient norm that it reported in the pilots.

    Entry k of ``gradient_norms`` came from client ``clients[k]``. A client never drawn, or with zeros only, takes
    the median of the others: with G = 0 it would never be drawn, and the model would be biased.
    """
    who, norms = as_integers("clients", clients), as_numbers("gradient_norms", gradient_norms)
    size = check_count("num_clients", num_clients)
    if who.shape != norms.shape or who.ndim != 1:
        raise InputError(
            name="gradient_norms",
            rule="have one entry for each of clients",
            got=f"shapes {norms.shape} and {who.shape}",
        )
    if who.size and not (who.min() >= 0 and who.max() < size):
        raise InputError(name="clients", rule=f"be numbers from 0 to {size - 1}", got=f"{who.min()} to {who.max()}")
    if not np.all((norms >= 0) & np.isfinite(norms)):
        raise InputError(
            name="gradient_norms",
            rule="be zero or positive, and finite",
            got="others",
            remedy="has the pilot diverged?",
        )
    bound = np.zeros(size)
    np.maximum.at(bound, who, norms)
    measured = bound > 0
    if not measured.any():
        raise InputError(
            name="gradient_norms", rule="hold at least one positive norm", got="none", remedy="run the pilots longer"
        )
    bound[~measured] = np.median(bound[measured])
    return GradientBoundEstimate(bound, measured)


@dataclass(frozen=True, eq=False, slots=True)
class BetaOverAlphaEstimate:
    """β/α from the rounds that uniform and weighted sampling needed to each of several losses F_s."""

    value: float | None  # the mean over the usable losses, None where there is none
    ratios: Vector  # rounds of uniform over rounds of weighted, for each loss; NaN where one did not get there
    values: Vector  # β/α for each loss; NaN where no estimate exists
    lowest_ratio: float  # an estimate exists strictly between these two
    highest_ratio: float

    @property
    def usable(self) -> npt.NDArray[np.bool_]:
        """Which losses gave an estimate."""
        return ~np.isnan(self.values)

    def __str__(self) -> str:
        """Say what was found, and why nothing was where that is so."""
        losses, inside = len(self.values), int(self.usable.sum())
        between = f"strictly between {self.lowest_ratio:.4g} and {self.highest_ratio:.4g}"
        if self.value is not None:
            return (
                f"β/α = {self.value:.4g}, the mean of {inside} of {losses} losses whose ratio of rounds lies {between}"
            )
        reached = self.ratios[np.isfinite(self.ratios)]
        if not reached.size:
            return (
                "β/α does not exist: no loss was reached by both pilots; use β/α = 0, the closed form, or easier losses"
            )
        seen = ", ".join(f"{ratio:.4g}" for ratio in reached)
        return f"β/α does not exist: no ratio of rounds lies {between}, got {seen}; use β/α = 0, the closed form"


def estimate_beta_over_alpha(
    fleet: Fleet, rounds_uniform: npt.ArrayLike, rounds_weighted: npt.ArrayLike, *, cohort_size: int
) -> BetaOverAlphaEstimate:
    """Solve R₁/R₂ = (N Σ p²G²/K + β/α)/(Σ p G²/K + β/α) for β/α, for each loss F_s, and average (eqs. 34-35).

    The right side runs from N Σ p²G²/Σ p G² at β/α = 0 to 1 at infinity, so a measured ratio outside that range fits no
    positive β/α. Such losses are passed over and reported, never turned into a negative or infinite number. A pilot
    that did not reach F_s has NaN or infinity as its rounds.
    """
    uniform, weighted = (np.atleast_1d(as_numbers("rounds", rounds)) for rounds in (rounds_uniform, rounds_weighted))
    if uniform.shape != weighted.shape or uniform.ndim != 1 or uniform.size == 0:
        raise InputError(
            name="rounds", rule="be given for the same losses", got=f"{uniform.size} and {weighted.size} of them"
        )
    if np.any(uniform <= 0) or np.any(weighted <= 0):
        raise InputError(
            name="rounds", rule="be positive", got="0 or less", remedy="choose losses F_s below the initial loss"
        )
    p, norms, size = fleet.data_share, fleet.gradient_bound, check_count("cohort_size", cohort_size)
    noise_uniform = len(fleet) * float(np.sum((p * norms) ** 2)) / size
    noise_weighted = float(np.sum(p * norms**2)) / size
    if not (noise_weighted > 0 and math.isfinite(noise_uniform)):
        raise InputError(
            name="gradient_bound", rule="have squares within double precision", got="bounds too small or too large"
        )
    limit = noise_uniform / noise_weighted
    reached = np.isfinite(uniform) & np.isfinite(weighted)
    ratios = np.full(uniform.shape, np.nan)
    ratios[reached] = uniform[reached] / weighted[reached]
    inside = reached & (ratios > min(1.0, limit)) & (ratios < max(1.0, limit))
    values = np.full(uniform.shape, np.nan)
    values[inside] = (noise_uniform - ratios[inside] * noise_weighted) / (ratios[inside] - 1)
    mean = float(values[inside].mean()) if inside.any() else None
    return BetaOverAlphaEstimate(mean, ratios, values, min(1.0, limit), max(1.0, limit))
