"""Optimal Client Sampling: the approximation, and that each way is unbiased."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedtempo.policies.ocs import OptimalClientSampling, approximate_inclusion
from fedtempo.theory.inclusion import inclusion_with_sum
from support.rounds import TIMES
from support.unbiased import NORM, SHARE, Scripted, importances, lots, make, plan_round, run, water_level


@given(importances, st.integers(1, 14))
def test_the_approximation_ends_at_the_optimum_and_never_spends_more(importance, expected):
    u = np.array(importance)
    after = [approximate_inclusion(u, expected, passes) for passes in (0, 4, len(u))]
    for few, more in itertools.pairwise(after):
        assert (few <= more * (1 + 1e-9)).all()
    assert (after[0] > 0).all()
    np.testing.assert_allclose(after[-1], inclusion_with_sum(u, expected), rtol=1e-7)


def test_four_passes_are_nearly_enough():
    rng = np.random.default_rng(0)
    for _ in range(20):
        u = rng.lognormal(sigma=1.5, size=100)
        near, best = approximate_inclusion(u, 10), inclusion_with_sum(u, 10)
        np.testing.assert_allclose(near.sum(), 10, rtol=2e-2)
        assert (u**2 * (1 / near - 1)).sum() <= 1.05 * (u**2 * (1 / best - 1)).sum()


@pytest.mark.parametrize("norms", [NORM, np.ones(5), np.zeros(5), [0, 0, 0, 0, 2.0]])
@pytest.mark.parametrize("cohort_size", [1, 2, 4])
def test_optimal_sampling_is_unbiased_over_all_outcomes(cohort_size, norms):
    """Over every set that may upload, zero updates included."""
    pi, expected = water_level(SHARE * norms, cohort_size), np.zeros(5)
    for probability, uniform in lots(pi):
        policy = make(OptimalClientSampling, SHARE, cohort_size)
        plan = plan_round(policy, Scripted(uniform), norms)
        np.testing.assert_array_equal(plan.members, np.flatnonzero((uniform == 0) | (pi > 1 - 1e-9)))
        expected[plan.members] += probability * plan.weights
    np.testing.assert_allclose(expected, SHARE, rtol=1e-6)


@pytest.mark.parametrize("approximate", [False, True])
def test_uniform_candidates_keep_it_unbiased(approximate):
    norms, expected = np.array([3.0, 0.5, 1.0, 0.7, 2.0]), np.zeros(5)
    subsets = list(itertools.combinations(range(5), 3))
    for chosen in subsets:
        asked = np.array(chosen)
        pi = water_level(SHARE[asked] * norms[asked], 2)  # four passes are enough for three clients
        for probability, uniform in lots(pi):
            policy = make(OptimalClientSampling, SHARE, 2, candidates=3, approximate=approximate)
            plan = plan_round(policy, Scripted(uniform, chosen[::-1]), norms)
            expected[plan.members] += probability / len(subsets) * plan.weights
    np.testing.assert_allclose(expected, SHARE)


def test_updates_that_are_no_longer_finite_are_sent():
    """So that the engine sees them, and says that training diverged."""
    policy = make(OptimalClientSampling, SHARE, 2)
    plan = plan_round(policy, np.random.default_rng(0), [1.0, np.inf, 1.0, np.inf, 0.0])
    assert plan.members.tolist() == [1, 3]
    np.testing.assert_allclose(plan.weights, SHARE[[1, 3]])


def test_who_does_not_report_its_norm_counts_as_absent():
    policy, rng, weight = make(OptimalClientSampling, SHARE, 2), np.random.default_rng(0), np.zeros(5)
    for _ in range(3000):
        answers = np.where([False, rng.random() < 0.6, False, False, False], np.nan, [1.0, 2.0, 1.0, 0.5, 3.0])
        plan = plan_round(policy, rng, answers)
        assert not np.isnan(answers[plan.members]).any()
        weight[plan.members] += plan.weights
    assert policy.availability.response(np.array([0, 1])) == pytest.approx([1.0, 0.4], abs=0.1)
    assert weight / 3000 == pytest.approx(SHARE, rel=0.1)


def test_all_candidates_compute_and_only_members_upload(small_data):
    def waiting(name):  # until the slowest has computed; uploads that start together then take the sum of their times
        records = run(small_data, name, max_rounds=6).records
        return np.array([r["round_time"] - TIMES["upload_time"][r["members"]].sum() for r in records])

    np.testing.assert_allclose(waiting("ocs"), 2.0)
    some = waiting("ocs-candidates")
    assert some.min() < 1.9
    assert np.isclose(some[:, np.newaxis], TIMES["compute_time"]).any(axis=1).all()
