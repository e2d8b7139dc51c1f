"""Cells of tables: the text has the bound or the interval, the value is a number or nothing of the kind."""

from dataclasses import replace

import numpy as np
import pytest

from fedtempo.experiments.comparing.cells import factor, interval, mean_seconds, pilots, rounds, seconds
from fedtempo.experiments.comparing.statistics import Target, times_to
from fedtempo.tables.table import Cell
from support.grids import made_up


def times_of(*taken):
    runs = [made_up("uniform", seed, [1.0], time) for seed, time in enumerate(taken)]
    return times_to(runs, Target(loss=1.0))["uniform"]


@pytest.mark.parametrize(
    ("taken", "text"),
    [([10.0], "-"), ([10.0, 11.0], "-"), ([10.0, 10.0, 13.0], "6.7–15.3"), ([10.0, 10.0, 100.0], "up to 169.1")],
)
def test_intervals_take_three_seeds_and_are_not_cut_at_0(taken, text):
    assert interval(times_of(*taken)).text == text


def test_a_mean_is_a_number_and_a_bound_is_text():
    times = times_of(10.0, 14.0)
    assert seconds(times) == mean_seconds(times) == Cell("12.0 ± 2.8", 12.0)
    assert rounds(times) == Cell("1", 1.0)
    missed = replace(times, reached=np.array([True, False]))
    assert mean_seconds(missed) == Cell("> 12.0", "> 12.0")
    assert seconds(missed) == Cell("> 12.0, 1 of 2 not reached", "> 12.0, 1 of 2 not reached")
    assert rounds(missed) == Cell("> 1", "> 1")


def test_pilots_are_counted_none_or_taken_for_granted():
    times = times_of(10.0)
    assert pilots(times) == Cell("none", 0.0)
    assert pilots(replace(times, pilots=np.array([5.0]))) == Cell("5.00", 5.0)
    assert pilots(replace(times, oracle=True)).text == "taken for granted"


def test_a_factor_has_an_interval_where_all_reached_the_target():
    slow, fast = times_of(20.0, 24.0, 22.0), times_of(10.0, 14.0, 12.0)
    found = factor(slow, fast)
    assert found.value == slow.mean / fast.mean
    assert found.cell.text == f"{found.text} ({found.interval})"
    assert found.cell.value == found.value
    late = factor(replace(slow, reached=np.array([False, True, True])), fast)
    assert (late.bound, late.interval, late.cell.value) == (True, "", "> 1.83 ×")
    assert factor(times_of(20.0), times_of(10.0)).cell == Cell("2.00 ×", 2.0), "one seed has no interval"
    assert factor(times_of(20.0, 24.0), times_of(10.0, 14.0)).interval == "", "nor have two"
