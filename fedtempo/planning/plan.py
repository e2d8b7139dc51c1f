"""Planning a fleet: who to draw how often, how long that takes under each policy, and how sure that is."""

from collections.abc import Callable

import numpy as np

from fedtempo.checks import Vector
from fedtempo.fleet import Fleet
from fedtempo.planning.settings import PlanSettings
from fedtempo.planning.upload_sizes import UploadChoice, every_size, sizes_on_offer
from fedtempo.planning.values import Forecast, Plan, Sensitivity, size_for_all
from fedtempo.theory.bits import WHOLE
from fedtempo.theory.convergence import sampling_variance
from fedtempo.theory.optimum import with_floor
from fedtempo.theory.round_time import distinct_clients, expected_round_time, mean_round_time, round_time_bounds
from fedtempo.theory.sampling import statistical_sampling, uniform_sampling, weighted_sampling

BASELINES: dict[str, Callable[[Fleet], Vector]] = {
    "uniform": uniform_sampling,
    "weighted": weighted_sampling,
    "statistical": statistical_sampling,
}


def plan_fleet(fleet: Fleet, settings: PlanSettings) -> Plan:
    """Choose q, and K unless it is given, and forecast each policy at that K."""
    ratio, size, known = settings.beta_over_alpha, settings.cohort_size, every_size(settings)
    sizes, plain = sizes_on_offer(settings, known), settings.bits == WHOLE
    if size is None:
        size = sizes.best_cohort(fleet, ratio, settings.max_cohort)
    q, bits = sizes.best(fleet, size, ratio)
    q = with_floor(fleet, q, settings.floor)
    sent = fleet if sizes.whole else sizes.sent(fleet, bits)
    forecasts = [_forecast(fleet, settings, size, "with floor" if settings.floor else "optimal", q, sent)]
    single = sizes.best_for_all(fleet, size, ratio) if len(sizes.bits) > 1 else None
    if not plain:
        compared = dict.fromkeys([*([] if single is None else [single]), WHOLE])
        forecasts += _with_sizes(fleet, settings, size, [known.only(bits) for bits in compared])
    forecasts += [
        _forecast(fleet, settings, size, policy, sampling(fleet), fleet) for policy, sampling in BASELINES.items()
    ]
    return Plan(
        fleet=fleet,
        settings=settings,
        cohort_size=size,
        sampling_prob=q,
        forecasts=forecasts,
        least_objective=float(sizes.least_times(fleet, [size], ratio)[0]),
        sensitivities=[
            _sensitivity((fleet, sent), settings, size, q, other, sizes) for other in _decades(fleet, ratio, size)
        ],
        sent=sent,
        upload_bits=None if plain else bits,
        best_single=single,
        noise={} if plain else dict(zip(known.bits.tolist(), known.noise.tolist(), strict=True)),
    )


def _with_sizes(fleet: Fleet, settings: PlanSettings, size: int, choices: list[UploadChoice]) -> list[Forecast]:
    """Return what the best q costs with each of some sizes for all."""
    forecasts = []
    for choice in choices:
        q, bits = choice.best(fleet, size, settings.beta_over_alpha)
        name = size_for_all(int(choice.bits[0]))
        forecasts.append(_forecast(fleet, settings, size, name, q, choice.sent(fleet, bits)))
    return forecasts


def time_against_cohort(plan: Plan) -> tuple[list[int], Vector, int | None]:
    """Return cohort sizes, the least P3 at each over that of the plan's own size, and the best size if there is one."""
    sizes = sizes_on_offer(plan.settings, every_size(plan.settings))
    settings, best = plan.settings, plan.cohort_size if plan.settings.cohort_size is None else None
    if best is None and settings.beta_over_alpha > 0:
        best = sizes.best_cohort(plan.fleet, settings.beta_over_alpha, settings.max_cohort)
    known = {plan.cohort_size, best or plan.cohort_size}
    grid = np.geomspace(1, settings.max_cohort or max(32, 4 * max(known)), 60).round().astype(int)
    cohorts = sorted({*grid.tolist(), *known})
    times = sizes.least_times(plan.fleet, cohorts, settings.beta_over_alpha)
    return cohorts, times / times[cohorts.index(plan.cohort_size)], best


def _forecast(fleet: Fleet, settings: PlanSettings, size: int, policy: str, q: Vector, sent: Fleet) -> Forecast:
    """Forecast a policy; ``sent``: the fleet with the uploads that it makes."""
    noise, rounds = sampling_variance(sent, q, cohort_size=size), None
    if settings.rounds_weighted is not None:
        known = sampling_variance(fleet, weighted_sampling(fleet), cohort_size=settings.weighted_cohort or size)
        rounds = settings.rounds_weighted * (noise + settings.beta_over_alpha) / (known + settings.beta_over_alpha)
    return Forecast(
        policy=policy,
        # The same random numbers for every policy: differences between rows are theirs, not the draws'.
        round_time=expected_round_time(
            sent,
            q,
            cohort_size=size,
            rng=np.random.default_rng(settings.seed),
            draws=settings.draws_of(size),
            link=settings.link,
            duplicates=settings.duplicates,
        ),
        bounds=None
        if settings.link == "equal"
        else round_time_bounds(sent, q, cohort_size=size, duplicates=settings.duplicates),
        surrogate=mean_round_time(sent, q, cohort_size=size),
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


def _sensitivity(
    fleets: tuple[Fleet, Fleet], settings: PlanSettings, size: int, q: Vector, true_ratio: float, sizes: UploadChoice
) -> Sensitivity:
    """Compare the plan with the optimum for another β/α: at the same K if it was given, at the best K otherwise.

    ``fleets``: as it is, and with the uploads of the plan.
    """
    fleet, sent = fleets
    best = size if settings.cohort_size is not None else sizes.best_cohort(fleet, true_ratio, settings.max_cohort)
    other = sizes.best(fleet, best, true_ratio).sampling_prob
    least = float(sizes.least_times(fleet, [best], true_ratio)[0])
    rounds = sampling_variance(sent, q, cohort_size=size) + true_ratio
    return Sensitivity(
        beta_over_alpha=true_ratio,
        excess_time=mean_round_time(sent, q, cohort_size=size) * rounds / least - 1,
        moved=float(np.abs(q - other).sum()) / 2,
        best_cohort=None if settings.cohort_size is not None else best,
    )
