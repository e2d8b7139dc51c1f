"""The table of a section."""

from dataclasses import replace

from fedtempo.experiments.comparing.statistics import Target, times_to
from fedtempo.experiments.comparing.styles import styles
from fedtempo.experiments.report.sections import sections
from fedtempo.experiments.report.target_table import target_table, why_missed
from support.reports import TARGET, with_end, with_header


def test_rows_are_ranked_with_pilots_counted_and_values_are_numbers(runs):
    (section,) = sections(runs, TARGET)
    shown = target_table(section, TARGET, styles(section.policies))
    times = times_to(section.runs, TARGET)
    means = {label: one.with_pilots().mean for label, one in times.items()}
    rows = list(shown.table.records())
    assert [row["Policy"] for row in rows] == sorted(means, key=means.get)
    assert [row["Seconds"] for row in rows] == sorted(means.values())
    assert [row["Missed it"] for row in rows] == [0, 0]
    assert rows[1]["× fastest"] == max(means.values()) / min(means.values())
    assert shown.table.marked == 0
    assert shown.styles == tuple(styles(section.policies)[row["Policy"]] for row in rows)
    assert shown.table.title == "Time to loss 1.95, pilots counted"


def test_who_takes_pilots_for_granted_stands_below_without_a_rank(runs):
    named = [
        replace(with_header(run, policy="proposed-oracle"), policy="proposed-oracle")
        if run.policy == "uniform"
        else run
        for run in runs
    ]
    (section,) = sections(named, TARGET)
    table = target_table(section, TARGET, styles(section.policies)).table
    assert [row[0].text for row in table.rows] == ["proposed", "proposed-oracle"]
    below = [cell.text for cell in table.rows[1]]
    assert [*below[1:4], below[5]] == ["-", "-", "-", "taken for granted"]
    assert "±" in below[6]
    assert str(table.notes[0]).endswith("Below all others, with pilots taken for granted: proposed-oracle.")


def test_where_nobody_always_reaches_the_target_nobody_is_first(runs):
    (section,) = sections(runs, Target(loss=1e-6))
    table = target_table(section, Target(loss=1e-6), styles(section.policies)).table
    assert table.marked is None
    assert {row[3].text for row in table.rows} == {"-"}
    assert {(row[7].text, row[7].below) for row in table.rows} == {("2 of 2", "2 at the limit")}
    assert all(row[1].value == row[1].text for row in table.rows), "a bound is no number"


def test_why_runs_missed_the_target_is_said_as_it_was(runs):
    ends = {
        "target": "ended at another target",
        None: "not finished",
        "diverged": "diverged",
        "max_time": "at the limit",
    }
    for end, word in ends.items():
        assert why_missed([with_end(runs[0], end)], Target(loss=1e-6)) == f"1 {word}"
    assert why_missed([with_end(runs[0], "target")], TARGET) == "1 after the limit"
