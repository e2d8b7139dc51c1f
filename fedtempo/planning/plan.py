"""Planning a fleet: who to draw how often, how long that takes under each policy, and how sure that is."""

from collections.abc import Callable

import numpy as np

from fedtempo.checks import Vector
from fedtempo.fleet import Fleet
from fedtempo.planning.settings import LARGEST_COHORT, PlanSettings
from fedtempo.planning.values import Forecast, Plan, Sensitivity
from fedtempo.theory.convergence import sampling_variance
from fedtempo.theory.optimum import least_times, optimal_cohort, optimal_sampling
from fedtempo.theory.round_time import distinct_clients, expected_round_time, mean_round_time, round_time_bounds
from fedtempo.theory.sampling import statistical_sampling, uniform_sampling, weighted_sampling

BASELINES: dict[str, Callable[[Fleet], Vector]] = {
    "uniform": uniform_sampling,
    "weighted": weighted_sampling,
    "statistical": statistical_sampling,
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
