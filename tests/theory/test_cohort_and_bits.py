"""The cohort size together with bits: against a scan over every size."""

import numpy as np
import pytest

from fedtempo import Fleet, InputError, optimal_cohort, total_time_objective
from fedtempo.theory.bits import optimal_sampling_and_bits
from fedtempo.theory.cohort_and_bits import least_times_with_bits, optimal_cohort_and_bits
from support.fleets import random_fleet

SIZES = {"bits": (2, 4, 8, 32), "quantisation_noise": (8.0, 0.2, 1e-3, 0.0), "upload_shares": (0.07, 0.13, 0.26, 1.0)}


@pytest.mark.parametrize("seed", range(8))
def test_no_cohort_size_takes_less_time(seed):
    rng = np.random.default_rng([40, seed])
    fleet = random_fleet(rng, 12, decades=2)
    ratio = float(10 ** rng.uniform(-1, 1)) * float(fleet.importance.sum()) ** 2
    size = optimal_cohort_and_bits(fleet, ratio, 200, **SIZES)
    times = least_times_with_bits(fleet, list(range(1, 201)), beta_over_alpha=ratio, **SIZES)
    assert times[size - 1] <= times.min() * (1 + 1e-4)


def test_times_are_those_of_the_optimum_at_each_size():
    fleet = random_fleet(np.random.default_rng(1), 9, decades=2)
    capped = Fleet(
        fleet.data_share, fleet.gradient_bound, fleet.compute_time, fleet.upload_time, bandwidth_cap=np.full(9, 0.5)
    )
    for size in (1, 3, 10):
        q, bits = optimal_sampling_and_bits(capped, cohort_size=size, beta_over_alpha=0.2, **SIZES)
        places = np.searchsorted(SIZES["bits"], bits)
        sent = Fleet(
            capped.data_share,
            capped.gradient_bound * np.sqrt(1 + np.array(SIZES["quantisation_noise"])[places]),
            capped.compute_time,
            capped.upload_time * np.array(SIZES["upload_shares"])[places],
            bandwidth_cap=capped.bandwidth_cap,
        )
        time = total_time_objective(sent, q, cohort_size=size, beta_over_alpha=0.2)
        least = least_times_with_bits(capped, [size], beta_over_alpha=0.2, **SIZES)
        assert least[0] == pytest.approx(time, rel=1e-9)


def test_one_size_of_uploads_has_the_cohort_of_the_optimum_without_bits():
    fleet = random_fleet(np.random.default_rng(2), 30, decades=3)
    ratio = float(fleet.importance.sum()) ** 2
    found = optimal_cohort_and_bits(fleet, ratio, 300, bits=(32,), quantisation_noise=[0.0])
    assert found == pytest.approx(optimal_cohort(fleet, ratio, 300).cohort_size, abs=1)


def test_without_beta_the_largest_cohort_is_best():
    fleet = random_fleet(np.random.default_rng(3), 5, decades=1)
    assert optimal_cohort_and_bits(fleet, 0.0, 37, **SIZES) == 37
    with pytest.raises(InputError, match="max_cohort must be given"):
        optimal_cohort_and_bits(fleet, 0.0, **SIZES)


@pytest.mark.parametrize("shares", [(0.1, 0.2), (0.0, 0.1, 0.2, 1.0), (np.nan, 0.1, 0.2, 1.0)])
def test_shares_are_positive_and_one_for_each_size(shares):
    fleet = random_fleet(np.random.default_rng(3), 5, decades=1)
    with pytest.raises(InputError, match="upload_shares must be 4 positive numbers"):
        optimal_cohort_and_bits(fleet, 1.0, **(SIZES | {"upload_shares": shares}))
