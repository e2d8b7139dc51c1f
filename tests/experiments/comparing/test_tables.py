"""Tables of comparisons: what each policy took, and how much longer than ours."""

from fedtempo.experiments.comparing.statistics import Target
from fedtempo.experiments.comparing.tables import INTERVALS, ratio_table, time_table
from support.grids import made_up

TARGET = Target(loss=1.0)
PAPER = {"uniform": (300.0, 20.0), "weighted": None, "proposed": (100.0, 5.0)}


def runs_of(policy, *taken, pilot=0.0):
    return [made_up(policy, seed, [2.0, 1.0], seconds, pilot=pilot) for seed, seconds in enumerate(taken)]


def texts(table):
    return {row[0].text: [cell.text for cell in row[1:]] for row in table.rows}


def test_without_ours_and_without_pilots_the_first_policy_is_the_reference():
    table = time_table(runs_of("weighted", 5.0) + runs_of("uniform", 10.0), TARGET, title="Times")
    assert [column.heading for column in table.columns] == [
        "policy", "seconds", "95 % interval", "rounds", "over weighted",
    ]  # fmt: skip
    assert texts(table) == {"weighted": ["10.0", "-", "2", "1"], "uniform": ["20.0", "-", "2", "2.00 ×"]}
    assert (table.title, table.notes) == ("Times", ()), "one seed has no intervals to explain"


def test_intervals_are_explained_where_there_are_any():
    table = time_table(runs_of("weighted", 5.0, 6.0, 7.0) + runs_of("uniform", 10.0, 13.0, 11.0), TARGET)
    assert [str(note) for note in table.notes] == [INTERVALS]
    two_seeds = runs_of("weighted", 5.0, 6.0) + runs_of("uniform", 10.0, 13.0)
    assert time_table(two_seeds, TARGET).notes == ()
    assert time_table(two_seeds, Target(loss=0.5)).notes == ()


def test_runs_that_diverged_are_called_so():
    late = made_up("weighted", 1, [2.0, 1.5], 5.0)
    lost = [made_up("weighted", seed, [2.0], 5.0, end="diverged") for seed in (0, 2)]
    runs = runs_of("uniform", 10.0, 10.0, 10.0)
    assert texts(time_table([*runs, *lost], TARGET))["weighted"][0] == "> 20.0, 2 of 2 diverged"
    assert texts(time_table([*runs, *lost, late], TARGET))["weighted"][0] == "> 16.7, 3 of 3 not reached, 2 diverged"


def test_pilots_are_counted_apart_and_who_takes_them_for_granted_has_no_time_with_them():
    runs = runs_of("uniform", 10.0) + runs_of("proposed", 4.0, pilot=12.0) + runs_of("proposed-oracle", 4.0)
    table = time_table(runs, TARGET, PAPER)
    assert [column.heading for column in table.columns][4:] == [
        "over proposed", "over proposed-oracle", "pilots (s)", "with pilots (s)", "over proposed, with pilots",
        "paper (s)",
    ]  # fmt: skip
    found = texts(table)
    assert found["uniform"][3:] == ["2.50 ×", "2.50 ×", "none", "20.0", "1.00 ×", "300 ± 20"]
    assert found["proposed"][3:] == ["1", "1.00 ×", "12.0", "20.0", "1", "100 ± 5"]
    assert found["proposed-oracle"][3:] == ["1.00 ×", "1", "taken for granted", "-", "-", "100 ± 5"]


def test_what_the_paper_does_not_have_or_did_not_reach_is_said():
    runs = runs_of("weighted", 5.0) + runs_of("tempo", 5.0)
    assert [row[-1] for row in texts(time_table(runs, TARGET, PAPER)).values()] == ["not reached", "-"]


def test_ratios_are_those_to_the_paper_s_scheme():
    runs = [*runs_of("uniform", 10.0), *runs_of("weighted", 8.0), *runs_of("statistical", 6.0, pilot=4.0)]
    runs += runs_of("proposed", 4.0, pilot=8.0) + runs_of("proposed-oracle", 2.0)
    table = ratio_table(runs, TARGET, PAPER | {"statistical": (250.0, 1.0)})
    assert texts(table) == {
        "uniform": ["5.00 ×", "2.50 ×", "1.25 ×", "3.0 ×"],
        "weighted": ["4.00 ×", "2.00 ×", "1.00 ×", "not reached"],
        "statistical": ["3.00 ×", "1.50 ×", "1.00 ×", "2.5 ×"],
    }
    assert table.columns[0].heading == "to loss 1"
