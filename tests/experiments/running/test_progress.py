"""What is shown of runs while they train."""

import re
import time
from io import StringIO

import pytest
from rich.console import Console

from fedtempo.experiments.running import display, progress
from fedtempo.experiments.running.grid import Grid
from fedtempo.experiments.running.runner import run
from support.grids import planned_runs
from support.runs import SMALL


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "small.toml"
    path.write_text(SMALL.replace("max_rounds = 6", "max_rounds = 6\ntarget_loss = 2.0"))
    return path


def test_the_rest_takes_as_long_as_those_that_have_ended():
    assert progress.times_in_words(12, 60, 0, 240.0) == "4 min; about 16 min to go"
    assert progress.times_in_words(31, 60, 30, 90.0) == "90 s; about 44 min to go", "those before took no time"
    assert progress.times_in_words(30, 60, 30, 90.0) == "90 s"
    assert progress.times_in_words(60, 60, 30, 20000.0) == "5 h 33 min"


def test_without_a_terminal_a_line_is_printed_now_and_then(config, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(progress, "POLL_SECONDS", 0.01)
    runs = planned_runs(config, tmp_path / "runs", ["uniform"])
    grid = Grid("small", runs, runs)
    with progress.grid_progress(grid):
        time.sleep(0.1)
    assert capsys.readouterr().err == "", "not before the first minute is over"
    monkeypatch.setattr(display, "LINE_SECONDS", 0.05)
    with progress.grid_progress(grid) as show_end:
        run(runs[0])
        show_end(runs[0])
        time.sleep(0.3)
    captured = capsys.readouterr()
    assert re.fullmatch(r"small: 1 of 2 runs ended, \d+ s; about \d+ s to go", captured.err.splitlines()[-1])
    assert captured.out == ""


def test_runs_of_one_policy_and_seed_are_told_apart(config, tmp_path):
    one, second = planned_runs(config, tmp_path, ["uniform"])
    other, _ = planned_runs(config, tmp_path, ["uniform"], training={"cohort_size": 4})
    names = progress._Names([one, other, second])
    assert (names.name(one), names.name(other)) == ("uniform 0, cohort_size 3", "uniform 0, cohort_size 4")
    assert names.name(second) == "uniform 1"


def test_the_bar_and_the_times_fit_eighty_columns():
    terminal = Console(width=80, file=StringIO())
    bar = display.TerminalBar(terminal, "A name as long as a name can be")
    status = "120 of 600 runs ended, 9 h 05 min; about 9 h 05 min to go"
    bar.show(0.2, status, "uniform 0: round 9 loss 1.234; " * 9)
    terminal.print(bar.get_renderable())
    lines = terminal.file.getvalue().splitlines()
    assert lines[0].rstrip().endswith(status)
    assert [len(line) <= 80 for line in lines] == [True, True]
    assert lines[1].endswith("…")


def test_where_a_run_is_stands_in_its_records(config, tmp_path):
    one, other = planned_runs(config, tmp_path / "runs", ["uniform"])
    run(one)
    lines = one.records.read_bytes().splitlines(keepends=True)
    for count, place in ((1, None), (4, r"round 3 loss \d\.\d{3}"), (len(lines), None)):
        one.records.write_bytes(b"".join(lines[:count]))
        found = progress._place(one)
        assert found is None if place is None else re.fullmatch(place, found)
    assert progress._place(other) is None
