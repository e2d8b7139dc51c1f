"""What a person reads in the terminal, and a program from a pipe."""

import sys
import warnings

import pytest
import typer

from fedtempo.cli import terminal
from fedtempo.cli.terminal import print_content, run_notices, spelling
from fedtempo.engine.records import RunNotice
from fedtempo.tables.markdown import to_markdown
from support.table_cases import PAGE, TABLE


@pytest.mark.parametrize("content", [TABLE, PAGE])
def test_a_pipe_gets_markdown_and_a_terminal_lines(content, capsys, monkeypatch):
    print_content(content)
    assert capsys.readouterr().out == f"{to_markdown(content)}\n"
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "160")
    print_content(content)
    shown = capsys.readouterr().out
    assert "15,919 ± 885" in shown
    assert "|" not in shown


def test_settings_are_spelled_as_the_options_of_the_command():
    app, spelled = typer.Typer(), []

    @app.command()
    def plan(context: typer.Context, cohort_size: int = typer.Option(1, "-k", "--cohort-size")) -> None:
        spelled.extend(map(spelling(context), ("cohort_size", "floor")))

    app([], standalone_mode=False)
    assert spelled == ["--cohort-size", "floor"]


def test_notices_of_records_are_notes_and_other_warnings_stay_warnings(capsys):
    with run_notices():
        warnings.warn("other code", RunNotice, stacklevel=1)
    with run_notices(), pytest.warns(UserWarning, match="something else"):
        warnings.warn("something else", UserWarning, stacklevel=1)
    assert capsys.readouterr().err == "note: other code\n"


def test_an_error_is_one_line(capsys):
    assert terminal.fail("a\n  b", 2) == 2
    assert capsys.readouterr().err == "fedtempo: a b\n"
