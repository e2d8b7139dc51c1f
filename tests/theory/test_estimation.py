"""What pilots tell, and what they cannot."""

import numpy as np
import pytest

from fedtempo import (
    Fleet,
    InputError,
    estimate_beta_over_alpha,
    estimate_gradient_bounds,
    sampling_variance,
    uniform_sampling,
)
from support.fleets import random_fleet


def rounds_of(fleet, ratio, size):
    """Return the rounds, up to a factor, that the bound gives uniform and weighted sampling."""
    return (
        sampling_variance(fleet, uniform_sampling(fleet), cohort_size=size) + ratio,
        sampling_variance(fleet, fleet.data_share, cohort_size=size) + ratio,
    )


@pytest.mark.parametrize("ratio", [1e-3, 1.0, 1e3])
def test_the_ratio_that_made_the_rounds_is_found_again(ratio):
    fleet = random_fleet(np.random.default_rng(50), 30)
    uniform, weighted = rounds_of(fleet, ratio, 4)
    factors = np.array([10.0, 20.0, 30.0])
    found = estimate_beta_over_alpha(fleet, factors * uniform, factors * weighted, cohort_size=4)
    assert found.value == pytest.approx(ratio, rel=1e-6)
    assert found.usable.all()
    assert "mean of 3 of 3 losses" in str(found)


def test_ratios_outside_the_range_are_named_and_never_used():
    fleet = random_fleet(np.random.default_rng(51), 30)
    uniform, weighted = rounds_of(fleet, 1.0, 4)
    wrong = 3.0 if uniform < weighted else 1 / 3.0
    found = estimate_beta_over_alpha(fleet, [uniform, wrong * weighted, np.nan], [weighted] * 3, cohort_size=4)
    assert found.value == pytest.approx(1.0)
    np.testing.assert_array_equal(found.usable, [True, False, False])
    none = estimate_beta_over_alpha(fleet, [wrong, 1.0, np.inf], [1.0, 1.0, 1.0], cohort_size=4)
    assert none.value is None
    assert not none.usable.any()
    assert "does not exist" in str(none)
    assert "closed form" in str(none)


def test_both_limits_of_the_range_are_outside():
    fleet = random_fleet(np.random.default_rng(52), 12)
    found = estimate_beta_over_alpha(fleet, [1.0], [1.0], cohort_size=2)
    for limit in (found.lowest_ratio, found.highest_ratio):
        assert estimate_beta_over_alpha(fleet, [limit], [1.0], cohort_size=2).value is None


def test_a_fleet_of_equals_has_no_range():
    equal = Fleet([0.25] * 4, 1.0, 1.0, 1.0)
    found = estimate_beta_over_alpha(equal, [10, 12], [11, 10], cohort_size=2)
    assert found.value is None
    assert found.lowest_ratio == found.highest_ratio == 1.0


def test_gradient_bounds_are_the_largest_norms_and_gaps_take_the_median():
    found = estimate_gradient_bounds([0, 2, 0, 3, 3], [1.0, 5.0, 3.0, 0.5, 0.25], num_clients=5)
    np.testing.assert_allclose(found.gradient_bound, [3.0, 3.0, 5.0, 0.5, 3.0])
    np.testing.assert_array_equal(found.measured, [True, False, True, True, False])


@pytest.mark.parametrize(
    ("clients", "norms", "said"),
    [
        ([0], [np.nan], "diverged"),
        ([0], [-1.0], "zero or positive"),
        ([9], [1.0], "numbers from 0 to 1"),
        ([0, 1], [1.0], "one entry for each"),
        ([], [], "at least one"),
        ([0], [0.0], "at least one"),
        ([0.9], [1.0], "whole numbers"),
    ],
)
def test_bad_norms_are_refused(clients, norms, said):
    with pytest.raises(InputError, match=said):
        estimate_gradient_bounds(clients, norms, num_clients=2)


@pytest.mark.parametrize(("uniform", "weighted"), [([1, 2], [1]), ([], []), ([0], [1])])
def test_bad_rounds_are_refused(small_fleet, uniform, weighted):
    with pytest.raises(InputError, match="rounds must be"):
        estimate_beta_over_alpha(small_fleet, uniform, weighted, cohort_size=2)
