"""CSV: values, and no formula among them."""

import csv
from io import StringIO

from fedtempo.tables.csv_file import write_csv
from fedtempo.tables.table import Cell, Table, number_cell
from support.table_cases import TABLE


def written(table):
    stream = StringIO()
    write_csv(table, stream)
    return list(csv.reader(StringIO(stream.getvalue())))


def test_values_stand_under_the_headings():
    headings, first, second = written(TABLE)
    assert headings[:2] == ["policy", "seconds"]
    assert headings[5] == "pilots (s)"
    assert first[1] == "15,919 ± 885"
    assert (second[1], second[5]) == ("4787.2", "")


def test_no_text_is_a_formula_and_numbers_stay_numbers():
    bad = ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1"]
    table = Table.from_rows(["=x", "y"], [[Cell(text, text), number_cell(-1.5, ".2f")] for text in bad])
    headings, *rows = written(table)
    assert headings == ["'=x", "y"]
    assert rows == [[f"'{text}", "-1.5"] for text in bad]
