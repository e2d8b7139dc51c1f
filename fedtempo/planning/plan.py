"""The plan of a fleet: who to draw how often, how long that takes under each policy, and how sure that is."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedtempo.checks import InputError, Vector, check_nonnegative, check_positive
from fedtempo.fleet import Fleet
from fedtempo.theory.bandwidth import LinkMode
from fedtempo.theory.convergence import sampling_variance, total_time_objective
from fedtempo.theory.optimum import least_times, optimal_cohort, optimal_sampling
from fedtempo.theory.round_time import (
    Duplicates,
    RoundTimeBounds,
    RoundTimeEstimate,
    expected_round_time,
    mean_round_time,
    round_cost,
    round_time_bounds,
)
from fedtempo.theory.sampling import statistical_sampling, uniform_sampling, weighted_sampling

BASELINES: dict[str, Callable[[Fleet], Vector]] = {
    "uniform": uniform_sampling,
    "weighted": weighted_sampling,
    "statistical": statistical_sampling,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanSettings:
    """What a plan is asked for."""

    cohort_size: int | None = None  # K; None: choose it too
    max_cohort: int | None = None
    beta_over_alpha: float = 0.0
    floor: float = 0.0
    link: LinkMode = "paper"
    duplicates: Duplicates = "physical"
    rounds_weighted: float | None = None  # calibration: rounds that weighted sampling is known to need
    draws: int = 10_000  # cohorts drawn for each expected round time
    seed: int = 0

    def __post_init__(self) -> None:
        """Check what no function below would check in the user's words."""
        if self.cohort_size is not None and self.max_cohort is not None:
            raise InputError("max_cohort must go with an optimised cohort size, got a fixed one as well")
        if self.rounds_weighted is not None:
            check_positive("rounds_weighted", self.rounds_weighted)
        check_nonnegative("seed", self.seed)


@dataclass(frozen=True, kw_only=True, slots=True)
class Forecast:
    """What one policy costs."""

    policy: str
    round_time: RoundTimeEstimate  # E[T], by drawing cohorts
    bounds: RoundTimeBounds  # Theorem 2
    surrogate: float  # Σ q c
    relative_rounds: float  # rounds over those of the plan
    relative_time: float  # the P3 objective over that of the plan
    largest_weight: float  # max p/(K q), of one draw
    rounds: float | None  # predicted, where a calibration point is given
    hours: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Sensitivity:
    """What it costs to have planned with the given β/α if the true one is another."""

    beta_over_alpha: float  # the true one
    excess_time: float  # total time of the plan over the least for the true β/α, less 1
    moved: float  # the share of draws that the plan for the true β/α would give to other clients
    best_cohort: int | None  # the K it would choose, where K was optimised


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class Plan:
    """Who to draw how often, and what to expect of it."""

    fleet: Fleet
    settings: PlanSettings
    cohort_size: int
    sampling_prob: Vector
    forecasts: list[Forecast]  # the plan itself first, under the name "optimal"
    sensitivities: list[Sensitivity]

    @property
    def aggregation_weight(self) -> Vector:
        """p/(K q): the weight of one draw of each client (Lemma 1)."""
        return self.fleet.data_share / (self.cohort_size * self.sampling_prob)

    def columns(self) -> dict[str, Vector]:
        """Return what the plan says of each client, beside the fleet's own columns."""
        return {
            "round_cost": round_cost(self.fleet, cohort_size=self.cohort_size),
            "sampling_prob": self.sampling_prob,
            "draws_per_round": self.cohort_size * self.sampling_prob,
            "aggregation_weight": self.aggregation_weight,
        }

    def as_json(self) -> dict[str, Any]:
        """Return the plan as plain lists and numbers."""
        columns = {name: values.tolist() for name, values in self.columns().items()}
        return {
            "clients": len(self.fleet),
            "cohort_size": self.cohort_size,
            "beta_over_alpha": self.settings.beta_over_alpha,
            "floor": self.settings.floor,
            "link": self.settings.link,
            "duplicates": self.settings.duplicates,
            "policies": [_forecast_json(forecast) for forecast in self.forecasts],
            "sensitivity": [
                {
                    "beta_over_alpha": case.beta_over_alpha,
                    "excess_time": case.excess_time,
                    "moved_draws": case.moved,
                    "best_cohort": case.best_cohort,
                }
                for case in self.sensitivities
            ],
            "per_client": {"name": [self.fleet.name(i) for i in range(len(self.fleet))], **columns},
        }


def plan_fleet(fleet: Fleet, settings: PlanSettings) -> Plan:
    """Choose q, and K unless it is given, and forecast each policy at that K."""
    ratio = check_nonnegative("beta_over_alpha", settings.beta_over_alpha)
    size = settings.cohort_size
    if size is None:
        size = optimal_cohort(fleet, ratio, settings.max_cohort).cohort_size
    q = optimal_sampling(fleet, cohort_size=size, beta_over_alpha=ratio, floor=settings.floor)
    policies = {"optimal": q} | {policy: sampling(fleet) for policy, sampling in BASELINES.items()}
    return Plan(
        fleet=fleet,
        settings=settings,
        cohort_size=size,
        sampling_prob=q,
        forecasts=[_forecast(fleet, settings, size, policy, policies) for policy in policies],
        sensitivities=[_sensitivity(fleet, settings, size, q, other) for other in _decades(fleet, ratio, size)],
    )


def time_against_cohort(plan: Plan) -> tuple[list[int], Vector, int | None]:
    """Return cohort sizes, the least total time at each over that of the plan's own size, and the best size if any."""
    settings, best = plan.settings, None
    if settings.beta_over_alpha > 0 or settings.max_cohort is not None:
        best = optimal_cohort(plan.fleet, settings.beta_over_alpha, settings.max_cohort).cohort_size
    known = {plan.cohort_size, best or plan.cohort_size}
    grid = np.geomspace(1, settings.max_cohort or max(32, 4 * max(known)), 60).round().astype(int)
    sizes = sorted({*grid.tolist(), *known})
    times = least_times(plan.fleet, sizes, beta_over_alpha=settings.beta_over_alpha)
    return sizes, times / times[sizes.index(plan.cohort_size)], best


def _forecast(fleet: Fleet, settings: PlanSettings, size: int, policy: str, policies: dict[str, Vector]) -> Forecast:
    ratio, q = settings.beta_over_alpha, policies[policy]

    def needed(name: str) -> float:
        return sampling_variance(fleet, policies[name], cohort_size=size) + ratio

    def objective(name: str) -> float:
        return total_time_objective(fleet, policies[name], cohort_size=size, beta_over_alpha=ratio)

    # The same random numbers for every policy: differences between rows are theirs, not the draws'.
    rng = np.random.default_rng(settings.seed)
    round_time = expected_round_time(
        fleet, q, cohort_size=size, rng=rng, draws=settings.draws, link=settings.link, duplicates=settings.duplicates
    )
    rounds = (
        None if settings.rounds_weighted is None else settings.rounds_weighted * needed(policy) / needed("weighted")
    )
    return Forecast(
        policy=policy,
        round_time=round_time,
        bounds=round_time_bounds(fleet, q, cohort_size=size, duplicates=settings.duplicates),
        surrogate=mean_round_time(fleet, q, cohort_size=size, duplicates=settings.duplicates),
        relative_rounds=needed(policy) / needed("optimal"),
        relative_time=objective(policy) / objective("optimal"),
        largest_weight=float((fleet.data_share / (size * q)).max()),
        rounds=rounds,
        hours=None if rounds is None else rounds * round_time.mean / 3600,
    )


def _decades(fleet: Fleet, ratio: float, size: int) -> list[float]:
    """Return β/α a decade down and up; from 0, where there is no decade, the two that would matter first.

    Those are a tenth of, and all of, the least sampling variance (Σ a)²/K, with which β/α competes in P3.
    """
    if ratio == 0:
        unit = float(fleet.importance.sum()) ** 2 / size
        return [0.1 * unit, unit]
    return [ratio / 10, ratio * 10]


def _sensitivity(fleet: Fleet, settings: PlanSettings, size: int, q: Vector, true_ratio: float) -> Sensitivity:
    """Compare the plan with the one for another β/α: the same K if it was given, the best K if it was optimised."""
    other_size = size
    if settings.cohort_size is None:
        other_size = optimal_cohort(fleet, true_ratio, settings.max_cohort).cohort_size
    other = optimal_sampling(fleet, cohort_size=other_size, beta_over_alpha=true_ratio, floor=settings.floor)
    least = total_time_objective(fleet, other, cohort_size=other_size, beta_over_alpha=true_ratio)
    ours = total_time_objective(fleet, q, cohort_size=size, beta_over_alpha=true_ratio)
    return Sensitivity(
        beta_over_alpha=true_ratio,
        excess_time=ours / least - 1,
        moved=float(np.abs(q - other).sum()) / 2,
        best_cohort=None if settings.cohort_size is not None else other_size,
    )


def _forecast_json(forecast: Forecast) -> dict[str, Any]:
    return {
        "policy": forecast.policy,
        "expected_round_time": forecast.round_time.mean,
        "standard_error": forecast.round_time.standard_error,
        "lower_bound": forecast.bounds.lower,
        "upper_bound": forecast.bounds.upper,
        "surrogate_round_time": forecast.surrogate,
        "relative_rounds": forecast.relative_rounds,
        "relative_total_time": forecast.relative_time,
        "largest_weight": forecast.largest_weight,
        "predicted_rounds": forecast.rounds,
        "predicted_hours": forecast.hours,
    }
