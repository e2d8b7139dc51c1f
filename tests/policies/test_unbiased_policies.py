"""Optimal Client Sampling, clustered sampling and K-Vib: what holds for each of them."""

import itertools

import numpy as np
import pytest

from fedtempo import InputError
from fedtempo.engine.divergence import DivergedError
from fedtempo.policies.clustered import ClusteredSampling
from fedtempo.policies.kvib import KVib
from fedtempo.policies.ocs import OptimalClientSampling, approximate_inclusion
from fedtempo.simulator.absences import WithAbsences
from fedtempo.simulator.channel import StaticChannel
from fedtempo.theory.inclusion import inclusion_with_sum
from support.rounds import TIMES, carry_over
from support.simulations import goes_on_alike, loop_of
from support.unbiased import (
    NORM,
    POLICIES,
    SHARE,
    Scripted,
    context,
    lots,
    make,
    plan_round,
    report_of,
    run,
    water_level,
)


@pytest.mark.parametrize("name", ["ocs", "aocs", "kvib"])
def test_a_lot_falls_on_a_client_with_exactly_its_probability(name):
    cls, options = POLICIES[name]
    norms, policy = np.array([3.0, 0.5, 1.0, 0.7, 2.0]), make(cls, SHARE, 2, **options)
    policy.observe(report_of(plan_round(policy, Scripted(np.zeros(5)), norms), norms))
    root = SHARE * norms if cls is OptimalClientSampling else np.sqrt(policy.state.feedback + policy.state.gamma)
    pi = water_level(root, 2)
    pi = pi if cls is OptimalClientSampling else 0.7 * pi + 0.3 * 2 / 5
    assert pi.max() < 0.999
    assert pi.max() > 2 * pi.min() or cls is KVib
    np.testing.assert_array_equal(plan_round(policy, Scripted(pi * (1 - 1e-9)), norms).members, np.arange(5))
    assert not plan_round(policy, Scripted(pi * (1 + 1e-9)), norms).members.size


@pytest.mark.parametrize("name", POLICIES)
def test_whoever_is_absent_is_left_out_and_made_up_for(name):
    """Given who is available, the expected weight is p/ρ: by enumeration, with a ρ that is not 1."""
    cls, options = POLICIES[name]
    options = options | ({"candidates": 3} if "candidates" in options else {})
    norms, cohort_size = np.array([3.0, 0.5, 1.0, 0.7, 2.0]), 2
    rng = np.random.default_rng(1)

    def experienced():
        policy = make(cls, SHARE, cohort_size, **options)
        for _ in range(8):
            available = rng.random(5) < 0.7
            available[rng.integers(5)] = True
            plan = plan_round(policy, np.random.default_rng(2), norms, available=available)
            assert available[plan.members].all()
            policy.availability.observe(report_of(plan, norms, failed=rng.random(len(plan.members)) < 0.3))
        return policy

    before, available = experienced(), np.array([True, True, False, True, True])
    able, expected = np.flatnonzero(available), np.zeros(5)

    def play(probability, rng):
        policy = carry_over(before, make(cls, SHARE, cohort_size, **options))
        plan = plan_round(policy, rng, norms, available=available)
        assert available[plan.members].all()
        assert plan.note == {"never_there": 0.0}
        assert policy.availability.state.rounds == 9, "a round counts once, with or without a probe"
        expected[plan.members] += probability * plan.weights
        return policy.availability.response(able)

    learner = carry_over(before, make(cls, SHARE, cohort_size, **options))
    learner.availability.look(context(None, available=available))
    effective = SHARE[able] / learner.availability.response(able)
    if cls is ClusteredSampling:
        part = SHARE[able] / SHARE[able].sum()
        line = np.cumsum(np.sort(part)[::-1]) * cohort_size
        cuts = np.unique(np.concatenate([[0.0], line, [1.0]]).round(14))
        pieces = [[(a, b) for a, b in itertools.pairwise(cuts) if k <= a < k + 1] for k in range(cohort_size)]
        for outcome in itertools.product(*pieces):
            rho = play(np.prod([b - a for a, b in outcome]), Scripted([(a + b) / 2 % 1 for a, b in outcome]))
    elif cls is KVib:
        for probability, uniform in lots(learner.inclusion(able)):
            rho = play(probability, Scripted(uniform))
    else:
        subsets = list(itertools.combinations(range(4), 3)) if "candidates" in options else [tuple(range(4))]
        for subset in subsets:
            places = np.array(subset)
            for probability, uniform in lots(water_level(effective[places] * norms[able][places], cohort_size)):
                rho = play(probability / len(subsets), Scripted(uniform, able[places]))
    assert (rho < 1).any()
    np.testing.assert_allclose(expected[able], SHARE[able] / rho, rtol=1e-7)
    assert expected[2] == 0


@pytest.mark.parametrize("name", ["ocs", "aocs", "clustered", "kvib", "kvib-gamma"])
@pytest.mark.parametrize(("size", "cohort_size"), [(1, 1), (1, 4), (3, 1), (3, 3), (3, 10)])
@pytest.mark.parametrize("norms", ["equal", "zero", "mixed"])
def test_small_fleets_and_zero_norms(name, size, cohort_size, norms):
    cls, options = POLICIES[name]
    share = np.arange(1, size + 1) / np.arange(1, size + 1).sum()
    norm = {"equal": np.ones(size), "zero": np.zeros(size), "mixed": np.arange(size) * 1e6}[norms]
    policy, rng = make(cls, share, cohort_size, **options), np.random.default_rng(0)
    for _ in range(10):
        plan = plan_round(policy, rng, norm)
        if cls is ClusteredSampling:
            assert plan.weights.sum() == pytest.approx(1)
            np.testing.assert_allclose(plan.weights, plan.counts / cohort_size)
        elif cohort_size >= size:
            np.testing.assert_array_equal(plan.members, np.arange(size))
            np.testing.assert_allclose(plan.weights, share)
        policy.observe(report_of(plan, norm))


@pytest.mark.parametrize("name", POLICIES)
def test_members_that_fail_teach_nothing_but_that(name):
    cls, options = POLICIES[name]
    policy, rng = make(cls, SHARE, 2, **options), np.random.default_rng(0)
    for _ in range(12):
        plan = plan_round(policy, rng, NORM)
        policy.observe(report_of(plan, NORM, failed=np.ones(len(plan.members), dtype=bool)))
    assert policy.availability.state.failed.sum() > 0
    if cls is KVib:
        assert policy.state.gamma == options.get("gamma")
        assert not policy.state.feedback.any()
    assert np.isfinite(plan_round(policy, rng, NORM).weights).all()


def test_equal_clients_are_included_alike():
    np.testing.assert_allclose(inclusion_with_sum(np.full(10, 0.3), 4), 0.4)
    np.testing.assert_allclose(approximate_inclusion(np.zeros(10), 4), 0.4)
    np.testing.assert_allclose(make(KVib, np.full(10, 0.1), 4).inclusion(np.arange(10)), 0.4)
    np.testing.assert_allclose(make(KVib, SHARE, 2, theta=1.0).inclusion(np.arange(5)), 0.4)


@pytest.mark.parametrize(
    ("policy", "options", "message"),
    [
        (OptimalClientSampling, {"candidates": 1}, "candidates must be at least the cohort size 2, got 1"),
        (OptimalClientSampling, {"candidates": 0}, "candidates must be a whole number"),
        (OptimalClientSampling, {"candidates": 2.5}, "candidates must be a whole number"),
        (OptimalClientSampling, {"approximate": 1}, "approximate must be true or false, got 1"),
        (OptimalClientSampling, {"candidate": 4}, "did you mean 'candidates'"),
        (ClusteredSampling, {"clusters": 4}, "got 'clusters'; it takes none"),
        (KVib, {"theta": 0.0}, "theta must be positive"),
        (KVib, {"theta": 1.5}, "theta must lie between 0 and 1, got 1.5"),
        (KVib, {"gamma": -1.0}, "gamma must be positive"),
        (KVib, {"gamma": "auto"}, "gamma must be positive"),
        (KVib, {"thata": 0.1}, "did you mean 'theta'"),
    ],
)
def test_options_are_checked(policy, options, message):
    with pytest.raises(InputError, match=message):
        make(policy, SHARE, 2, **options)


@pytest.mark.parametrize("name", POLICIES)
def test_a_short_run_lowers_the_loss(small_data, name):
    losses = [record["loss"] for record in run(small_data, name).records]
    assert losses[-1] < 0.9 * losses[0]
    assert losses[-1] < np.log(10)


@pytest.mark.parametrize("name", POLICIES)
def test_a_run_goes_on_from_its_saved_state_as_if_nothing_had_happened(small_data, name):
    cls, options = POLICIES[name]

    channel = WithAbsences(StaticChannel(**TIMES), present_share=0.8, seed=3)
    goes_on_alike(lambda: loop_of(small_data, TIMES, cls, channel=channel, options=options), (1, 3, 6))


@pytest.mark.parametrize("name", ["ocs", "kvib"])
def test_a_round_may_be_empty(small_data, name):
    records = run(small_data, name, cohort_size=1, max_rounds=25).records
    empty = [r for r in records if not r["members"]]
    assert 0 < len(empty) < 25
    for record in empty:
        assert record["aggregate_norm"] == 0
        assert record["round_time"] == (TIMES["compute_time"].max() if name == "ocs" else 0)


@pytest.mark.parametrize("name", ["ocs", "kvib"])
def test_a_diverging_run_is_named_as_such(small_data, name):
    with pytest.raises(DivergedError, match="smaller step_size"):
        run(small_data, name, step_size=1e30, schedule="constant", evaluate_every=1000, max_rounds=100)
