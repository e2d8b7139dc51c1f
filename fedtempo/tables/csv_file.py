"""A table's values as CSV."""

import csv
from typing import IO

from fedtempo.tables.table import Table, Value

FORMULA = ("=", "+", "-", "@", "\t", "\r")  # how text begins that a spreadsheet would compute


def write_csv(table: Table, stream: IO[str]) -> None:
    """Write headings and values, no formula among them; open the stream with ``newline=""``."""
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow([_field(column.heading) for column in table.columns])
    writer.writerows([_field(cell.value) for cell in row] for row in table.rows)


def _field(value: Value) -> Value:
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA) else value
