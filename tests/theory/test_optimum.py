"""The exact optimum of P3: stationarity, limits, Theorem 3, and that nothing else is better."""

import itertools
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import minimize

from fedtempo import (
    Fleet,
    InputError,
    line_search_sampling,
    optimal_cohort,
    optimal_sampling,
    round_cost,
    statistical_sampling,
    total_time_objective,
    uniform_sampling,
    weighted_sampling,
)
from support.fleets import random_fleet
from support.marks import slow_after


def stationarity_residual(fleet, q, size, ratio):
    """Return the largest |c_i B - A a_i²/q_i² - μ| over c_i B, with A = Σqc, B = Σa²/q + C and μ = A C."""
    c, a, constant = round_cost(fleet, cohort_size=size), fleet.importance, size * ratio
    mean_cost, rounds = q @ c, np.sum(a * a / q) + constant
    return np.max(np.abs(c * rounds - mean_cost * a * a / q**2 - mean_cost * constant) / (c * rounds))


@pytest.mark.parametrize("part", range(10))
def test_ten_thousand_random_fleets_over_eight_decades(part):
    rng = np.random.default_rng([10, part])
    for _ in range(1000):
        fleet = random_fleet(rng, int(rng.integers(1, 201)), decades=8)
        size = int(rng.integers(1, 50))
        ratio = 0.0 if rng.random() < 0.1 else float(10 ** rng.uniform(-6, 6))
        q = optimal_sampling(fleet, cohort_size=size, beta_over_alpha=ratio)
        assert abs(q.sum() - 1) < 1e-12
        assert q.min() > 0
        assert stationarity_residual(fleet, q, size, ratio) < 1e-9


def slsqp(fleet, size, ratio):
    """Minimise the logarithm of P3 over z with SciPy, where q = exp(z)/Σ exp(z); None where that does not converge."""
    c, a = round_cost(fleet, cohort_size=size), fleet.importance
    a = a / a.sum()
    constant = size * ratio / fleet.importance.sum() ** 2

    def value(z):
        y = np.exp(z)
        total, mean_cost, noise = y.sum(), y @ c, np.sum(a * a / y)
        rounds = total * noise + constant
        slope = y * c / mean_cost - y / total + (y * noise - total * a * a / y) / rounds
        return np.log(mean_cost / total) + np.log(rounds), slope

    start = np.log(a)
    rule = {"type": "eq", "fun": lambda z: np.sum(z - start), "jac": np.ones_like}  # the scale of y is free
    with np.errstate(all="ignore"):  # it may wander off; then it does not converge
        found = minimize(
            value, start, jac=True, constraints=[rule], method="SLSQP", options={"maxiter": 300, "ftol": 1e-10}
        )
    return np.exp(found.x) / np.exp(found.x).sum() if found.success else None


@pytest.mark.parametrize("part", slow_after(2, range(20)))
def test_never_worse_than_the_line_search_or_slsqp(part):
    rng = np.random.default_rng([20, part])
    found, closest = {"line search": 0, "slsqp": 0}, np.inf
    for index in range(10):
        # Most fleets are small enough for the suite to stay quick; a tenth goes up to N = 200.
        fleet = random_fleet(rng, int(rng.integers(1, 201 if index == 0 else 31)), decades=4)
        size, ratio = int(rng.integers(1, 20)), float(10 ** rng.uniform(-4, 4))

        def objective(q, fleet=fleet, size=size, ratio=ratio):
            return total_time_objective(fleet, q, cohort_size=size, beta_over_alpha=ratio)

        ours = objective(optimal_sampling(fleet, cohort_size=size, beta_over_alpha=ratio))
        rivals = {"slsqp": slsqp(fleet, size, ratio)}
        try:
            rivals["line search"] = line_search_sampling(fleet, cohort_size=size, beta_over_alpha=ratio)
        except ArithmeticError:
            rivals["line search"] = None
        for name, q in rivals.items():
            if q is not None:
                found[name] += 1
                closest = min(closest, objective(q) / ours)
                assert ours <= objective(q) * (1 + 1e-6), name
    assert found["line search"] >= 8, found
    assert found["slsqp"] >= 5, found
    assert closest < 1 + 1e-4, "no rival came close: they are no test"


positive = st.floats(1e-6, 1e6)


@st.composite
def fleets(draw, largest=12):
    size = draw(st.integers(1, largest))
    share, bound, compute, upload = (
        draw(arrays(float, size, elements=values))
        for values in (positive, positive, st.one_of(st.just(0.0), positive), positive)
    )
    return Fleet(share / share.sum(), bound, compute, upload)


@given(fleets(), st.integers(1, 1000), st.one_of(st.just(0.0), st.floats(1e-12, 1e12)))
def test_faster_and_more_important_clients_are_not_drawn_less(fleet, size, ratio):
    """Theorem 3."""
    q = optimal_sampling(fleet, cohort_size=size, beta_over_alpha=ratio)
    assert abs(q.sum() - 1) < 1e-12
    assert q.min() > 0
    c, a = round_cost(fleet, cohort_size=size), fleet.importance
    for i, j in itertools.permutations(range(len(fleet)), 2):
        if c[i] <= c[j] and a[i] >= a[j]:
            assert q[i] >= q[j] * (1 - 1e-9)


@given(fleets(), st.integers(1, 100), st.floats(1e-6, 1e6))
def test_no_baseline_is_better(fleet, size, ratio):
    best = optimal_sampling(fleet, cohort_size=size, beta_over_alpha=ratio)
    least = total_time_objective(fleet, best, cohort_size=size, beta_over_alpha=ratio)
    for other in (uniform_sampling, weighted_sampling, statistical_sampling):
        time = total_time_objective(fleet, other(fleet), cohort_size=size, beta_over_alpha=ratio)
        assert least <= time * (1 + 1e-12)


def test_without_beta_it_is_the_closed_form():
    fleet = random_fleet(np.random.default_rng(30), 50)
    expected = fleet.importance / np.sqrt(round_cost(fleet, cohort_size=7))
    q = optimal_sampling(fleet, cohort_size=7, beta_over_alpha=0)
    np.testing.assert_allclose(q, expected / expected.sum(), rtol=1e-13)
    nearly = optimal_sampling(fleet, cohort_size=7, beta_over_alpha=1e-12)
    np.testing.assert_allclose(nearly, q, rtol=1e-6)


@pytest.mark.parametrize("ratio", [0.0, 0.3, 1e6])
def test_equal_costs_give_statistical_sampling(ratio):
    rng = np.random.default_rng(31)
    share = rng.uniform(1, 2, 20)
    fleet = Fleet(share / share.sum(), rng.uniform(1, 2, 20), 0.7, 0.4)
    q = optimal_sampling(fleet, cohort_size=5, beta_over_alpha=ratio)
    np.testing.assert_allclose(q, statistical_sampling(fleet), rtol=1e-12)


def test_two_clients_agree_with_a_fine_grid():
    fleet = Fleet([0.3, 0.7], [2.0, 1.0], [0.0, 3.0], [1.0, 2.0])
    grid = np.linspace(1e-4, 1 - 1e-4, 100_001)
    c, a = round_cost(fleet, cohort_size=1), fleet.importance
    time = (grid * c[0] + (1 - grid) * c[1]) * (a[0] ** 2 / grid + a[1] ** 2 / (1 - grid) + 0.5)
    q = optimal_sampling(fleet, cohort_size=1, beta_over_alpha=0.5)
    assert q[0] == pytest.approx(grid[time.argmin()], abs=2e-5)


def test_large_beta_draws_the_fastest_alone():
    fleet = Fleet([0.01, 0.99], [1e-3, 1.0], [0.1, 0.2], [0.1, 0.1])
    q = optimal_sampling(fleet, cohort_size=3, beta_over_alpha=1e12)
    assert q[0] > 0.999
    assert q[1] > 0


def test_units_do_not_matter():
    rng = np.random.default_rng(32)
    fleet = random_fleet(rng, 30)
    q = optimal_sampling(fleet, cohort_size=4, beta_over_alpha=2.0)
    for scale in (1e-12, 1e12):
        other = Fleet(
            fleet.data_share, fleet.gradient_bound * scale, fleet.compute_time * scale, fleet.upload_time * scale,
            fleet.total_bandwidth,
        )  # fmt: skip
        np.testing.assert_allclose(
            optimal_sampling(other, cohort_size=4, beta_over_alpha=2.0 * scale**2), q, rtol=1e-10
        )


def test_the_fleet_is_left_as_it_was():
    fleet = random_fleet(np.random.default_rng(33), 10)
    before = [array.copy() for array in (fleet.data_share, fleet.gradient_bound, fleet.compute_time, fleet.upload_time)]
    optimal_cohort(fleet, 1.0)
    after = [fleet.data_share, fleet.gradient_bound, fleet.compute_time, fleet.upload_time]
    for was, now in zip(before, after, strict=True):
        np.testing.assert_array_equal(was, now)


@pytest.mark.parametrize("floor", [0.01, 0.3, 1.0])
def test_a_floor_bounds_the_weights(floor):
    fleet = random_fleet(np.random.default_rng(34), 60, decades=6)
    q = optimal_sampling(fleet, cohort_size=5, beta_over_alpha=1e3, floor=floor)
    assert abs(q.sum() - 1) < 1e-12
    assert np.max(fleet.data_share / (5 * q)) <= 1 / (5 * floor) * (1 + 1e-12)


def scanned(fleet, ratio, largest):
    times = [
        total_time_objective(
            fleet, optimal_sampling(fleet, cohort_size=k, beta_over_alpha=ratio), cohort_size=k, beta_over_alpha=ratio
        )
        for k in range(1, largest + 1)
    ]
    return int(np.argmin(times)) + 1, min(times), times


@pytest.mark.slow
def test_the_joint_optimum_is_that_of_a_full_scan():
    rng = np.random.default_rng(35)
    valleys = 0
    for _ in range(150):
        fleet = random_fleet(rng, int(rng.integers(1, 20)), decades=4)
        ratio = float(10 ** rng.uniform(-3, 1)) * fleet.importance.sum() ** 2
        best, least, times = scanned(fleet, ratio, 300)
        valleys += np.sum(np.diff(np.sign(np.diff(times))) > 0) > 1
        size, q = optimal_cohort(fleet, ratio, max_cohort=300)
        time = total_time_objective(fleet, q, cohort_size=size, beta_over_alpha=ratio)
        assert time <= least * (1 + 1e-9)
        assert size == best or time == pytest.approx(least, rel=1e-9)
        free, q = optimal_cohort(fleet, ratio)
        assert total_time_objective(fleet, q, cohort_size=free, beta_over_alpha=ratio) <= least * (1 + 1e-9)
    assert valleys > 0, "no fleet had two valleys: the test shows too little"


@pytest.mark.slow
def test_slow_computing_asks_for_huge_cohorts_without_a_huge_search():
    fleet = Fleet([0.2, 0.3, 0.5], [1.0, 2.0, 1.0], [1e8, 2e8, 3e8], [1.0, 2.0, 0.5])
    size, q = optimal_cohort(fleet, 0.01)
    time = total_time_objective(fleet, q, cohort_size=size, beta_over_alpha=0.01)
    for other in (size // 2, size - 1000, size + 1000, size * 2):
        q = optimal_sampling(fleet, cohort_size=other, beta_over_alpha=0.01)
        assert time <= total_time_objective(fleet, q, cohort_size=other, beta_over_alpha=0.01) * (1 + 1e-6)
    assert size > 10_000


@pytest.mark.parametrize("full", [False, True])
def test_memory_stays_below_four_arrays(full):
    size = 400_000
    plain = random_fleet(np.random.default_rng(37), size)
    more = {"download_time": np.ones(size), "bandwidth_cap": np.ones(size)} if full else {}
    fleet = Fleet(plain.data_share, plain.gradient_bound, plain.compute_time, plain.upload_time, **more)
    tracemalloc.start()
    optimal_sampling(fleet, cohort_size=10, beta_over_alpha=0.1)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak <= 4 * 8 * size


def test_what_double_precision_cannot_hold_is_refused():
    with pytest.raises(InputError, match="probability is 0"):
        optimal_sampling(Fleet([1e-300, 1.0], [1e-300, 1.0], 1.0, 1.0), cohort_size=1, beta_over_alpha=0.0)


def test_without_beta_the_largest_cohort_is_taken_and_must_be_given():
    fleet = random_fleet(np.random.default_rng(36), 10)
    assert optimal_cohort(fleet, 0.0, max_cohort=37).cohort_size == 37
    with pytest.raises(InputError, match="max_cohort must be given"):
        optimal_cohort(fleet, 0.0)


def test_a_single_client():
    fleet = Fleet([1.0], [2.0], [3.0], [1.0])
    np.testing.assert_array_equal(optimal_sampling(fleet, cohort_size=4, beta_over_alpha=1.0), [1.0])
    # (K t + τ)(a²/K + B) is least at K = √(τ a²/(t B)) = √12, between 3 and 4.
    assert optimal_cohort(fleet, 1.0).cohort_size in (3, 4)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"cohort_size": 0}, "cohort_size"),
        ({"beta_over_alpha": -1.0}, "beta_over_alpha"),
        ({"beta_over_alpha": float("nan")}, "beta_over_alpha"),
        ({"beta_over_alpha": float("inf")}, "beta_over_alpha"),
        ({"floor": 1.5}, "floor"),
    ],
)
def test_bad_settings_are_refused(small_fleet, settings, said):
    with pytest.raises(InputError, match=said):
        optimal_sampling(small_fleet, **({"cohort_size": 2, "beta_over_alpha": 1.0} | settings))


def test_the_line_search_takes_equal_costs_too():
    fleet = Fleet([0.2, 0.3, 0.5], [1.0, 2.0, 1.0], 1.0, 1.0)
    q = line_search_sampling(fleet, cohort_size=2, beta_over_alpha=1.0)
    np.testing.assert_allclose(q, statistical_sampling(fleet), rtol=1e-3)
