"""Adam, Yogi, AMSGrad and FedExP against the formulas of their papers, in plain double precision."""

from typing import get_args

import numpy as np
import pytest

from fedtempo.learning.aggregation import Aggregator
from fedtempo.learning.server_optimisers import SERVER_OPTIMISERS, extrapolation
from fedtempo.policies import policy

RNG = np.random.default_rng(3)
SHARE = np.full(3, 1 / 3)
UPDATES = RNG.standard_normal((5, 3, 7)).astype(np.float32) * 0.01
EVERYONE = np.arange(3)


def models_of(aggregator, weights=SHARE, step_size=0.1):
    model, found = np.zeros(7, dtype=np.float32), []
    for updates in UPDATES:
        model = aggregator.apply(model, EVERYONE, updates, weights, step_size).model
        found.append(model)
    return np.array(found)


@pytest.mark.parametrize("kind", ["adam", "yogi"])
@pytest.mark.parametrize(("momentum", "beta"), [(0.0, 0.9), (0.5, 0.5)])
@pytest.mark.parametrize(("step", "size"), [(0.0, 0.01), (0.03, 0.03)])
def test_adam_and_yogi_are_those_of_fedopt(kind, momentum, beta, step, size):
    w, m, v = np.zeros(7), np.zeros(7), np.full(7, 1e-6)
    expected = []
    for updates in UPDATES.astype(np.float64):
        delta = updates.mean(axis=0)
        m = beta * m + (1 - beta) * delta
        v = 0.99 * v + 0.01 * delta**2 if kind == "adam" else v - 0.01 * delta**2 * np.sign(v - delta**2)
        w = w + size * m / (np.sqrt(v) + 1e-3)
        expected.append(w)
    found = models_of(Aggregator(SHARE, optimiser=kind, momentum=momentum, step_size=step))
    np.testing.assert_allclose(found, expected, rtol=2e-4)


def test_amsgrad_is_that_of_fadas():
    w, m, v, largest = np.zeros(7), np.zeros(7), np.zeros(7), np.zeros(7)
    expected = []
    for updates in UPDATES.astype(np.float64):
        delta = updates.mean(axis=0)
        m, v = 0.9 * m + 0.1 * delta, 0.99 * v + 0.01 * delta**2
        largest = np.maximum(largest, v)
        w = w + 0.01 * m / (np.sqrt(largest) + 1e-8)
        expected.append(w)
    np.testing.assert_allclose(models_of(Aggregator(SHARE, optimiser="amsgrad")), expected, rtol=2e-4)


def test_a_large_update_shortens_all_later_steps_of_amsgrad_and_not_those_of_adam():
    later = {}
    for kind in ("adam", "amsgrad"):
        server, model = Aggregator(SHARE, optimiser=kind), np.zeros(7, dtype=np.float32)
        for n in range(2000):
            updates = np.full((3, 7), 1.0 if n == 0 else 1e-3, np.float32)
            before, model = model, server.apply(model, EVERYONE, updates, SHARE, 0.1).model
        later[kind] = float((model - before).mean())
    assert later["adam"] == pytest.approx(0.01 * 1e-3 / 2e-3, rel=0.05), "forgotten"
    assert later["amsgrad"] == pytest.approx(0.01 * 1e-3 / 0.1, rel=0.05), "not forgotten"


@pytest.mark.parametrize("kind", ["sgd", "fedexp", "adam", "yogi", "amsgrad"])
def test_the_lookahead_is_a_step_in_which_nothing_new_comes(kind):
    """But for the mean square of updates, which such a step would lower."""
    server = Aggregator(SHARE, optimiser=kind, momentum=0.5, step_size=0.3)
    model = np.zeros(7, dtype=np.float32)
    np.testing.assert_array_equal(server.ahead(model, 0.1), model)
    for updates in UPDATES:
        model = server.apply(model, EVERYONE, updates, SHARE, 0.1).model
    ahead = server.ahead(model, 0.1)
    after = server.apply(model, EVERYONE, np.zeros((3, 7), np.float32), SHARE, 0.1).model
    assert np.abs(ahead - model).max() > 1e-4
    np.testing.assert_allclose(ahead - model, after - model, rtol=0.02, atol=1e-6)


@pytest.mark.parametrize("kind", ["sgd", "adam"])
def test_a_factor_lengthens_one_step_alone(kind):
    models = {}
    for factor in (1.0, 0.25):
        server, model = Aggregator(SHARE, optimiser=kind), np.zeros(7, dtype=np.float32)
        first = server.apply(model, EVERYONE, UPDATES[0], SHARE, 0.1, factor=factor).model
        models[factor] = first, server.apply(model, EVERYONE, UPDATES[1], SHARE, 0.1).model
    np.testing.assert_allclose(models[0.25][0], 0.25 * models[1.0][0], rtol=1e-5)
    np.testing.assert_array_equal(models[0.25][1], models[1.0][1])


def test_policies_may_name_every_optimiser_that_there_is():
    assert get_args(policy.ServerOptimiser) == SERVER_OPTIMISERS


def test_fedexp_is_that_of_its_paper_with_equal_weights():
    w, expected = np.zeros(7), []
    for updates in UPDATES.astype(np.float64):
        mean = updates.mean(axis=0)
        w = w + max(1.0, (updates**2).sum() / (2 * 3 * (mean**2).sum())) * mean
        expected.append(w)
    np.testing.assert_allclose(models_of(Aggregator(SHARE, optimiser="fedexp")), expected, rtol=1e-4)


def test_fedexp_is_a_plain_step_where_updates_agree_and_longer_where_they_cancel():
    alike, opposed = np.ones((4, 3), np.float32), np.array([[1, 0], [-0.9, 0]], np.float32)
    assert extrapolation(alike, np.full(4, 0.25)) == 1
    assert extrapolation(alike[:1], np.array([7.0])) == 1, "one update alone says nothing"
    assert extrapolation(opposed, np.array([0.5, 0.5])) == pytest.approx((1 + 0.81) / 2 / (2 * 0.05**2))
    assert extrapolation(opposed, np.array([3.0, 3.0])) == pytest.approx(extrapolation(opposed, np.array([0.5, 0.5])))
    for nothing in (np.zeros((2, 3), np.float32), np.empty((0, 3), np.float32)):
        assert extrapolation(nothing, np.zeros(len(nothing))) == 1


def test_the_servers_own_step_size_is_a_factor():
    plain, half = models_of(Aggregator(SHARE)), models_of(Aggregator(SHARE, step_size=0.5))
    np.testing.assert_allclose(half, 0.5 * plain, rtol=1e-5)
    np.testing.assert_array_equal(models_of(Aggregator(SHARE, step_size=1.0)), plain)
