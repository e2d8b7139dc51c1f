"""Tables: digits, intervals, bounds, and numbers that are those of the theory."""

from dataclasses import replace

import numpy as np
import pytest

from fedtempo import Fleet, round_time_bounds
from fedtempo.engine.settings import TrainingSettings
from fedtempo.experiments.comparison import Target, times_to
from fedtempo.experiments.paper import SETUPS
from fedtempo.experiments.tables import (
    amount,
    gains_table,
    interval,
    own_estimates,
    round_time_table,
    rounds_table,
)
from support.grids import cells, made_up


@pytest.mark.parametrize(
    ("rounds", "said"),
    [([10.0], "-"), ([10.0, 11.0], "-"), ([10.0, 10.0, 13.0], "6.7–15.3"), ([10.0, 10.0, 100.0], "up to 169.1")],
)
def test_intervals_take_three_seeds_and_are_not_cut_at_0(rounds, said):
    times = times_to([made_up("uniform", s, [1.0], taken) for s, taken in enumerate(rounds)], Target(loss=1.0))[
        "uniform"
    ]
    assert interval(times) == said


def test_tables_of_rounds_and_round_times_are_those_of_the_theory():
    uniform = [made_up("uniform", s, [1.2, 1.1, 1.0], 5.0) for s in range(2)]
    weighted = [made_up("weighted", s, [1.1, 1.0 - 0.1 * s], 5.0) for s in range(2)]
    setup = replace(SETUPS["setup2"], losses=(1.1, 1.0), rounds_uniform=(7, 8), rounds_weighted=(5, 6))
    table = cells(rounds_table(uniform + weighted, setup, 3))
    assert table[1] == ["uniform", "2.0", "3.0"]
    assert table[3] == ["weighted", "1.0", "2.0"]
    assert table[5] == ["uniform / weighted", "2.00", "1.50"]
    q = np.array([0.5, 0.5])
    fleet = Fleet([0.75, 0.25], [1.0, 2.0], [1.0, 2.0], [0.5, 0.25])
    lower, upper = round_time_bounds(fleet, q, cohort_size=3)
    paper, other = TrainingSettings(cohort_size=3), TrainingSettings(cohort_size=3, link="shared")
    (row,) = cells(round_time_table(uniform, {"uniform": [q, q]}, {"uniform": paper}))[1:]
    assert [row[1], row[4], row[5]] == [f"{lower:.2f}", "5.00", f"{upper:.2f}"]
    (row,) = cells(round_time_table(uniform, {"uniform": [q, q]}, {"uniform": other}))[1:]
    assert [row[1], row[2], row[5]] == ["-", "-", "-"]


TARGET = Target(loss=1.0)


def test_gains_are_bounded_by_both_rows_and_not_at_all_where_both_missed():
    reached, missed = [2.0, 1.0], [2.0, 1.9, 1.8]
    oracle, best = made_up("proposed-oracle", 0, reached, 4.0), made_up("proposed-oracle", 0, reached, 3.0)
    steps = cells(gains_table([made_up("uniform", 0, missed, 9.0), oracle], TARGET, [best], 2))[1:]
    assert [row[2][0] for row in steps] == ["1", "1", "1", "1", ">", "1"], "the same runs on other links are comparable"
    assert [row[3][0] for row in steps[4:]] == [">", ">"]
    late_oracle, late_best = (made_up("proposed-oracle", 0, missed, 4.0) for _ in range(2))
    steps = cells(gains_table([made_up("uniform", 0, missed, 9.0), late_oracle], TARGET, [late_best], 2))[1:]
    assert [row[2:] for row in steps[4:]] == [["-", "-"], ["-", "-"]]


def piloted(seed, value):
    run = made_up("proposed", seed, [1.0], 5.0)
    run.records[0]["note"] = {"beta_over_alpha": value, "fallback": value is None}
    return run


def test_rounds_that_some_runs_missed_are_bounds_and_nothing_is_said_of_nan():
    uniform = [made_up("uniform", 0, [1.2, 1.1, 1.0], 5.0), made_up("uniform", 1, [1.2] * 5, 5.0)]
    weighted = [made_up("weighted", s, [1.1, 1.0], 5.0) for s in range(2)]
    setup = replace(SETUPS["setup2"], losses=(1.1, 1.0), rounds_uniform=(7, 8), rounds_weighted=(5, 6))
    said = rounds_table(uniform + weighted, setup, 3)
    table = cells(said)
    assert table[1][1:] == ["> 4, 1 of 2 not reached", "> 4, 1 of 2 not reached"]
    assert table[3][1:] == ["1.0", "2.0"]
    assert table[5][1:] == ["> 3.50", "> 2.00"]
    assert "nan" not in said
    assert "longer pilots" not in said
    assert "since no loss was reached by all runs of both" in said
    outside = rounds_table([made_up("uniform", 0, [1.1, 1.0], 5.0), *weighted[:1]], setup, 3)
    assert "which needs a ratio of rounds strictly between" in outside
    assert "got 1, 1;" in outside


def test_what_each_run_found_in_its_own_pilots_is_told():
    assert own_estimates([made_up("proposed", 0, [1.0], 5.0)]) == ""
    runs = [piloted(s, value) for s, value in enumerate([None, 100.0, 1500.0, 300.0])]
    said = own_estimates(runs)
    assert said.startswith("From the pilots of each run: 1 of 4 runs of `proposed` found no estimate")
    assert said.endswith("the others found 100 to 1,500, median 300.")
    assert own_estimates(runs[:1]).endswith("fell back to the closed form, β/α = 0.")
    setup = replace(SETUPS["setup2"], losses=(1.0,), rounds_uniform=(7,), rounds_weighted=(5,))
    both = [made_up(policy, 0, [1.1, 1.0], 5.0) for policy in ("uniform", "weighted")]
    assert said in rounds_table(both + runs, setup, 3)


@pytest.mark.parametrize(
    ("value", "said"), [(0, "0"), (1234.5, "1,234"), (99.96, "100.0"), (0.01234, "0.0123"), (3.14159, "3.14")]
)
def test_seconds_have_three_digits(value, said):
    assert amount(value) == said
