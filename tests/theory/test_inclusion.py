"""Cohorts without replacement: inclusion probabilities against a solver, draws that keep to them, marginal times."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from fedtempo import cohort_round_time
from fedtempo.theory.inclusion import (
    SMALLEST,
    draw_systematically,
    inclusion_probabilities,
    inclusion_with_sum,
    marginal_round_times,
)
from support.unbiased import importances, water_level


def factors(pi, importance, cost, fixed_cost, signal):
    """Seconds of a round, and its signal and noise."""
    return fixed_cost + pi @ cost, signal + float((importance**2 * (1 / pi - 1)).sum())


def solve(importance, cost, fixed_cost, signal, floor):
    """Minimise the stated objective over log π with a general solver, from several starts."""

    def objective(x):
        seconds, noise = factors(np.exp(x), importance, cost, fixed_cost, signal)
        pi = np.exp(x)
        slope = pi * cost / seconds - importance**2 / pi / noise
        return math.log(seconds) + math.log(noise), slope

    bounds = [(math.log(low), 0.0) for low in floor]
    starts = [[share * low for low, _ in bounds] for share in (0.1, 0.6)]
    found = [minimize(objective, start, jac=True, method="L-BFGS-B", bounds=bounds) for start in starts]
    return math.exp(min(result.fun for result in found))


def random_case(seed):
    rng = np.random.default_rng([seed, 5])
    size = int(rng.integers(1, 12))
    importance, cost = 10 ** rng.uniform(-1, 1, (2, size))
    fixed_cost = float(cost.mean() * 10 ** rng.uniform(-1, 1))
    signal = float(importance @ importance * 10 ** rng.uniform(-2, 2))
    return importance, cost, fixed_cost, signal


@pytest.mark.parametrize("floored", [False, True])
def test_no_solver_finds_a_shorter_time(floored):
    """Within 2 % of the least objective in each case, within 0.1 % in most: θ is sought to about a per mille."""
    losses, ratios = [], []
    for seed in range(10):
        importance, cost, fixed_cost, signal = random_case(seed)
        floor = np.full(len(cost), 1e-9)
        if floored:
            floor = 10 ** np.random.default_rng(seed).uniform(-3, 0, len(cost))
        pi, theta = inclusion_probabilities(importance, cost, fixed_cost, signal, floor)
        assert ((pi >= floor) & (pi <= 1)).all()
        np.testing.assert_allclose(pi, np.clip(theta * importance / np.sqrt(cost), floor, 1))
        seconds, noise = factors(pi, importance, cost, fixed_cost, signal)
        losses.append(seconds * noise / solve(importance, cost, fixed_cost, signal, floor) - 1)
        ratios.append(theta**2 * noise / seconds - 1)
    assert max(losses) < 0.02
    assert np.quantile(losses, 0.75) < 1e-3
    assert min(losses) > -1e-6, "the solver found the optimum as well"
    assert np.abs(ratios).max() < 0.03, "θ² = A/B"
    assert np.quantile(np.abs(ratios), 0.75) < 5e-3


def test_a_closed_form():
    """Where nobody is certain, θ² (b - Σ a²) = c₀."""
    importance, cost = np.array([0.3, 0.1, 0.2]), np.array([4.0, 1.0, 2.0])
    pi, theta = inclusion_probabilities(importance, cost, 2.0, 8.0, np.full(3, 1e-12))
    assert theta == pytest.approx(math.sqrt(2 / (8 - 0.14)), rel=1e-3)
    np.testing.assert_allclose(pi, theta * importance / np.sqrt(cost))


@pytest.mark.parametrize("fixed_cost", [0.0, 1.0])
def test_where_noise_is_all_everyone_is_included(fixed_cost):
    """With signal 0 and all clients certain the objective is 0."""
    for seed in range(20):
        importance, cost, *_ = random_case(seed)
        pi, theta = inclusion_probabilities(importance, cost, fixed_cost, 0.0, np.full(len(cost), 1e-3))
        np.testing.assert_array_equal(pi, 1)
        assert math.isfinite(theta)


def test_a_call_goes_on_from_the_last_one():
    for seed in range(30):
        importance, cost, fixed_cost, signal = random_case(seed)
        floor = np.full(len(cost), 1e-9)
        _, theta = inclusion_probabilities(importance, cost, fixed_cost, signal, floor)
        for start in (theta, 0.9 * theta, 100 * theta):
            _, again = inclusion_probabilities(importance, cost, fixed_cost, signal, floor, start)
            assert again == pytest.approx(theta, rel=0.03)


@settings(max_examples=80)
@given(
    st.lists(st.floats(-8, 0), min_size=1, max_size=12),
    st.floats(-6, 6),
    st.integers(1, 14),
)
def test_inclusion_with_a_given_sum(exponents, unit, total):
    rate = 10.0 ** (np.array(exponents) + unit)
    pi = inclusion_with_sum(rate, total)
    assert ((pi > 0) & (pi <= 1)).all()
    if total >= len(rate):
        np.testing.assert_array_equal(pi, 1)
        return
    assert pi.sum() == pytest.approx(total, rel=1e-12)
    below = pi < 1
    if below.any():
        share = pi[below] / rate[below]
        np.testing.assert_allclose(share, share[0], rtol=1e-12)
        assert (rate[~below] * share[0] >= 1 - 1e-9).all(), "who is certain would be above 1 otherwise"


@settings(max_examples=80)
@given(st.lists(st.floats(-150, 150), min_size=2, max_size=8), st.integers(1, 7))
def test_inclusion_stays_positive_and_sums_up_over_any_number_of_decades(exponents, total):
    pi = inclusion_with_sum(10.0 ** np.array(exponents), total)
    assert ((pi > 0) & (pi <= 1)).all()
    assert pi.sum() == pytest.approx(min(total, len(pi)), rel=1e-12)


def test_rates_beyond_nine_decades_count_as_nine():
    np.testing.assert_allclose(inclusion_with_sum(np.array([3.0, 1.0, 1e-20]), 1), [0.75, 0.25, 0.75 * SMALLEST])
    np.testing.assert_allclose(inclusion_with_sum(np.array([5.0, 5.0, 5.0]), 2), [2 / 3] * 3)
    np.testing.assert_allclose(inclusion_with_sum(np.zeros(4), 3), [3 / 4] * 4)


class Given:
    """In the place of a random generator: an order and a start."""

    def __init__(self, order, start):
        self.order, self.start = order, start

    def permutation(self, size):
        assert size == len(self.order)
        return np.array(self.order)

    def random(self):
        return self.start


@pytest.mark.parametrize(
    "pi", [[0.3, 0.9, 0.25, 0.55], [1.0, 0.5, 0.25, 0.25], [0.05, 0.15], [1.0, 1.0], [0.7], [0.999, 0.998, 0.01]]
)
def test_each_client_is_drawn_with_its_probability_whatever_the_order(pi):
    """Over all starts and all orders; between two cuts, where a sum of π is whole, nothing changes with the start."""
    pi = np.array(pi)
    for order in itertools.permutations(range(len(pi))):
        cuts = np.cumsum(pi[list(order)]) % 1.0
        cuts = np.unique(np.concatenate([[0.0, 1.0], cuts.round(12)]))
        drawn = np.zeros(len(pi))
        for low, high in itertools.pairwise(cuts):
            cohort = draw_systematically(pi, Given(order, (low + high) / 2))
            assert math.floor(pi.sum() + 1e-9) <= len(cohort) <= math.ceil(pi.sum() - 1e-9)
            drawn[cohort] += high - low
        np.testing.assert_allclose(drawn, pi, atol=1e-9)


def test_frequencies_sizes_and_pairs_of_drawn_cohorts():
    pi = np.array([0.02, 0.31, 0.9, 1.0, 0.47, 0.05, 0.6])
    rng, draws = np.random.default_rng(1), 10_000
    drawn, sizes = np.zeros((draws, 7), dtype=bool), set()
    for row in drawn:
        cohort = draw_systematically(pi, rng)
        assert (np.diff(cohort) > 0).all(), "in order, nobody twice"
        row[cohort] = True
        sizes.add(len(cohort))
    assert sizes == {3, 4}
    assert drawn[:, 3].all()
    # Five standard errors.
    assert (np.abs(drawn.mean(axis=0) - pi) <= 5 * np.sqrt(pi * (1 - pi) / draws)).all()
    together = drawn.T.astype(int) @ drawn.astype(int)
    assert (together > 0).all(), "any two clients may meet"


def test_whole_sums_give_cohorts_of_that_size():
    rng = np.random.default_rng(2)
    for _ in range(500):
        total = int(rng.integers(1, 8))
        pi = inclusion_with_sum(10 ** rng.uniform(-2, 2, 8), total)
        assert len(draw_systematically(pi, rng)) == total


def brute_force(tau, t, members):
    """What each client adds, as a difference of two round times."""

    def seconds(cohort):
        return cohort_round_time(tau[cohort], t[cohort], link="shared") if len(cohort) else 0.0

    added = []
    for client in range(len(tau)):
        others = [member for member in members if member != client]
        added.append(seconds([*others, client]) - seconds(others))
    return added, seconds(list(members))


@pytest.mark.parametrize("tied", [False, True])
def test_marginal_round_times_are_differences_of_round_times(tied):
    rng = np.random.default_rng(3)
    for _ in range(150):
        size = int(rng.integers(1, 9))
        tau, t = rng.exponential(size=(2, size)) * 10 ** rng.uniform(-1, 1, (2, size))
        if tied:  # many are ready together, some at once
            tau, t = rng.integers(0, 4, size) / 2, rng.integers(1, 4, size) / 2
        members = np.sort(rng.permutation(size)[: rng.integers(0, size + 1)])
        marginal, end = marginal_round_times(tau, t, members)
        expected, round_time = brute_force(tau, t, members)
        np.testing.assert_allclose(marginal, expected, atol=1e-12 * (tau.max() + t.sum()), rtol=1e-9)
        assert end == pytest.approx(round_time)
        assert (marginal >= 0).all()


def test_a_round_in_which_one_hides_behind_the_other():
    """Client 0 uploads from 0 to 1 s, long before client 1 is ready; client 2 delays 1 by all of its upload."""
    tau, t = np.array([0.0, 5.0, 5.0]), np.array([1.0, 2.0, 3.0])
    marginal, end = marginal_round_times(tau, t, np.array([0, 1]))
    np.testing.assert_allclose(marginal, [0.0, 6.0, 3.0])
    assert end == 7.0


@given(importances, st.integers(1, 14))
def test_inclusion_with_sum_is_the_water_level(importance, expected):
    pi = inclusion_with_sum(np.array(importance), expected)
    assert (pi > 0).all()
    assert (pi <= 1).all()
    assert pi.sum() == pytest.approx(min(expected, len(importance)))
    np.testing.assert_allclose(pi, water_level(importance, expected), rtol=1e-7)


@pytest.mark.parametrize("expected", [1, 2, 4, 6])
def test_no_other_inclusion_has_less_variance(expected):
    u = np.array([0.3, 5.0, 1.0, 0.02, 1.0, 0.4, 2.0])
    found = minimize(
        lambda x: (u**2 / x).sum(), np.full(7, expected / 7), jac=lambda x: -(u**2) / x**2, bounds=[(1e-6, 1)] * 7,
        constraints={"type": "eq", "fun": lambda x: x.sum() - expected, "jac": np.ones_like},
        options={"ftol": 1e-14, "maxiter": 500},
    )  # fmt: skip
    assert found.success
    pi = inclusion_with_sum(u, expected)
    assert (u**2 / pi).sum() <= found.fun * (1 + 1e-12)
    np.testing.assert_allclose(pi, found.x, atol=1e-4)
