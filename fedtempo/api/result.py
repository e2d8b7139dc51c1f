"""What all results share: a table, a data frame, a figure, a page, and how a terminal and a notebook show them."""

from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING

from fedtempo.tables.document import Document
from fedtempo.tables.frame import to_pandas
from fedtempo.tables.html import notebook_html, write_page
from fedtempo.tables.table import Table

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


class Result(ABC):
    """What a call came to."""

    @abstractmethod
    def table(self) -> Table:
        """Return it as a table."""

    @abstractmethod
    def plot(self) -> "Figure":
        """Return it as a figure of matplotlib."""

    def to_pandas(self) -> "pd.DataFrame":
        """Return it as a data frame."""
        return to_pandas(self.table())

    def document(self) -> Document:
        """Return it as a page."""
        return Document(self.table())

    def report(self, path: Path | str) -> None:
        """Write the page to an HTML file."""
        write_page(self.document(), Path(path))

    def __str__(self) -> str:
        """Return the table as Markdown."""
        return str(self.table())

    def _repr_html_(self) -> str | None:
        """Return what a notebook shows."""
        return notebook_html(self.table())
