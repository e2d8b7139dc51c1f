"""The plan of a fleet: who to draw how often, how long that takes under each policy, and how sure that is."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedtempo.checks import InputError, Vector, check_count, check_fraction, check_nonnegative, check_positive
from fedtempo.fleet import Fleet
from fedtempo.theory.bandwidth import LinkMode
from fedtempo.theory.convergence import sampling_variance
from fedtempo.theory.optimum import least_times, optimal_cohort, optimal_sampling
from fedtempo.theory.round_time import (
    Duplicates,
    RoundTimeBounds,
    RoundTimeEstimate,
    distinct_clients,
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
LARGEST_COHORT = 1_000_000
MOST_DRAWS = 10_000_000  # of clients, over all cohorts drawn for one expected round time
LARGE_SHARE = 0.3  # of the draws, for one client
MANY_REPEATS = 0.2  # of the draws of a round


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanSettings:
    """What a plan is asked for."""

    cohort_size: int | None = None  # K; None: choose it too
    max_cohort: int | None = None
    beta_over_alpha: float = 0.0
    floor: float = 0.0
    link: LinkMode = "paper"
    duplicates: Duplicates = "paper"
    rounds_weighted: float | None = None  # calibration: rounds that weighted sampling is known to need ...
    weighted_cohort: int | None = None  # ... with so many draws a round; None: as many as the plan has
    draws: int | None = None  # cohorts drawn for each expected round time; None: what a few seconds allow
    seed: int = 0

    def __post_init__(self) -> None:
        """Check everything before a fleet is read or a figure computed."""
        for name in ("cohort_size", "max_cohort", "weighted_cohort"):
            size = getattr(self, name)
            if size is not None and check_count(name, size) > LARGEST_COHORT:
                raise InputError(name=name, rule=f"be at most {LARGEST_COHORT:,}", got=f"{size:.3g}")
        if self.cohort_size is not None and self.max_cohort is not None:
            raise InputError(name="max_cohort", rule="go with an optimised cohort size", got="a fixed one as well")
        check_nonnegative("beta_over_alpha", self.beta_over_alpha)
        if self.cohort_size is None and self.max_cohort is None and self.beta_over_alpha == 0:
            raise InputError(
                name="max_cohort", rule="be given for {beta_over_alpha} 0, since a larger cohort is then never slower"
            )
        check_fraction("floor", self.floor)
        if self.rounds_weighted is not None:
            check_positive("rounds_weighted", self.rounds_weighted)
        if self.draws is not None and not 2 <= check_count("draws", self.draws) <= MOST_DRAWS:
            raise InputError(name="draws", rule=f"lie between 2 and {MOST_DRAWS:,}", got=f"{self.draws:.3g}")
        check_nonnegative("seed", self.seed)

    def draws_of(self, cohort_size: int) -> int:
        """Return how many cohorts of a size to draw."""
        return self.draws or max(20, min(10_000, MOST_DRAWS // cohort_size))


@dataclass(frozen=True, kw_only=True, slots=True)
class Forecast:
    """What one policy costs."""

    policy: str
    round_time: RoundTimeEstimate  # E[T], by drawing cohorts
    bounds: RoundTimeBounds | None  # Theorem 2; None for the link `equal`, for which it does not hold
    surrogate: float  # Σ q c, as the optimisation counts a round
    distinct_clients: float  # different clients in a round, on average
    noise: float  # Σ a²/(K q), which with β/α gives the rounds up to a factor
    largest_weight: float  # max p/(K q), of one draw
    rounds: float | None  # predicted, where a calibration point is given


@dataclass(frozen=True, kw_only=True, slots=True)
class Sensitivity:
    """What it costs to have planned with the given β/α if the true one is another."""

    beta_over_alpha: float  # the true one
    excess_time: float  # P3 of the plan over the least for the true β/α, less 1
    moved: float  # the share of draws that the optimum for the true β/α would give to other clients
    best_cohort: int | None  # the K it would choose, where K was optimised


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class Plan:
    """Who to draw how often, and what to expect of it."""

    fleet: Fleet
    settings: PlanSettings
    cohort_size: int
    sampling_prob: Vector
    forecasts: list[Forecast]  # the plan itself first, as "optimal", or "with floor" if it has one
    least_objective: float  # of P3 at this K, without a floor
    sensitivities: list[Sensitivity]

    def relative_rounds(self, forecast: Forecast) -> float:
        """Return the rounds to a target, over those of the plan."""
        ratio = self.settings.beta_over_alpha
        return (forecast.noise + ratio) / (self.forecasts[0].noise + ratio)

    def relative_time(self, forecast: Forecast) -> float:
        """Return rounds × mean round time, over that of the plan."""
        return self.relative_rounds(forecast) * forecast.round_time.mean / self.forecasts[0].round_time.mean

    def relative_objective(self, forecast: Forecast) -> float:
        """P3, that is rounds × Σ q c, over its optimum at this K: never below 1."""
        return forecast.surrogate * (forecast.noise + self.settings.beta_over_alpha) / self.least_objective

    def hours(self, forecast: Forecast) -> float | None:
        """Predicted hours to the target, where a calibration point is given."""
        return None if forecast.rounds is None else forecast.rounds * forecast.round_time.mean / 3600

    def notes(self) -> Iterator[str]:
        """Yield what a person should think about before trusting the plan."""
        size, clients, plan = self.cohort_size, len(self.fleet), self.forecasts[0]
        most = int(self.sampling_prob.argmax())
        if clients > 1 and self.sampling_prob[most] > LARGE_SHARE:
            why = "it holds much data or large gradients, or is fast"
            if self.settings.beta_over_alpha > plan.noise:
                why = (
                    f"β/α = {self.settings.beta_over_alpha:g} is large beside the sampling noise of {plan.noise:.3g}, "
                    "so speed counts more than data"
                )
            yield (
                f"client {self.fleet.name(most)!r} gets {self.sampling_prob[most]:.0%} of the draws: {why}; see "
                "'One client takes most draws' in docs/planning.md"
            )
        if self.settings.duplicates == "paper" and plan.distinct_clients < (1 - MANY_REPEATS) * size:
            yield (
                f"of {size} draws only {plan.distinct_clients:.3g} are different clients on average; this plan counts "
                "every draw as an upload, --duplicates physical counts each client once"
            )

    def columns(self) -> dict[str, Vector]:
        """Return what the plan says of each client, beside the fleet's own columns."""
        return {
            "round_cost": round_cost(self.fleet, cohort_size=self.cohort_size),
            "sampling_prob": self.sampling_prob,
            "draws_per_round": self.cohort_size * self.sampling_prob,
            "aggregation_weight": self.fleet.data_share / (self.cohort_size * self.sampling_prob),  # p/(K q), Lemma 1
        }

    def as_json(self) -> dict[str, Any]:
        """Return the plan as plain lists and numbers; a number beyond double precision is null."""
        names, columns = [self.fleet.name(i) for i in range(len(self.fleet))], self.columns()
        return {
            "clients": len(self.fleet),
            "cohort_size": self.cohort_size,
            "beta_over_alpha": self.settings.beta_over_alpha,
            "floor": self.settings.floor,
            "link": self.settings.link,
            "duplicates": self.settings.duplicates,
            "notes": list(self.notes()),
            "policies": [self._forecast_json(forecast) for forecast in self.forecasts],
            "sensitivity": [
                {
                    "beta_over_alpha": _finite(case.beta_over_alpha),
                    "excess_time": _finite(case.excess_time),
                    "moved_draws": case.moved,
                    "best_cohort": case.best_cohort,
                }
                for case in self.sensitivities
            ],
            "per_client": {"name": names} | {name: values.tolist() for name, values in columns.items()},
        }

    def _forecast_json(self, forecast: Forecast) -> dict[str, Any]:
        bounds = forecast.bounds or (None, None)
        return {
            "policy": forecast.policy,
            "expected_round_time": _finite(forecast.round_time.mean),
            "standard_error": _finite(forecast.round_time.standard_error),
            "lower_bound": _finite(bounds[0]),
            "upper_bound": _finite(bounds[1]),
            "surrogate_round_time": _finite(forecast.surrogate),
            "distinct_clients": forecast.distinct_clients,
            "relative_rounds": _finite(self.relative_rounds(forecast)),
            "relative_total_time": _finite(self.relative_objective(forecast)),
            "relative_expected_time": _finite(self.relative_time(forecast)),
            "largest_weight": _finite(forecast.largest_weight),
            "predicted_rounds": _finite(forecast.rounds),
            "predicted_hours": _finite(self.hours(forecast)),
        }


def plan_fleet(fleet: Fleet, settings: PlanSettings) -> Plan:
    """Choose q, and K unless it is given, and forecast each policy at that K."""
    ratio, size = settings.beta_over_alpha, settings.cohort_size
    if size is None:
        size = _best_cohort(fleet, settings, ratio)
    q = optimal_sampling(fleet, cohort_size=size, beta_over_alpha=ratio, floor=settings.floor)
    policies = {"with floor" if settings.floor else "optimal": q}
    policies |= {policy: sampling(fleet) for policy, sampling in BASELINES.items()}
    return Plan(
        fleet=fleet,
        settings=settings,
        cohort_size=size,
        sampling_prob=q,
        forecasts=[_forecast(fleet, settings, size, policy, prob) for policy, prob in policies.items()],
        least_objective=float(least_times(fleet, [size], beta_over_alpha=ratio)[0]),
        sensitivities=[_sensitivity(fleet, settings, size, q, other) for other in _decades(fleet, ratio, size)],
    )


def time_against_cohort(plan: Plan) -> tuple[list[int], Vector, int | None]:
    """Return cohort sizes, the least P3 at each over that of the plan's own size, and the best size if there is one."""
    settings, best = plan.settings, plan.cohort_size if plan.settings.cohort_size is None else None
    if best is None and settings.beta_over_alpha > 0:
        best = _best_cohort(plan.fleet, settings, settings.beta_over_alpha)
    known = {plan.cohort_size, best or plan.cohort_size}
    grid = np.geomspace(1, settings.max_cohort or max(32, 4 * max(known)), 60).round().astype(int)
    sizes = sorted({*grid.tolist(), *known})
    times = least_times(plan.fleet, sizes, beta_over_alpha=settings.beta_over_alpha)
    return sizes, times / times[sizes.index(plan.cohort_size)], best


def _best_cohort(fleet: Fleet, settings: PlanSettings, ratio: float) -> int:
    return optimal_cohort(fleet, ratio, settings.max_cohort or LARGEST_COHORT).cohort_size


def _forecast(fleet: Fleet, settings: PlanSettings, size: int, policy: str, q: Vector) -> Forecast:
    noise, rounds = sampling_variance(fleet, q, cohort_size=size), None
    if settings.rounds_weighted is not None:
        known = sampling_variance(fleet, weighted_sampling(fleet), cohort_size=settings.weighted_cohort or size)
        rounds = settings.rounds_weighted * (noise + settings.beta_over_alpha) / (known + settings.beta_over_alpha)
    return Forecast(
        policy=policy,
        # The same random numbers for every policy: differences between rows are theirs, not the draws'.
        round_time=expected_round_time(
            fleet,
            q,
            cohort_size=size,
            rng=np.random.default_rng(settings.seed),
            draws=settings.draws_of(size),
            link=settings.link,
            duplicates=settings.duplicates,
        ),
        bounds=None
        if settings.link == "equal"
        else round_time_bounds(fleet, q, cohort_size=size, duplicates=settings.duplicates),
        surrogate=mean_round_time(fleet, q, cohort_size=size),
        distinct_clients=distinct_clients(q, cohort_size=size),
        noise=noise,
        largest_weight=float((fleet.data_share / (size * q)).max()),
        rounds=rounds,
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
    """Compare the plan with the optimum for another β/α: at the same K if it was given, at the best K otherwise."""
    best = size if settings.cohort_size is not None else _best_cohort(fleet, settings, true_ratio)
    other = optimal_sampling(fleet, cohort_size=best, beta_over_alpha=true_ratio)
    least = float(least_times(fleet, [best], beta_over_alpha=true_ratio)[0])
    rounds = sampling_variance(fleet, q, cohort_size=size) + true_ratio
    return Sensitivity(
        beta_over_alpha=true_ratio,
        excess_time=mean_round_time(fleet, q, cohort_size=size) * rounds / least - 1,
        moved=float(np.abs(q - other).sum()) / 2,
        best_cohort=None if settings.cohort_size is not None else best,
    )


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
