"""How many rounds training takes: Theorem 1, and the P3 objective that it leads to."""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedtempo.checks import InputError, Vector, as_numbers, check_count, check_nonnegative, check_positive
from fedtempo.fleet import Fleet
from fedtempo.theory.round_time import mean_round_time
from fedtempo.theory.sampling import check_sampling_prob


@dataclass(frozen=True, kw_only=True, slots=True)
class LearningProblem:
    """What Theorem 1 must know of strongly convex local losses F_i; gradient bounds and data shares are the fleet's."""

    strong_convexity: float  # μ
    smoothness: float  # L
    local_steps: int  # E
    gradient_noise: Vector | float  # σ_i: root of the largest variance of client i's stochastic gradients
    heterogeneity: float  # Γ = F* - Σ p_i F_i*
    initial_distance: float  # ‖w₀ - w*‖

    def __post_init__(self) -> None:
        """Check the constants; L is never below μ."""
        check_positive("strong_convexity", self.strong_convexity)
        check_positive("smoothness", self.smoothness)
        check_count("local_steps", self.local_steps)
        check_nonnegative("heterogeneity", self.heterogeneity)
        check_nonnegative("initial_distance", self.initial_distance)
        if self.smoothness < self.strong_convexity:
            raise InputError(
                name="smoothness",
                rule=f"be at least strong_convexity {self.strong_convexity}",
                got=f"{self.smoothness}",
            )
        noise = as_numbers("gradient_noise", self.gradient_noise)
        if noise.ndim > 1 or not np.all((noise >= 0) & np.isfinite(noise)):
            raise InputError(
                name="gradient_noise", rule="be zero or positive, and finite, for each client", got="something else"
            )

    @property
    def step_offset(self) -> float:
        """γ = max(8 L/μ, E)."""
        return max(8 * self.smoothness / self.strong_convexity, float(self.local_steps))

    def step_size(self, step: int) -> float:
        """η = 2/(μ (γ + step)), ``step`` counting local steps over all rounds: the schedule the theorem holds for."""
        return 2 / (self.strong_convexity * (self.step_offset + step))

    @property
    def alpha(self) -> float:
        """α = 8 L E/μ²."""
        return 8 * self.smoothness * self.local_steps / self.strong_convexity**2

    def beta(self, fleet: Fleet) -> float:
        """β = 2L/(μ²E) (B + 6 L Γ) + L γ/(2E) ‖w₀ - w*‖², with B = Σ p²σ² + 8 E² Σ p G².

        The last term is the paper's 4L²/(μE) ‖w₀ - w*‖² wherever γ = 8 L/μ; for E > 8 L/μ only this form holds.
        """
        mu, smooth, steps, p = self.strong_convexity, self.smoothness, self.local_steps, fleet.data_share
        if np.ndim(self.gradient_noise) and np.size(self.gradient_noise) != len(fleet):
            raise InputError(name="gradient_noise", rule=f"be one number, or one for each of the {len(fleet)} clients")
        noise = np.sum((p * self.gradient_noise) ** 2) + 8 * steps**2 * np.sum(p * fleet.gradient_bound**2)
        start = smooth * self.step_offset / (2 * steps) * self.initial_distance**2
        return float(2 * smooth / (mu**2 * steps) * (noise + 6 * smooth * self.heterogeneity) + start)


def sampling_variance(fleet: Fleet, sampling_prob: npt.ArrayLike, *, cohort_size: int) -> float:
    """Σ a_i²/(K q_i) with a_i = p_i G_i: the share of the bound that the sampling causes."""
    q = check_sampling_prob(sampling_prob, len(fleet))
    terms = fleet.importance
    terms *= terms
    terms /= q
    return float(terms.sum()) / check_count("cohort_size", cohort_size)


def convergence_bound(
    fleet: Fleet, sampling_prob: npt.ArrayLike, *, cohort_size: int, num_rounds: int, problem: LearningProblem
) -> float:
    """Theorem 1: E F(w_R) - F* ≤ (α Σ p²G²/(K q) + β)/R."""
    return _bound_of_one_round(fleet, sampling_prob, cohort_size, problem) / check_count("num_rounds", num_rounds)


def rounds_to_gap(
    fleet: Fleet, sampling_prob: npt.ArrayLike, *, cohort_size: int, gap: float, problem: LearningProblem
) -> int:
    """Return the fewest rounds R after which Theorem 1 promises E F(w_R) - F* ≤ gap."""
    rounds = _bound_of_one_round(fleet, sampling_prob, cohort_size, problem) / check_positive("gap", gap)
    if not math.isfinite(rounds):
        raise InputError(name="gap", rule="be within reach of double precision", got=f"{gap}")
    return max(1, math.ceil(rounds))


def total_time_objective(
    fleet: Fleet, sampling_prob: npt.ArrayLike, *, cohort_size: int, beta_over_alpha: float
) -> float:
    """(Σ q c)(Σ a²/(K q) + β/α): P3, the time to a given gap up to the factor α/gap."""
    ratio = check_nonnegative("beta_over_alpha", beta_over_alpha)
    rounds = sampling_variance(fleet, sampling_prob, cohort_size=cohort_size) + ratio
    return mean_round_time(fleet, sampling_prob, cohort_size=cohort_size) * rounds


def _bound_of_one_round(
    fleet: Fleet, sampling_prob: npt.ArrayLike, cohort_size: int, problem: LearningProblem
) -> float:
    variance = sampling_variance(fleet, sampling_prob, cohort_size=cohort_size)
    return problem.alpha * variance + problem.beta(fleet)
