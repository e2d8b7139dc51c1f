"""A table as a value: columns with units, rows of cells, notes. Renderers are beside it, one for each medium."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from fedtempo.checks import InputError
from fedtempo.tables.prose import Paragraph, as_paragraph

Value: TypeAlias = str | int | float | bool | None
NOTHING = "-"  # the text of a cell without a value


@dataclass(frozen=True, slots=True)
class Column:
    """What stands in a column."""

    name: str
    unit: str = ""  # shown in brackets behind the name
    below: str = ""  # a second line of the heading, in small print where there is such
    align: Literal["left", "right"] = "right"
    dispensable: int = 0  # a terminal that is too narrow leaves out the largest first, and never a 0

    @property
    def heading(self) -> str:
        """The name, and the unit where there is one."""
        return f"{self.name} ({self.unit})" if self.unit else self.name


@dataclass(frozen=True, slots=True)
class Cell:
    """What a person reads, and what a program reads in its place.

    The value of a bound such as "> 4,000" is that text: as a plain number it would be taken for a measurement.
    """

    text: str
    value: Value
    below: str = ""  # a second line, in small print where there is such


EMPTY = Cell(NOTHING, None)


@dataclass(frozen=True, slots=True)
class Table:
    """Columns, rows of as many cells, a title above and notes below."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    title: str = ""
    notes: tuple[Paragraph, ...] = field(default=())
    marked: int | None = None  # the row that stands out

    def __post_init__(self) -> None:
        """Refuse rows that do not fit the columns."""
        for row in self.rows:
            if len(row) != len(self.columns):
                raise InputError("each row", f"have {len(self.columns)} cells", f"{[cell.text for cell in row]}")

    @classmethod
    def from_rows(
        cls,
        columns: Sequence[str | Column],
        rows: Iterable[Sequence[str | Cell]],
        *,
        title: str = "",
        notes: Iterable[str | Paragraph] = (),
        marked: int | None = None,
    ) -> "Table":
        """Return a table of headings and cells, either of which may be plain text.

        Text in the first column stands to the left, in others to the right, unless a ``Column`` says otherwise. The
        value of a cell that is plain text is the text, and none where it is NOTHING.
        """
        return cls(
            tuple(
                Column(one, align="right" if place else "left") if isinstance(one, str) else one
                for place, one in enumerate(columns)
            ),
            tuple(tuple(map(as_cell, row)) for row in rows),
            title,
            tuple(map(as_paragraph, notes)),
            marked,
        )

    @classmethod
    def from_columns(
        cls,
        columns: Mapping[str | Column, Sequence[str | Cell]],
        *,
        title: str = "",
        notes: Iterable[str | Paragraph] = (),
        marked: int | None = None,
    ) -> "Table":
        """Return the same of columns with their cells."""
        rows = zip(*columns.values(), strict=True)
        return cls.from_rows(list(columns), rows, title=title, notes=notes, marked=marked)

    def records(self) -> Iterator[dict[str, Value]]:
        """Yield the values of each row by the headings of their columns, as CSV, JSON and pandas have them."""
        headings = [column.heading for column in self.columns]
        for row in self.rows:
            yield dict(zip(headings, (cell.value for cell in row), strict=True))

    def without(self, place: int) -> "Table":
        """Return the table without one of its columns."""
        columns, *rows = (line[:place] + line[place + 1 :] for line in (self.columns, *self.rows))
        return Table(columns, tuple(rows), self.title, self.notes, self.marked)  # type: ignore[arg-type]

    def __str__(self) -> str:
        """Return it as Markdown."""
        from fedtempo.tables.markdown import to_markdown

        return to_markdown(self)

    def _repr_html_(self) -> str | None:
        """Return what a notebook shows."""
        from fedtempo.tables.html import notebook_html

        return notebook_html(self)


def as_cell(content: str | Cell) -> Cell:
    """Return a cell; plain text is its own value, and NOTHING has none."""
    if isinstance(content, Cell):
        return content
    return EMPTY if content == NOTHING else Cell(content, content)


def number_cell(value: float, text_format: str) -> Cell:
    """Return a cell with a number, formatted as by ``format``."""
    return Cell(format(value, text_format), value)
