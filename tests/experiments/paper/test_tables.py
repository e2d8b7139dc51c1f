"""Tables of a reproduction: bounds are bounds, and numbers those of the theory."""

from dataclasses import replace

import msgspec
import numpy as np

from fedtempo import Fleet, round_time_bounds
from fedtempo.engine.settings import TrainingSettings
from fedtempo.experiments.comparing.statistics import Target
from fedtempo.experiments.paper.tables import gains_table, own_estimates, round_time_table, rounds_table
from fedtempo.experiments.paper_numbers import SETUPS
from support.grids import made_up

TARGET = Target(loss=1.0)
SETUP = replace(SETUPS["setup2"], losses=(1.1, 1.0), rounds_uniform=(7, 8), rounds_weighted=(5, 6))


def texts(table):
    return [[cell.text for cell in row] for row in table.rows]


def piloted(seed, value):
    run = made_up("proposed", seed, [1.0], 5.0)
    note = {"beta_over_alpha": value, "fallback": value is None}
    return replace(run, records=[msgspec.structs.replace(run.records[0], note=note)])


def test_tables_of_rounds_and_round_times_are_those_of_the_theory():
    uniform = [made_up("uniform", s, [1.2, 1.1, 1.0], 5.0) for s in range(2)]
    weighted = [made_up("weighted", s, [1.1, 1.0 - 0.1 * s], 5.0) for s in range(2)]
    table = texts(rounds_table(uniform + weighted, SETUP, 3))
    assert table[0] == ["uniform", "2.0", "3.0"]
    assert table[2] == ["weighted", "1.0", "2.0"]
    assert table[4] == ["uniform / weighted", "2.00", "1.50"]
    q = np.array([0.5, 0.5])
    fleet = Fleet([0.75, 0.25], [1.0, 2.0], [1.0, 2.0], [0.5, 0.25])
    lower, upper = round_time_bounds(fleet, q, cohort_size=3)
    paper, other = TrainingSettings(cohort_size=3), TrainingSettings(cohort_size=3, link="shared")
    (row,) = texts(round_time_table(uniform, {"uniform": [q, q]}, {"uniform": paper}))
    assert [row[1], row[4], row[5]] == [f"{lower:.2f}", "5.00", f"{upper:.2f}"]
    (row,) = texts(round_time_table(uniform, {"uniform": [q, q]}, {"uniform": other}))
    assert [row[1], row[2], row[5]] == ["-", "-", "-"]


def test_gains_are_bounded_by_both_rows_and_not_at_all_where_both_missed():
    reached, missed = [2.0, 1.0], [2.0, 1.9, 1.8]
    oracle, best = made_up("proposed-oracle", 0, reached, 4.0), made_up("proposed-oracle", 0, reached, 3.0)
    steps = texts(gains_table([made_up("uniform", 0, missed, 9.0), oracle], TARGET, [best], 2))
    assert [row[2][0] for row in steps] == ["1", "1", "1", "1", ">", "1"], "the same runs on other links are comparable"
    assert [row[3][0] for row in steps[4:]] == [">", ">"]
    late_oracle, late_best = (made_up("proposed-oracle", 0, missed, 4.0) for _ in range(2))
    table = gains_table([made_up("uniform", 0, missed, 9.0), late_oracle], TARGET, [late_best], 2)
    assert [row[2:] for row in texts(table)[4:]] == [["-", "-"], ["-", "-"]]
    assert table.notes == ()
    without = gains_table([made_up("uniform", 0, reached, 9.0), oracle], TARGET, [], 2)
    assert [str(note) for note in without.notes] == ["Without an estimate of β/α the theory names no best K."]


def test_rounds_that_some_runs_missed_are_bounds_and_no_number_is_nan():
    uniform = [made_up("uniform", 0, [1.2, 1.1, 1.0], 5.0), made_up("uniform", 1, [1.2] * 5, 5.0)]
    weighted = [made_up("weighted", s, [1.1, 1.0], 5.0) for s in range(2)]
    found = rounds_table(uniform + weighted, SETUP, 3)
    table = texts(found)
    assert table[0][1:] == ["> 4, 1 of 2 not reached", "> 4, 1 of 2 not reached"]
    assert table[2][1:] == ["1.0", "2.0"]
    assert table[4][1:] == ["> 3.50", "> 2.00"]
    assert "nan" not in str(found)
    assert "since no loss was reached by all runs of both" in str(found.notes[0])
    (outside,) = rounds_table([made_up("uniform", 0, [1.1, 1.0], 5.0), *weighted[:1]], SETUP, 3).notes
    assert "which needs a ratio of rounds strictly between" in str(outside)
    assert "got 1, 1;" in str(outside)


def test_what_each_run_found_in_its_own_pilots_is_a_note():
    assert own_estimates([made_up("proposed", 0, [1.0], 5.0)]) is None
    runs = [piloted(s, value) for s, value in enumerate([None, 100.0, 1500.0, 300.0])]
    note = own_estimates(runs)
    assert str(note).startswith("From the pilots of each run: 1 of 4 runs of proposed found no estimate")
    assert str(note).endswith("the others found 100 to 1,500, median 300.")
    assert str(own_estimates(runs[:1])).endswith("fell back to the closed form, β/α = 0.")
    setup = replace(SETUP, losses=(1.0,), rounds_uniform=(7,), rounds_weighted=(5,))
    both = [made_up(policy, 0, [1.1, 1.0], 5.0) for policy in ("uniform", "weighted")]
    assert rounds_table(both + runs, setup, 3).notes[-1] == note
