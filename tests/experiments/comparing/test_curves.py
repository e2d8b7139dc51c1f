"""Curves: what is averaged, by hand, and how much of it axes show."""

import numpy as np
import pytest

from fedtempo.experiments.comparing.curves import Average, Curve, average, curve, log_axes, panel, shown_range, thinned
from fedtempo.experiments.comparing.statistics import Target
from support.grids import made_up


def test_a_mean_is_one_of_step_functions_from_the_last_start_on():
    slow = Curve(np.array([2.0, 4.0]), np.array([3.0, 1.0]), reached=True)
    fast = Curve(np.array([1.0, 2.5, 5.0]), np.array([5.0, 4.0, 0.0]), reached=True)
    found = average([slow, fast])
    np.testing.assert_array_equal(found.x, [2.0, 2.5, 4.0, 5.0])
    np.testing.assert_array_equal(found.mean, [4.0, 3.5, 2.5, 0.5])
    lowest, highest = np.array([3.0, 3.0, 1.0, 0.0]), np.array([5.0, 4.0, 4.0, 1.0])
    np.testing.assert_allclose(found.low, 0.9 * lowest + 0.1 * highest)
    np.testing.assert_allclose(found.high, 0.1 * lowest + 0.9 * highest)


def test_a_mean_ends_with_the_first_curve_that_ends_short_of_the_target():
    short = Curve(np.array([1.0, 2.0]), np.array([3.0, 2.0]), reached=False)
    longer = Curve(np.array([1.0, 2.0, 3.0]), np.array([3.0, 2.5, 2.0]), reached=False)
    done = Curve(np.array([1.0]), np.array([1.0]), reached=True)
    found = average([longer, short, done])
    np.testing.assert_array_equal(found.x, [1.0, 2.0])
    np.testing.assert_allclose(found.mean, [7 / 3, 5.5 / 3])
    late = Curve(np.array([9.0]), np.array([1.0]), reached=True)
    assert average([short, late]).x.size == 0, "no time at which both have a value that counts"
    assert average([]).x.size == 0


def test_a_curve_leaves_out_rounds_without_evaluation_and_knows_whether_it_got_there():
    run = made_up("p", 0, [3.0, np.nan, 2.0, np.nan], 0.5)
    by_time = curve(run, "time", "loss", Target(loss=2.0))
    np.testing.assert_array_equal(by_time.x, [0.5, 1.5])
    np.testing.assert_array_equal(by_time.y, [3.0, 2.0])
    assert by_time.reached
    by_round = curve(run, "rounds", "accuracy", Target(loss=1.9))
    np.testing.assert_array_equal(by_round.x, [1, 3])
    np.testing.assert_allclose(by_round.y, [0, 100 / 3])
    assert not by_round.reached


def test_thinning_keeps_ends_and_extremes():
    rng = np.random.default_rng(0)
    values = np.exp(-np.arange(50_000) / 9000) + rng.normal(size=50_000) * 1e-3
    values[31_417], values[7] = 9.0, -9.0
    kept = thinned(values)
    assert kept.size <= 800
    assert kept[0] == 0
    assert kept[-1] == 49_999
    assert {7, 31_417} <= set(kept.tolist())
    assert np.all(np.diff(kept) > 0)
    assert np.diff(kept).max() <= 2 * 50_000 / 190, "no stretch is left out"
    np.testing.assert_array_equal(thinned(values[:800]), np.arange(800))


def test_axes_are_logarithmic_where_curves_end_far_apart():
    def ends_at(time, loss=1.0):
        return Average(np.array([1.0, time]), *(np.array([2.0, loss]) for _ in range(3)))

    assert log_axes([ends_at(100.0), ends_at(900.0)], "loss") == (False, False)
    assert log_axes([ends_at(100.0), ends_at(1100.0)], "loss") == (True, False)
    assert log_axes([ends_at(100.0, loss=0.1)], "loss") == (False, True)
    assert log_axes([ends_at(100.0, loss=0.1)], "accuracy") == (False, False)
    assert log_axes([average([])], "loss") == (False, False)


def test_axes_show_what_lies_near_the_target_and_where_curves_end():
    def falls(*values):
        return Average(np.arange(1.0, len(values) + 1), *(np.array(values) for _ in range(3)))

    near = falls(8.0, 2.0, 1.0, 0.7)
    assert shown_range([near], "loss", 0.7) == pytest.approx((0.63, 1.47))
    assert shown_range([near, falls(8.0, 3.0)], "loss", 0.7) == pytest.approx((0.63, 3.15)), "it missed, but is seen"
    assert shown_range([near, falls(8.0, 1e9)], "loss", 0.7) == pytest.approx((0.63, 1.47)), "it has diverged"
    assert shown_range([near], "loss", None) == pytest.approx((0.63, 1.47)), "the best end stands for a target"
    assert shown_range([falls(1.2, 0.9)], "loss", 0.7) is None, "all can be seen"
    assert shown_range([falls(10.0, 60.0, 78.0)], "accuracy", 80.0) == pytest.approx((40.0, 81.6))
    assert shown_range([falls(50.0, 78.0)], "accuracy", 80.0) is None
    assert shown_range([average([])], "loss", 0.7) is None


def test_a_panel_has_the_curves_and_averages_of_each_group_and_a_span_only_where_its_axis_is_linear():
    groups = {"a": [made_up("a", s, [8.0, 2.0, 0.7], 1.0) for s in (0, 1)], "b": [made_up("b", 0, [8.0, 1.0], 1.0)]}
    shown = panel(groups, Target(loss=0.7), "rounds", "loss")
    assert [len(curves) for curves in shown.curves.values()] == [2, 1]
    np.testing.assert_array_equal(shown.averages["a"].mean, [8.0, 2.0, 0.7])
    assert (shown.level, shown.log_x, shown.log_y) == (0.7, False, False)
    assert shown.span == pytest.approx((0.63, 1.47))
    other = panel(groups, Target(loss=0.7), "time", "accuracy")
    assert (other.level, other.log_y) == (None, False)
