"""Draws and weights: Lemma 1 over every cohort, and draws that follow q."""

import itertools

import numpy as np
import pytest

from fedtempo import (
    DrawTable,
    Fleet,
    InputError,
    aggregation_weights,
    draw_cohort,
    optimal_sampling,
    statistical_sampling,
    uniform_sampling,
    weighted_sampling,
)

SCHEMES = {
    "uniform": uniform_sampling,
    "weighted": weighted_sampling,
    "statistical": statistical_sampling,
    "optimal": lambda fleet: optimal_sampling(fleet, cohort_size=3, beta_over_alpha=0.7),
    "floored": lambda fleet: optimal_sampling(fleet, cohort_size=3, beta_over_alpha=50.0, floor=0.2),
}


@pytest.mark.parametrize("cohort_size", [1, 2, 3])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_expected_weight_over_every_cohort_is_the_data_share(small_fleet, scheme, cohort_size):
    q = SCHEMES[scheme](small_fleet)
    cohorts = np.array(list(itertools.product(range(len(small_fleet)), repeat=cohort_size)))
    weights = aggregation_weights(cohorts, q, small_fleet.data_share)
    expected = np.zeros(len(small_fleet))
    np.add.at(expected, cohorts, weights * q[cohorts].prod(axis=1, keepdims=True))
    np.testing.assert_allclose(expected, small_fleet.data_share, rtol=1e-12)


def test_baselines_are_what_they_say(small_fleet):
    np.testing.assert_allclose(uniform_sampling(small_fleet), 0.25)
    np.testing.assert_allclose(weighted_sampling(small_fleet), small_fleet.data_share)
    importance = small_fleet.data_share * small_fleet.gradient_bound
    np.testing.assert_allclose(statistical_sampling(small_fleet), importance / importance.sum())


def test_draws_follow_q():
    q = np.array([0.5, 0.3, 0.15, 0.05])
    drawn = draw_cohort(q, 10, np.random.default_rng(5), cohorts=40_000)
    assert drawn.shape == (40_000, 10)
    share = np.bincount(drawn.ravel(), minlength=4) / drawn.size
    np.testing.assert_allclose(share, q, atol=4 * np.sqrt(0.25 / drawn.size))


def test_the_same_stream_gives_the_same_cohort_and_another_stream_another():
    q = np.full(1000, 1e-3)
    table = DrawTable.of(q)
    first, again, prepared = (draw_cohort(source, 20, np.random.default_rng(7)) for source in (q, q, table))
    np.testing.assert_array_equal(first, again)
    np.testing.assert_array_equal(first, prepared)
    assert np.any(first != draw_cohort(q, 20, np.random.default_rng(8)))


def test_one_client_is_always_drawn():
    fleet = Fleet([1.0], [1.0], [0.0], [1.0])
    drawn = draw_cohort(uniform_sampling(fleet), 3, np.random.default_rng(0))
    np.testing.assert_array_equal(drawn, [0, 0, 0])
    np.testing.assert_allclose(aggregation_weights(drawn, [1.0], [1.0]).sum(), 1.0)


def test_a_draw_never_leaves_the_fleet():
    class Edge(np.random.Generator):
        def random(self, shape):
            return np.full(shape, np.nextafter(1.0, 0.0))

    q = np.array([0.7, 0.3 - 1e-18, 1e-18])
    assert draw_cohort(q, 2, Edge(np.random.PCG64())).max() < 3


@pytest.mark.parametrize(
    ("q", "size", "said"),
    [
        ([0.5, 0.5], 0, "cohort_size"),
        ([0.5, 0.5], 1.5, "cohort_size"),
        ([0.5, 0.4], 1, "sum to 1"),
        ([1.0, 0.0], 1, "positive"),
        ([1.5, -0.5], 1, "positive"),
        ([np.nan, 1.0], 1, "positive"),
        ([], 1, "one entry"),
    ],
)
def test_bad_draws_are_refused(q, size, said):
    with pytest.raises(InputError, match=said):
        draw_cohort(q, size, np.random.default_rng(0))


def test_weights_need_positive_chances():
    with pytest.raises(InputError, match="cannot have been drawn"):
        aggregation_weights([1], [1.0, 0.0], [0.5, 0.5])
    with pytest.raises(InputError, match="at least one"):
        aggregation_weights([], [1.0], [1.0])
    with pytest.raises(InputError, match="numbers from 0 to 0"):
        aggregation_weights([-1], [1.0], [1.0])
    with pytest.raises(InputError, match="whole numbers"):
        aggregation_weights([True], [1.0], [1.0])
    with pytest.raises(InputError, match="same length"):
        aggregation_weights([0], [1.0], [0.5, 0.5])
