"""Theorem 2, the surrogate and the Monte-Carlo truth, against every cohort of a small fleet."""

import itertools

import numpy as np
import pytest

from fedtempo import (
    Fleet,
    InputError,
    cohort_round_time,
    distinct_clients,
    expected_round_time,
    mean_round_time,
    optimal_sampling,
    round_cost,
    round_time_bounds,
    uniform_sampling,
)
from support.fleets import random_fleet

Q = np.array([0.4, 0.05, 0.25, 0.3])


def every_cohort(fleet, q, size):
    members = np.array(list(itertools.product(range(len(fleet)), repeat=size)))
    return members, q[members].prod(axis=1)


def exact_round_time(fleet, q, size, link, duplicates):
    """Enumerate every cohort."""
    total = 0.0
    for members, chance in zip(*every_cohort(fleet, q, size), strict=True):
        counted = np.unique(members) if duplicates == "physical" else members
        cap = None if fleet.bandwidth_cap is None else fleet.bandwidth_cap[counted]
        tau, t = fleet.ready_time[counted], fleet.upload_time[counted]
        total += chance * cohort_round_time(tau, t, fleet.total_bandwidth, link=link, bandwidth_cap=cap)
    return total


@pytest.mark.parametrize("duplicates", ["paper", "physical"])
@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_closed_forms_equal_the_enumeration(small_fleet, size, duplicates):
    members, chance = every_cohort(small_fleet, Q, size)
    tau, t = small_fleet.compute_time[members], small_fleet.upload_time[members]
    if duplicates == "physical":
        t = np.array([small_fleet.upload_time[np.unique(m)].sum() for m in members])[:, None]
    upload = chance @ t.sum(axis=1) / 1.7
    lower, upper = round_time_bounds(small_fleet, Q, cohort_size=size, duplicates=duplicates)
    assert lower == pytest.approx(upload + chance @ tau.min(axis=1), rel=1e-13)
    assert upper == pytest.approx(upload + chance @ tau.max(axis=1), rel=1e-13)
    surrogate = mean_round_time(small_fleet, Q, cohort_size=size, duplicates=duplicates)
    assert surrogate == pytest.approx(upload + Q @ small_fleet.compute_time, rel=1e-13)
    assert lower * (1 - 1e-14) <= surrogate <= upper * (1 + 1e-14)


@pytest.mark.parametrize("capped", [False, True])
@pytest.mark.parametrize("duplicates", ["paper", "physical"])
@pytest.mark.parametrize("link", ["paper", "shared"])
def test_the_expectation_lies_within_the_bounds(small_fleet, link, duplicates, capped):
    cap = np.array([0.4, 2.0, 0.9, 5.0]) if capped else None
    fleet = Fleet(
        small_fleet.data_share, small_fleet.gradient_bound, small_fleet.compute_time, small_fleet.upload_time, 1.7,
        download_time=[0.1, 0.0, 0.3, 0.7], bandwidth_cap=cap,
    )  # fmt: skip
    for size in (1, 2, 3):
        exact = exact_round_time(fleet, Q, size, link, duplicates)
        lower, upper = round_time_bounds(fleet, Q, cohort_size=size, duplicates=duplicates)
        assert lower <= exact * (1 + 1e-12)
        assert exact <= upper * (1 + 1e-12)
        if size == 1:
            assert mean_round_time(fleet, Q, cohort_size=1) == pytest.approx(exact)


def test_the_surrogate_is_exact_for_equal_compute_times(small_fleet):
    fleet = Fleet(small_fleet.data_share, 1.0, 0.5, small_fleet.upload_time, 1.7)
    for size in (1, 2, 3):
        lower, upper = round_time_bounds(fleet, Q, cohort_size=size)
        exact = exact_round_time(fleet, Q, size, "paper", "paper")
        assert lower == pytest.approx(upper) == pytest.approx(exact)
        assert mean_round_time(fleet, Q, cohort_size=size) == pytest.approx(exact)


def test_one_draw_makes_all_bounds_meet(small_fleet):
    lower, upper = round_time_bounds(small_fleet, Q, cohort_size=1)
    assert lower == pytest.approx(upper, rel=1e-14)
    assert lower == pytest.approx(Q @ (small_fleet.upload_time / 1.7 + small_fleet.compute_time), rel=1e-14)


@pytest.mark.parametrize("duplicates", ["paper", "physical"])
@pytest.mark.parametrize("link", ["paper", "equal", "shared"])
def test_drawn_cohorts_agree_with_the_enumeration(small_fleet, link, duplicates):
    rng = np.random.default_rng(6)
    mean, error = expected_round_time(
        small_fleet, Q, cohort_size=3, rng=rng, draws=40_000, link=link, duplicates=duplicates
    )
    assert 0 < error < 0.01 * mean
    assert abs(mean - exact_round_time(small_fleet, Q, 3, link, duplicates)) < 4 * error


@pytest.mark.slow
def test_bounds_are_stable_for_huge_cohorts():
    rng = np.random.default_rng(7)
    fleet = random_fleet(rng, 40, decades=8)
    q = optimal_sampling(fleet, cohort_size=10, beta_over_alpha=1.0)
    order = np.argsort(fleet.compute_time)
    exact_q = [int(x * 2**64) for x in q[order]]  # whole numbers: powers and sums without any rounding
    total = sum(exact_q)
    for size in (1, 2, 100, 10_000):
        below, slowest, fastest = 0, 0.0, 0.0
        for i, weight in zip(order, exact_q, strict=True):
            above = total - below
            slowest += fleet.compute_time[i] * _ratio((below + weight) ** size - below**size, total**size)
            fastest += fleet.compute_time[i] * _ratio(above**size - (above - weight) ** size, total**size)
            below += weight
        upload = mean_round_time(fleet, q, cohort_size=size) - q @ fleet.compute_time
        lower, upper = round_time_bounds(fleet, q, cohort_size=size)
        assert upper == pytest.approx(upload + slowest, rel=1e-11)
        assert lower == pytest.approx(upload + fastest, rel=1e-11)


def _ratio(numerator: int, denominator: int) -> float:
    shift = max(0, denominator.bit_length() - 900)
    return (numerator >> shift) / (denominator >> shift)


def test_physical_duplicates_never_take_longer():
    rng = np.random.default_rng(8)
    for _ in range(20):
        fleet = random_fleet(rng, 12)
        q = uniform_sampling(fleet)
        once = mean_round_time(fleet, q, cohort_size=9, duplicates="physical")
        assert once <= mean_round_time(fleet, q, cohort_size=9)
        one, two = (
            expected_round_time(fleet, q, cohort_size=9, rng=np.random.default_rng(1), draws=500, duplicates=d).mean
            for d in ("physical", "paper")
        )
        assert one <= two * (1 + 1e-12)


def test_the_standard_error_is_that_of_the_mean(small_fleet):
    means, errors = zip(
        *(
            expected_round_time(small_fleet, Q, cohort_size=3, rng=np.random.default_rng(s), draws=400)
            for s in range(300)
        ),
        strict=True,
    )
    assert np.std(means) == pytest.approx(np.mean(errors), rel=0.15)


def test_the_cost_of_a_draw_counts_download_and_cap():
    fleet = Fleet([0.5, 0.5], 1.0, [1.0, 2.0], [3.0, 4.0], 2.0, download_time=[0.5, 0.0], bandwidth_cap=[1.0, 9.0])
    for size in (1, 3):
        np.testing.assert_allclose(
            round_cost(fleet, cohort_size=size), size * fleet.upload_time / 2.0 + fleet.private_time
        )


def test_distinct_clients_are_counted(small_fleet):
    members, chance = every_cohort(small_fleet, Q, 3)
    expected = chance @ np.array([len(np.unique(m)) for m in members])
    assert distinct_clients(Q, cohort_size=3) == pytest.approx(expected)


def test_a_sum_a_little_off_1_is_mended():
    fleet = Fleet([1.0], [1.0], [2.0], [3.0])
    assert mean_round_time(fleet, [1.0000005], cohort_size=5, duplicates="physical") == pytest.approx(5.0)


def test_one_client_drawn_often_uploads_once():
    fleet = Fleet([1.0], [1.0], [2.0], [3.0])
    assert mean_round_time(fleet, [1.0], cohort_size=5, duplicates="physical") == pytest.approx(5.0)
    assert mean_round_time(fleet, [1.0], cohort_size=5) == pytest.approx(17.0)


@pytest.mark.parametrize("settings", [{"link": "wired"}, {"duplicates": "twice"}, {"draws": 0}, {"cohort_size": 0}])
def test_bad_settings_are_refused(small_fleet, settings):
    settings = {"cohort_size": 2} | settings
    with pytest.raises(InputError, match=next(reversed(settings))):
        expected_round_time(small_fleet, Q, rng=np.random.default_rng(0), **settings)
