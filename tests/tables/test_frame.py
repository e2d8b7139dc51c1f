"""Data frames hold the values of a table."""

import sys

import pytest

from fedtempo.checks import MissingDependencyError
from fedtempo.tables.frame import to_pandas
from fedtempo.tables.table import EMPTY, Table, number_cell
from support.table_cases import TABLE


def test_columns_of_numbers_are_numbers_and_nothing_is_missing():
    pytest.importorskip("pandas")
    table = Table.from_rows(["x", "y", "y"], [["a", number_cell(1.5, ".0f"), "t"], ["b", EMPTY, "u"]])
    frame = to_pandas(table)
    assert list(frame.columns) == ["x", "y", "y"]
    assert frame.iloc[:, 1].dtype == float
    assert frame.iloc[:, 1].isna().tolist() == [False, True]
    assert len(to_pandas(TABLE)) == 2


def test_without_pandas_it_is_said_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingDependencyError, match="needs pandas, which is not installed"):
        to_pandas(TABLE)
