"""Rivals whose aggregate is unbiased: Optimal Client Sampling, clustered sampling and K-Vib."""

import itertools
import json
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import brentq, minimize

from fedtempo import Fleet, InputError, simulate
from fedtempo.data.synthetic import synthetic_data
from fedtempo.engine.loop import DivergedError
from fedtempo.engine.settings import StopSettings, TrainingSettings
from fedtempo.learning.softmax import SoftmaxTrainer
from fedtempo.policies.clustered import ClusteredSampling, lay_out
from fedtempo.policies.kvib import KVib
from fedtempo.policies.ocs import OptimalClientSampling, approximate_inclusion
from fedtempo.policies.policy import PolicySetting, Probe, RoundContext, RoundPlan, RoundReport
from fedtempo.simulator.api import assemble
from fedtempo.simulator.channel import StaticChannel
from fedtempo.simulator.markov import WithAbsences
from fedtempo.theory.inclusion import SMALLEST, inclusion_with_sum

POLICIES = {
    "ocs": (OptimalClientSampling, {}),
    "ocs-candidates": (OptimalClientSampling, {"candidates": 5}),
    "aocs": (OptimalClientSampling, {"approximate": True}),
    "clustered": (ClusteredSampling, {}),
    "kvib": (KVib, {}),
    "kvib-gamma": (KVib, {"theta": 0.1, "gamma": 1e-3}),
}
SHARE = np.array([0.05, 0.4, 0.2, 0.1, 0.25])
NORM = np.array([3.0, 0.5, 1.0, 0.0, 2.0])


class Scripted:
    """In the place of a random generator: gives what the test wants."""

    def __init__(self, uniform, chosen=None):
        self.uniform, self.chosen = np.asarray(uniform, dtype=np.float64), chosen

    def random(self, size):
        assert self.uniform.shape == (size,)
        return self.uniform

    def choice(self, clients, size, *, replace):
        assert not replace
        assert len(self.chosen) == size
        assert np.isin(self.chosen, clients).all()
        return np.array(self.chosen)


def make(policy, share, cohort_size, **options):
    fleet = Fleet(np.asarray(share, dtype=np.float64), 1.0, 1.0, 1.0)
    return policy(PolicySetting(fleet=fleet, cohort_size=cohort_size, options=options))


def context(rng, *, round_index=0, available=None, answers=None):
    return RoundContext(
        round_index=round_index, time=0.0, step_size=0.1, local_steps=5, rng=rng, available=available, answers=answers
    )


def plan_round(policy, rng, norms, **more):
    """Let a policy plan a round, with the answer that an engine would give to its probe."""
    plan = policy.plan(context(rng, **more))
    if isinstance(plan, Probe):
        assert plan.ask == "update_norm"
        plan = policy.plan(context(rng, answers=np.asarray(norms, dtype=np.float64)[plan.clients], **more))
    assert isinstance(plan, RoundPlan)
    return plan


def report_of(plan, norms, failed=None):
    size = len(plan.members)
    norm = np.asarray(norms, dtype=np.float64)[plan.members]
    return RoundReport(
        plan=plan, round_index=0, round_time=1.0, compute_time=np.ones(size), upload_time=np.ones(size),
        step_size=np.ones(size), local_steps=np.ones(size, dtype=np.int64), largest_gradient_norm=norm,
        mean_gradient_norm=norm, update_norm=norm, mean_loss=norm, residual_norm=norm,
        failed=np.zeros(size, dtype=bool) if failed is None else failed, aggregate_norm=1.0, direction_norm=1.0,
        loss=None, accuracy=None,
    )  # fmt: skip


def lots(inclusion):
    """Yield for each set of included clients its probability, and random numbers that lead to it."""
    for bits in itertools.product([True, False], repeat=len(inclusion)):
        yield np.prod(np.where(bits, inclusion, 1 - inclusion)), np.where(bits, 0.0, 1 - 1e-16)


def water_level(importance, expected):
    """The same problem by its multiplier: π_i = min(1, λ u_i) with λ such that Σ π_i = m."""
    u = np.asarray(importance, dtype=np.float64)
    if expected >= len(u):
        return np.ones(len(u))
    u = np.maximum(u, SMALLEST * u.max()) if u.max() > 0 else np.ones(len(u))
    log_level = brentq(
        lambda x: np.minimum(1, np.exp(x) * u).sum() - expected,
        np.log(expected / u.sum() / 2), np.log(2 / u.min()), xtol=1e-14, rtol=1e-14,
    )  # fmt: skip
    return np.minimum(1, np.exp(log_level) * u)


importances = st.lists(st.one_of(st.just(0.0), st.floats(-12, 12).map(lambda x: 10**x)), min_size=1, max_size=12)


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


def by_sample_size(sizes, cohort_size):
    """Algorithm 1 word for word, in whole numbers: r_ki by handing K n_i samples out to K distributions of M each."""
    total, k = sum(sizes), 0
    given_out = [[0] * len(sizes) for _ in range(cohort_size)]
    for i in sorted(range(len(sizes)), key=lambda i: -sizes[i]):
        left = cohort_size * sizes[i]
        while left:
            part = min(left, total - sum(given_out[k]))
            given_out[k][i] += part
            left -= part
            k += sum(given_out[k]) == total
    return [[Fraction(part, total) for part in row] for row in given_out]


SIZES = [[7], [1, 1], [5, 3, 9, 3], [40, 1, 2, 7], [13, 5, 8, 21, 3]]


@pytest.mark.parametrize("cohort_size", [1, 2, 3, 6])
@pytest.mark.parametrize("sizes", SIZES)
def test_each_cluster_has_the_clients_of_algorithm_1(sizes, cohort_size):
    r = by_sample_size(sizes, cohort_size)
    assert all(sum(row) == 1 for row in r)
    assert [sum(column) for column in zip(*r, strict=True)] == [Fraction(cohort_size * n, sum(sizes)) for n in sizes]
    line = lay_out(np.array(sizes) / sum(sizes), cohort_size)
    ends = [Fraction(0)] + [Fraction(end) for end in line.ends.tolist()]
    for k, row in enumerate(r):
        for place, i in enumerate(line.order.tolist()):
            inside = min(ends[place + 1], Fraction(k + 1)) - max(ends[place], Fraction(k))
            assert float(max(inside, 0)) == pytest.approx(float(row[i]), abs=1e-12)
    assert ends[-1] == cohort_size, "no part of the line is without a client"


def draws(r):
    """Yield each outcome of one draw from each distribution: clients, probability, random numbers that lead to it."""
    choices = []
    for row in r:
        descending = sorted((i for i in range(len(row)) if row[i]), key=lambda i: -SIZES[-1][i])
        ends = list(itertools.accumulate(row[i] for i in descending))
        choices.append([(i, row[i], end - row[i] / 2) for i, end in zip(descending, ends, strict=True)])
    for outcome in itertools.product(*choices):
        clients, chances, middles = zip(*outcome, strict=True)
        yield clients, math.prod(chances), middles


@pytest.mark.parametrize("cohort_size", [1, 2, 3, 4, 6])
def test_clustered_sampling_is_unbiased_and_varies_less_than_draws_from_p(cohort_size):
    sizes = SIZES[-1]
    p = [Fraction(n, sum(sizes)) for n in sizes]
    policy = make(ClusteredSampling, np.array(sizes) / sum(sizes), cohort_size)
    mean, square, chosen, total = [0] * 5, [0] * 5, [0] * 5, 0
    for clients, chance, uniform in draws(by_sample_size(sizes, cohort_size)):
        plan = plan_round(policy, Scripted(uniform), np.ones(5))
        weight = np.zeros(5)
        weight[plan.members] = plan.weights
        assert plan.counts.sum() == cohort_size
        total += chance
        for i in range(5):
            share = Fraction(clients.count(i), cohort_size)
            assert weight[i] == pytest.approx(float(share), abs=1e-12)
            mean[i] += chance * share
            square[i] += chance * share**2
            chosen[i] += chance * (share > 0)
    assert total == 1
    assert mean == p
    for i in range(5):
        assert square[i] - mean[i] ** 2 <= p[i] * (1 - p[i]) / cohort_size
        assert chosen[i] >= 1 - (1 - p[i]) ** cohort_size
    if cohort_size > 1:
        assert sum(square) < sum(q * (1 - q) / cohort_size + q**2 for q in p)


def test_the_last_point_of_the_line_belongs_to_the_last_client():
    policy = make(ClusteredSampling, SHARE, 4)
    plan = plan_round(policy, Scripted([0, 0, 0, 1 - 2**-53]), NORM)
    assert plan.members.tolist() == [0, 1, 4]  # 3 + (1 - 2^-53) rounds to 4, beyond the part of client 0


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
        told = [(share[i] * norms[i]) ** 2 for i in plan.members]
        if regulariser is None and told:
            regulariser = sum(told) / len(told) * 6 / (theta * cohort_size)
        for i, square in zip(plan.members, told, strict=True):
            sums[i] += square / pi[i]
        policy.observe(report_of(plan, norms))
    assert policy.gamma == pytest.approx(regulariser)
    np.testing.assert_allclose(policy.feedback, sums)


def test_kvib_is_unbiased_in_its_weights_and_in_what_it_learns():
    learned = [0.1, 0.0, 3.0, 0.5, 0.02]
    pi = 0.7 * water_level(np.sqrt(np.array(learned) + 0.1), 2) + 0.3 * 2 / 5
    weights, told = np.zeros(5), np.zeros(5)
    for probability, uniform in lots(pi):
        policy = make(KVib, SHARE, 2, gamma=0.1)
        policy.feedback = np.array(learned)
        plan = plan_round(policy, Scripted(uniform), None)
        np.testing.assert_array_equal(plan.members, np.flatnonzero(uniform == 0))
        weights[plan.members] += probability * plan.weights
        policy.observe(report_of(plan, NORM))
        told += probability * (policy.feedback - learned)
    np.testing.assert_allclose(weights, SHARE)
    np.testing.assert_allclose(told, (SHARE * NORM) ** 2, rtol=1e-9, atol=1e-12)


def test_kvib_learns_the_optimum_where_norms_stay_as_they_are():
    policy, rng = make(KVib, SHARE, 2, theta=0.1, gamma=1e-4), np.random.default_rng(0)
    for _ in range(2000):
        policy.observe(report_of(plan_round(policy, rng, None), NORM))
    wanted = 0.9 * water_level(SHARE * NORM, 2) + 0.1 * 2 / 5
    # 2000 draws of probability 0.04 and more: relative errors of ω about √(24/2000), halved by the root.
    np.testing.assert_allclose(policy.inclusion(np.arange(5)), wanted, rtol=0.15, atol=0.005)


@pytest.mark.parametrize("name", ["ocs", "aocs", "kvib"])
def test_a_lot_falls_on_a_client_with_exactly_its_probability(name):
    cls, options = POLICIES[name]
    norms, policy = np.array([3.0, 0.5, 1.0, 0.7, 2.0]), make(cls, SHARE, 2, **options)
    policy.observe(report_of(plan_round(policy, Scripted(np.zeros(5)), norms), norms))
    root = SHARE * norms if cls is OptimalClientSampling else np.sqrt(policy.feedback + policy.gamma)
    pi = water_level(root, 2)
    pi = pi if cls is OptimalClientSampling else 0.7 * pi + 0.3 * 2 / 5
    assert pi.max() < 0.999
    assert pi.max() > 2 * pi.min() or cls is KVib
    np.testing.assert_array_equal(plan_round(policy, Scripted(pi * (1 - 1e-9)), norms).members, np.arange(5))
    assert not plan_round(policy, Scripted(pi * (1 + 1e-9)), norms).members.size


def test_updates_that_are_no_longer_finite_are_sent():
    """So that the engine sees them, and says that training diverged."""
    policy = make(OptimalClientSampling, SHARE, 2)
    plan = plan_round(policy, np.random.default_rng(0), [1.0, np.inf, 1.0, np.inf, 0.0])
    assert plan.members.tolist() == [1, 3]
    np.testing.assert_allclose(plan.weights, SHARE[[1, 3]])


def test_who_does_not_tell_its_norm_counts_as_away():
    policy, rng, weight = make(OptimalClientSampling, SHARE, 2), np.random.default_rng(0), np.zeros(5)
    for _ in range(3000):
        answers = np.where([False, rng.random() < 0.6, False, False, False], np.nan, [1.0, 2.0, 1.0, 0.5, 3.0])
        plan = plan_round(policy, rng, answers)
        assert not np.isnan(answers[plan.members]).any()
        weight[plan.members] += plan.weights
    assert policy.presence.response(np.array([0, 1])) == pytest.approx([1.0, 0.4], abs=0.1)
    assert weight / 3000 == pytest.approx(SHARE, rel=0.1)


@pytest.mark.parametrize("name", POLICIES)
def test_whoever_is_away_is_left_out_and_made_up_for(name):
    """Given who is there, the expected weight is p/ρ: by enumeration, with a ρ that has something to tell."""
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
            policy.presence.observe(report_of(plan, norms, failed=rng.random(len(plan.members)) < 0.3))
        return json.dumps(policy.state())

    state, available = experienced(), np.array([True, True, False, True, True])
    there, expected = np.flatnonzero(available), np.zeros(5)

    def play(probability, rng):
        policy = make(cls, SHARE, cohort_size, **options)
        policy.restore(json.loads(state))
        plan = plan_round(policy, rng, norms, available=available)
        assert available[plan.members].all()
        assert plan.note == {"never_there": 0.0}
        assert policy.presence.rounds == 9, "a round counts once, with or without a probe"
        expected[plan.members] += probability * plan.weights
        return policy.presence.response(there)

    learner = make(cls, SHARE, cohort_size, **options)
    learner.restore(json.loads(state))
    learner.presence.look(context(None, available=available))
    effective = SHARE[there] / learner.presence.response(there)
    if cls is ClusteredSampling:
        part = SHARE[there] / SHARE[there].sum()
        line = np.cumsum(np.sort(part)[::-1]) * cohort_size
        cuts = np.unique(np.concatenate([[0.0], line, [1.0]]).round(14))
        pieces = [[(a, b) for a, b in itertools.pairwise(cuts) if k <= a < k + 1] for k in range(cohort_size)]
        for outcome in itertools.product(*pieces):
            rho = play(np.prod([b - a for a, b in outcome]), Scripted([(a + b) / 2 % 1 for a, b in outcome]))
    elif cls is KVib:
        for probability, uniform in lots(learner.inclusion(there)):
            rho = play(probability, Scripted(uniform))
    else:
        subsets = list(itertools.combinations(range(4), 3)) if "candidates" in options else [tuple(range(4))]
        for subset in subsets:
            places = np.array(subset)
            for probability, uniform in lots(water_level(effective[places] * norms[there][places], cohort_size)):
                rho = play(probability / len(subsets), Scripted(uniform, there[places]))
    assert (rho < 1).any()
    np.testing.assert_allclose(expected[there], SHARE[there] / rho, rtol=1e-7)
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
    state = policy.state()
    json.dumps(state, allow_nan=False)
    assert policy.presence.failed.sum() > 0
    del state["presence"]
    assert state in ({}, {"gamma": options.get("gamma"), "feedback": [0.0] * 5})
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


@pytest.fixture(scope="module")
def data():
    return synthetic_data(alpha=1.0, beta=1.0, num_clients=8, num_samples=800, seed=1)


TIMES = {"compute_time": np.linspace(0.1, 2.0, 8), "upload_time": np.linspace(1.5, 0.2, 8)}


def run(data, name, **more):
    cls, options = POLICIES[name]
    return simulate(
        data, **TIMES, policy=cls, options=options,
        **{"cohort_size": 3, "local_steps": 10, "max_rounds": 15, "seed": 0} | more,
    )  # fmt: skip


@pytest.mark.parametrize("name", POLICIES)
def test_a_short_run_lowers_the_loss(data, name):
    losses = [record["loss"] for record in run(data, name).records]
    assert losses[-1] < 0.9 * losses[0]
    assert losses[-1] < np.log(10)


@pytest.mark.parametrize("name", POLICIES)
def test_a_run_goes_on_from_its_saved_state_as_if_nothing_had_happened(data, name):
    cls, options = POLICIES[name]

    def start():
        fleet = Fleet(data.data_share, 1.0, **TIMES)
        channel = WithAbsences(StaticChannel(fleet.compute_time, fleet.upload_time), present_share=0.8, seed=3)
        return assemble(
            data=data, trainer=SoftmaxTrainer(data), fleet=fleet, channel=channel, policy=cls, options=options, seed=0,
            stop=StopSettings(max_rounds=7), training=TrainingSettings(cohort_size=3, local_steps=5),
        )  # fmt: skip

    whole = list(start().rounds())
    for stop in (1, 3, 6):
        first, second = start(), start()
        rounds = first.rounds()
        begun = [next(rounds) for _ in range(stop)]
        values, arrays = first.state()
        second.restore(json.loads(json.dumps(values)), {key: array.copy() for key, array in arrays.items()})
        assert begun + list(second.rounds()) == whole


@pytest.mark.parametrize("name", ["ocs", "kvib"])
def test_a_round_may_be_empty(data, name):
    records = run(data, name, cohort_size=1, max_rounds=25).records
    empty = [r for r in records if not r["members"]]
    assert 0 < len(empty) < 25
    for record in empty:
        assert record["aggregate_norm"] == 0
        assert record["round_time"] == (TIMES["compute_time"].max() if name == "ocs" else 0)


def test_all_candidates_compute_and_only_members_upload(data):
    def waiting(name):  # until the slowest has computed; uploads that start together then take the sum of their times
        records = run(data, name, max_rounds=6).records
        return np.array([r["round_time"] - TIMES["upload_time"][r["members"]].sum() for r in records])

    np.testing.assert_allclose(waiting("ocs"), 2.0)
    some = waiting("ocs-candidates")
    assert some.min() < 1.9
    assert np.isclose(some[:, np.newaxis], TIMES["compute_time"]).any(axis=1).all()


@pytest.mark.parametrize("name", ["ocs", "kvib"])
def test_a_diverging_run_is_named_as_such(data, name):
    with pytest.raises(DivergedError, match="smaller step_size"):
        run(data, name, step_size=1e30, schedule="constant", evaluate_every=1000, max_rounds=100)
