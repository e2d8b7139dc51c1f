"""A table's values as a data frame of pandas."""

from typing import TYPE_CHECKING

from fedtempo.checks import MissingDependencyError
from fedtempo.tables.table import Table

if TYPE_CHECKING:
    import pandas as pd


def to_pandas(table: Table) -> "pd.DataFrame":
    """Return one row for each row of the table, with the values of its cells under the headings."""
    try:
        import pandas as pd
    except ImportError:
        raise MissingDependencyError("pandas", "report", "a data frame") from None
    frame = pd.DataFrame([[cell.value for cell in row] for row in table.rows])
    frame.columns = pd.Index([column.heading for column in table.columns])
    return frame
