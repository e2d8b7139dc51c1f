"""Terminals: no number is cut, however narrow they are."""

from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from fedtempo.tables.table import Column, Table
from fedtempo.tables.terminal import show, show_framed
from support.table_cases import PAGE, TABLE

PLAIN = replace(TABLE, title="", notes=())


def printed(content, width, how=show):
    terminal = Console(width=width, file=StringIO(), highlight=False)
    how(content, terminal)
    return terminal.file.getvalue()


@pytest.mark.parametrize("width", [40, 80, 100, 160])
def test_no_word_of_a_table_is_cut_however_narrow_the_terminal(width):
    text = printed(PLAIN, width)
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= width
    cells = [column.heading for column in TABLE.columns] + [cell.text for row in TABLE.rows for cell in row]
    for word in " ".join(cells).split():
        assert word in text


def test_a_table_that_fits_has_one_line_for_each_row_and_one_that_does_not_becomes_lists():
    assert [line.split()[0] for line in printed(PLAIN, 160).splitlines()[2:]] == ["statistical", "proposed"]
    lists = printed(PLAIN, 40).splitlines()
    assert lists[0] == "policy: statistical"
    assert "  95 % interval: 12,802–14,735" in lists


def test_a_page_has_all_but_its_pictures():
    text = printed(PAGE, 160)
    for words in ("Setup 2", "Made by fedtempo compare. Each run.", "Time to loss 1", "Means.", "See a_b.", " • c d"):
        assert words in text
    assert "setup2.png" not in text
    assert "`" not in text


def test_names_are_no_markup():
    table = Table.from_rows(["[b]x[/b]", "y"], [["a[/b]c", "[red]1"]], title="[i]t", notes=["[u]n"])
    for how in (show, show_framed):
        text = printed(table, 80, how)
        for name in ("[b]x[/b]", "a[/b]c", "[red]1", "[i]t", "[u]n"):
            assert name in text


def test_a_frame_that_is_too_wide_loses_the_most_dispensable_columns():
    columns = [Column("name", align="left"), *(Column(f"column {n}", dispensable=n) for n in (0, 2, 1))]
    table = Table.from_rows(columns, [["a", "1", "2", "3"]], title="Title", notes=["Note."])

    def left(width):
        heading = printed(table, width, show_framed).splitlines()[2]
        return [name.strip() for name in heading.strip("┃").split("┃")]

    assert left(80) == ["name", "column 0", "column 2", "column 1"]
    assert left(40) == ["name", "column 0", "column 1"]
    assert left(25) == ["name", "column 0"]
    assert printed(table, 80, show_framed).splitlines()[-1] == "Note."
