"""Shadowheart SGD: the equilibrium time against its definition, and what members do by it."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import brentq

from fedtempo import Fleet, InputError
from fedtempo.policies.policy import PolicySetting, RoundPlan
from fedtempo.policies.shadowheart import Shadowheart, equilibrium_time, weights_of
from fedtempo.theory.bits import BITS, USUAL_NOISE
from support.rounds import TIMES, context, equal_fleet, make, report_of
from support.simulations import loop_of


def by_definition(h, tau, noise, ratio):
    """Return min_j max(max(h_j, τ_j), s_j), with each s_j from its own equation."""
    order = np.argsort(np.maximum(h, tau), kind="stable")
    candidates = []
    for j in range(1, len(h) + 1):
        some_h, some_tau = h[order[:j]], tau[order[:j]]

        def excess(s, a=some_h, b=some_tau):
            return float(np.sum(s / (2 * b * noise + 4 * b * a * noise * ratio / s + 2 * a * ratio))) - 1

        candidates.append(max(brentq(excess, 1e-12, 1e12, xtol=1e-14), max(some_h[-1], some_tau[-1])))
    return min(candidates)


@pytest.mark.parametrize("seed", range(60))
def test_the_equilibrium_time_is_that_of_its_definition(seed):
    rng = np.random.default_rng(seed)
    h, tau = rng.exponential(size=(2, rng.integers(1, 9))) * [[0.01], [rng.choice([0.1, 3.0])]]
    noise, ratio = rng.choice([0.0, 0.2, 1.5]), rng.choice([1e-3, 1.0, 50.0])
    assert equilibrium_time(h, tau, noise, ratio) == pytest.approx(by_definition(h, tau, noise, ratio), rel=1e-9)


@pytest.mark.parametrize("seed", range(10))
def test_weights_are_those_of_the_paper(seed):
    rng = np.random.default_rng(seed)
    b, m = rng.integers(1, 20, size=(2, 5))
    noise, ratio = 1.5, 7.0
    w = 1 / (b * noise + noise * ratio + m * ratio)
    np.testing.assert_allclose(weights_of(b, noise / m, ratio), w * m / np.sum(w * m * b))


def test_equal_clients_without_noise_compute_as_long_as_ever():
    plan = make(Shadowheart, equal_fleet(8, upload_time=np.full(8, 1e-3)), 4).plan(context())
    assert plan.local_steps.tolist() == [5] * 4
    assert plan.note["equilibrium_time"] == pytest.approx(1.0)
    np.testing.assert_allclose(plan.weights, 0.25)
    assert plan.upload_bits is None


SLOW = Fleet(
    np.full(4, 0.25), 1.0, compute_time=np.array([1.0, 0.1, 1.0, 1.0]), upload_time=np.array([0.05, 0.05, 9.0, 0.08])
)


def test_fast_clients_compute_more_and_slow_ones_take_no_part():
    plan = make(Shadowheart, SLOW, 4, most_local_steps=1000).plan(context())
    t = plan.note["equilibrium_time"]
    batch, vector = SLOW.compute_time / 5, 4 * SLOW.upload_time
    assert vector[2] > t
    assert plan.members.tolist() == [0, 1, 3]
    np.testing.assert_array_equal(plan.local_steps, np.floor(t / batch[plan.members] * (1 + 1e-9)))
    assert plan.local_steps[1] > 5
    # Every path is as long as E steps, and the gradients of all batches of one client count alike.
    np.testing.assert_allclose(plan.step_size * plan.local_steps, 0.1 * 5)
    assert plan.weights.sum() == pytest.approx(1)
    assert make(Shadowheart, SLOW, 4, most_local_steps=2).plan(context()).local_steps.max() == 2
    assert make(Shadowheart, SLOW, 4, noise_ratio=1e-3).plan(context()).note["equilibrium_time"] < t


def test_with_auto_uploads_have_as_many_bits_as_fit_into_the_equilibrium_time():
    shares = np.array(BITS) / 32
    fleet = replace(SLOW, upload_time=np.array([0.02, 0.2, 9.0, 0.5]))
    setting = PolicySetting(fleet=fleet, cohort_size=4, upload_bits="auto", upload_shares=tuple(shares))
    policy = Shadowheart(setting)
    plan = policy.plan(context())
    t, whole = plan.note["equilibrium_time"], 4 * fleet.upload_time
    expected = by_definition(SLOW.compute_time / 5, whole * shares[0], USUAL_NOISE[0], 10.0)
    assert t == pytest.approx(expected)
    vectors = np.floor(t / (whole * shares[0]) * (1 + 1e-9))
    assert plan.members.tolist() == np.flatnonzero(vectors >= 1).tolist()
    size = [max(k for k in range(len(BITS)) if shares[k] <= m * shares[0] + 1e-12) for m in vectors[plan.members]]
    assert plan.upload_bits.tolist() == np.array(BITS)[size].tolist()
    assert len(set(size)) > 1, "a case worth playing"
    values = weights_of(plan.local_steps, np.array(USUAL_NOISE)[size], 10.0)
    np.testing.assert_allclose(plan.weights, plan.local_steps * values)
    # Reported noise takes the place of what was assumed.
    heard = RoundPlan(members=plan.members, weights=plan.weights)
    policy.observe(replace(report_of(heard, 0, 1.0), noise=np.tile(2 * np.array(USUAL_NOISE), (len(plan.members), 1))))
    np.testing.assert_allclose(policy.state.noise, 1.1 * np.array(USUAL_NOISE))


def test_bits_travel_and_the_loss_falls(small_data):
    loop = loop_of(small_data, TIMES, Shadowheart, rounds=30, schedule="constant", upload_bits="auto", link="shared")
    records = list(loop.rounds())
    assert {bits for record in records for bits in record.upload_bits} <= set(BITS)
    assert records[-1].loss < 0.9 * records[0].loss


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"noise_ratio": 0.0}, "noise_ratio must be positive"),
        ({"most_local_steps": 0.5}, "most_local_steps must be a whole number"),
        ({"noise": 1.0}, "did you mean 'noise_ratio'"),
    ],
)
def test_bad_options_are_refused(options, said):
    with pytest.raises(InputError, match=said):
        make(Shadowheart, equal_fleet(4), 2, **options)
