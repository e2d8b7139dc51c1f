"""A table's values as a data frame of pandas."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from fedtempo.checks import MissingDependencyError
from fedtempo.tables.table import Table

if TYPE_CHECKING:
    import pandas as pd


def to_pandas(table: Table) -> "pd.DataFrame":
    """Return one row for each row of the table, with the values of its cells under the headings."""
    frame = frame_of([[cell.value for cell in row] for row in table.rows])
    frame.columns = [column.heading for column in table.columns]
    return frame


def frame_of(rows: Sequence[Mapping[str, object]] | Sequence[Sequence[object]]) -> "pd.DataFrame":
    """Return rows as a data frame; those with names have them as columns."""
    try:
        import pandas as pd
    except ImportError:
        raise MissingDependencyError("pandas", "a data frame") from None
    return pd.DataFrame(rows)
