"""Tables as values: what they refuse, and what programs read of them."""

import pytest

from fedtempo import InputError
from fedtempo.tables.document import Document
from fedtempo.tables.prose import Code, Hyperlink, Paragraph
from fedtempo.tables.table import EMPTY, Cell, Column, Table, number_cell
from support.table_cases import PAGE, TABLE


def test_each_row_has_a_cell_for_each_column():
    with pytest.raises(InputError, match="each row must have 2 cells, got \\['a'\\]"):
        Table.from_rows(["x", "y"], [["a"]])
    with pytest.raises(ValueError, match="zip"):
        Table.from_columns({"x": ["a"], "y": []})


def test_text_stands_to_the_left_in_the_first_column_alone_and_is_its_own_value():
    table = Table.from_rows(["x", "y", Column("z", align="left")], [["a", "-", number_cell(1234.5, ",.0f")]])
    assert [column.align for column in table.columns] == ["left", "right", "left"]
    assert table.rows == ((Cell("a", "a"), EMPTY, Cell("1,234", 1234.5)),)
    assert Table.from_columns({"x": ["a"], "y": ["-"]}) == Table.from_rows(["x", "y"], [["a", "-"]])


def test_programs_read_values_under_headings_with_units():
    first, second = TABLE.records()
    assert first["pilots (s)"] == "2,087"
    assert second["seconds"] == 4787.2
    assert second["pilots (s)"] is None, "nothing is no text"
    assert second["with pilots (s)"] == "> 6,875", "a bound is no number"


def test_a_column_can_be_left_out():
    rest = TABLE.without(1)
    assert [column.name for column in rest.columns][:2] == ["policy", "95 % interval"]
    assert [row[1].text for row in rest.rows] == ["12,802–14,735", "up to 17,825"]
    assert (rest.title, rest.notes, rest.marked) == (TABLE.title, TABLE.notes, TABLE.marked)


def test_paragraphs_are_spans_and_equal_pages_are_equal():
    assert str(Paragraph("See ", Code("x"), " and ", Hyperlink("y", "z"), ".")) == "See x and y."
    assert Document("a", TABLE) == Document(Paragraph("a"), TABLE)
    assert hash(PAGE) == hash(PAGE)
