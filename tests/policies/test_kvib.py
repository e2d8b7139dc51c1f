"""K-Vib: its formulas, unbiased, and what it learns."""

import numpy as np
import pytest

from fedtempo.policies.kvib import KVib
from support.unbiased import NORM, SHARE, Scripted, lots, make, plan_round, report_of, water_level


@pytest.mark.parametrize("gamma", [None, 0.02])
def test_kvib_follows_its_formulas(gamma):
    """Against plain loops: importance-weighted sums of squares, the multiplier of the optimum, the mixture."""
    share, theta, cohort_size = np.array([0.05, 0.4, 0.2, 0.1, 0.15, 0.1]), 0.2, 2
    rng, policy = np.random.default_rng(3), make(KVib, share, cohort_size, theta=theta, gamma=gamma)
    sums, regulariser = [0.0] * 6, gamma
    for round_index in range(25):
        root = [(s + (regulariser or 1)) ** 0.5 for s in sums]
        pi = (1 - theta) * water_level(root, cohort_size) + theta * cohort_size / 6
        np.testing.assert_allclose(policy.inclusion(np.arange(6)), pi, rtol=1e-9)
        assert pi.min() >= theta * cohort_size / 6
        assert pi.sum() == pytest.approx(cohort_size)
        plan = plan_round(policy, rng, None, round_index=round_index)
        np.testing.assert_allclose(plan.weights, share[plan.members] / pi[plan.members], rtol=1e-9)
        norms = rng.lognormal(size=6)
        reported = [(share[i] * norms[i]) ** 2 for i in plan.members]
        if regulariser is None and reported:
            regulariser = sum(reported) / len(reported) * 6 / (theta * cohort_size)
        for i, square in zip(plan.members, reported, strict=True):
            sums[i] += square / pi[i]
        policy.observe(report_of(plan, norms))
    assert policy.state.gamma == pytest.approx(regulariser)
    np.testing.assert_allclose(policy.state.feedback, sums)


def test_kvib_is_unbiased_in_its_weights_and_in_what_it_learns():
    learned = [0.1, 0.0, 3.0, 0.5, 0.02]
    pi = 0.7 * water_level(np.sqrt(np.array(learned) + 0.1), 2) + 0.3 * 2 / 5
    weights, gained = np.zeros(5), np.zeros(5)
    for probability, uniform in lots(pi):
        policy = make(KVib, SHARE, 2, gamma=0.1)
        policy.state.feedback = np.array(learned)
        plan = plan_round(policy, Scripted(uniform), None)
        np.testing.assert_array_equal(plan.members, np.flatnonzero(uniform == 0))
        weights[plan.members] += probability * plan.weights
        policy.observe(report_of(plan, NORM))
        gained += probability * (policy.state.feedback - learned)
    np.testing.assert_allclose(weights, SHARE)
    np.testing.assert_allclose(gained, (SHARE * NORM) ** 2, rtol=1e-9, atol=1e-12)


def test_kvib_learns_the_optimum_where_norms_stay_as_they_are():
    policy, rng = make(KVib, SHARE, 2, theta=0.1, gamma=1e-4), np.random.default_rng(0)
    for _ in range(2000):
        policy.observe(report_of(plan_round(policy, rng, None), NORM))
    wanted = 0.9 * water_level(SHARE * NORM, 2) + 0.1 * 2 / 5
    # 2000 draws of probability 0.04 and more: relative errors of ω about √(24/2000), halved by the root.
    np.testing.assert_allclose(policy.inclusion(np.arange(5)), wanted, rtol=0.15, atol=0.005)
