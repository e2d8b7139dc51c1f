"""Aggregation: weighted updates, momentum and the memory of directions."""

import numpy as np
import pytest

from fedtempo.learning.aggregation import Aggregator
from support.rounds import carry_over


def test_a_memory_that_does_not_hold_costs_a_network_nothing():
    """Directions that have nothing to do with those before: steps are those of a mean, however old the memory is."""
    rng, share = np.random.default_rng(0), np.full(6, 1 / 6)
    kept, without = Aggregator(share, memory=True), Aggregator(share)
    model = np.zeros(5, dtype=np.float32)
    for _ in range(10):
        members = np.sort(rng.choice(6, 3, replace=False))
        updates, weights = rng.standard_normal((3, 5)).astype(np.float32), np.full(3, 1 / 3)
        step = kept.apply(model, members, updates, weights, 0.1, follow_memory=False)
        expected = without.apply(model, members, updates, weights, 0.1)
        np.testing.assert_allclose(step.model, expected.model, rtol=1e-5)
        assert step.direction_norm == pytest.approx(expected.direction_norm)
        model = step.model
    assert set(kept.remembered) == set(range(6)), "it is kept up to date all the same"


def test_aggregation_adds_weighted_updates_and_momentum():
    updates = np.array([[1.0, 0.0], [0.0, 2.0]], dtype=np.float32)
    aggregator = Aggregator(np.array([0.5, 0.5]), momentum=0.5)
    members, weights = np.array([0, 1]), np.array([0.25, 0.5])
    model, norm, *_ = aggregator.apply(np.zeros(2, dtype=np.float32), members, updates, weights, 0.1)
    np.testing.assert_allclose(model, [0.25, 1.0])
    assert norm == pytest.approx(np.hypot(0.25, 1.0))
    model, *_ = aggregator.apply(model, members[:0], updates[:0], weights[:0], 0.1)  # nobody came: momentum goes on
    np.testing.assert_allclose(model, [0.375, 1.5])


@pytest.mark.parametrize("settings", [{"momentum": 0.5}, {"memory": True}])
def test_old_directions_keep_in_step_with_a_smaller_step_size(settings):
    """Where every step size and so every update is 1/10, the server's step is 1/10 too."""
    members, weights = np.array([0, 1]), np.array([0.5, 0.5])
    first, second = np.array([[1.0, 0.0], [0.0, 2.0]], np.float32), np.array([[2.0, 1.0], [1.0, 0.0]], np.float32)
    steps = []
    for scale in (1.0, 0.1):
        aggregator, model = Aggregator(np.array([0.5, 0.5]), **settings), np.zeros(2, dtype=np.float32)
        aggregator.apply(model, members, first, weights, 1.0)
        step, *_ = aggregator.apply(model, members[:1], np.float32(scale) * second[:1], weights[:1], scale)
        steps.append(step)
    np.testing.assert_allclose(steps[1], 0.1 * steps[0], rtol=1e-6)


@pytest.mark.parametrize("settings", [{}, {"momentum": 0.5}, {"memory": True}])
def test_an_update_that_was_begun_with_a_larger_step_size_tells_the_same_direction(settings):
    members, weights, share = np.array([0, 1]), np.array([0.5, 0.5]), np.array([0.5, 0.5])
    updates, start = np.array([[1.0, 0.0], [0.0, 2.0]], np.float32), np.zeros(2, dtype=np.float32)
    usual = Aggregator(share, **settings).apply(start, members, updates, weights, 0.1)
    then = np.array([0.1, 0.4])
    late = Aggregator(share, **settings).apply(start, members, updates * [[1], [4]], weights, 0.1, then)
    np.testing.assert_allclose(late.model, usual.model, rtol=1e-6)
    np.testing.assert_allclose(late.residual_norm, usual.residual_norm, rtol=1e-6)


@pytest.mark.parametrize("bits", [32, 8])
def test_a_client_that_is_forgotten_might_never_have_told(bits):
    rng, share = np.random.default_rng(8), np.array([0.2, 0.3, 0.5])
    old, new = rng.normal(size=(2, 3, 300)).astype(np.float32)
    model, steps = np.zeros(300, dtype=np.float32), []
    for tell, forget in (((0, 1, 2), [1]), ((0, 2), [1]), ((0, 2), [])):
        server = Aggregator(share, memory=True, bits=bits)
        for i in tell:
            server.apply(model, np.array([i]), old[i : i + 1], np.zeros(1), 1.0)
        server.forget(np.array(forget, dtype=np.int64))
        assert sorted(server.remembered) == [0, 2]
        steps.append(server.apply(model, np.array([1]), new[1:2], np.array([0.4]), 1.0))
    for one in steps[:2]:
        np.testing.assert_allclose(one.model, steps[2].model, atol=1e-5)
        np.testing.assert_allclose(one.residual_norm, steps[2].residual_norm, rtol=1e-5)


def test_a_server_that_has_forgotten_everyone_starts_anew():
    """Sums over nobody are 0 but for rounding, and their ratio is no mean."""
    rng, share = np.random.default_rng(9), np.array([0.3, 0.1, 0.6])
    updates, model = rng.normal(size=(3, 50)).astype(np.float32), np.zeros(50, dtype=np.float32)
    server = Aggregator(share, memory=True)
    for i in range(3):
        server.apply(model, np.array([i]), updates[i : i + 1], np.zeros(1), 1.0)
    server.forget(np.array([1, 0, 2]))
    again, fresh = (
        one.apply(model, np.array([1]), updates[1:2], np.array([0.4]), 1.0)
        for one in (server, Aggregator(share, memory=True))
    )
    np.testing.assert_array_equal(again.model, fresh.model)


def test_memory_stays_unbiased_and_takes_the_noise_away():
    rng = np.random.default_rng(6)
    share, updates = np.array([0.2, 0.3, 0.5]), rng.normal(size=(3, 4)).astype(np.float32)
    start = np.zeros(4, dtype=np.float32)
    full = share @ updates
    for old_noise in (1.0, 0.0):
        old = updates + old_noise * rng.normal(size=(3, 4)).astype(np.float32)
        expected = np.zeros(4)
        for client in range(3):  # K = 1 with q = 1/3
            aggregator = Aggregator(share, memory=True)
            for i in range(3):
                aggregator.apply(start, np.array([i]), old[i : i + 1], np.zeros(1), 1.0)
            step, *_ = aggregator.apply(
                start, np.array([client]), updates[client : client + 1], np.array([share[client] * 3]), 1.0
            )
            expected += step / 3
            if old_noise == 0:
                np.testing.assert_allclose(step, full, atol=1e-6)
        np.testing.assert_allclose(expected, full, atol=1e-5)


@pytest.mark.parametrize(
    "settings", [{"momentum": 0.7}, {"memory": True}, {"momentum": 0.3, "memory": True, "bits": 8}]
)
def test_the_aggregator_goes_on_from_its_state(settings):
    rng = np.random.default_rng(7)
    share = np.full(5, 0.2)
    one = Aggregator(share, **settings)
    model = np.zeros(3, dtype=np.float32)
    for r in range(6):
        members = np.sort(rng.choice(5, 2, replace=False))
        updates, weights = rng.normal(size=(2, 3)).astype(np.float32), rng.random(2)
        if r == 3:
            other = carry_over(one, Aggregator(share, **settings))
            again = model.copy()
        model, *_ = one.apply(model, members, updates, weights, 0.3)
        if r >= 3:
            again, *_ = other.apply(again, members, updates, weights, 0.3)
    np.testing.assert_array_equal(model, again)


def test_a_rounded_memory_leaves_the_mean_of_what_is_remembered_exact():
    """However often clients tell, Σ p y is that of the rounded directions: errors do not add up."""
    rng, share = np.random.default_rng(0), np.array([0.2, 0.3, 0.5])
    server, model = Aggregator(share, memory=True, bits=8), np.zeros(600, dtype=np.float32)
    for _ in range(200):
        members = np.sort(rng.choice(3, 2, replace=False))
        updates = rng.standard_normal((2, 600)).astype(np.float32)
        model = server.apply(model, members, updates, np.full(2, 0.5), 0.1).model
    expected = sum(p * server.remembered.direction(i) for i, p in enumerate(share))
    np.testing.assert_allclose(server.state.total_remembered, expected, atol=1e-4)
