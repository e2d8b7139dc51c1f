"""Tables and pages for a terminal: no number is cut off, however narrow it is."""

from collections.abc import Iterator, Sequence

from rich import box
from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.measure import Measurement
from rich.table import Table as RichTable
from rich.text import Text

from fedtempo.tables.document import Block, Document, Heading, Items, Picture
from fedtempo.tables.prose import Paragraph
from fedtempo.tables.table import Table

GAPS = 2, 1  # letters between the columns of a table: the wider where it fits
BULLET = " • "
UNLIMITED = 10_000  # letters, more than any table has


def show(content: Table | Document, console: Console) -> None:
    """Print a table or a page; pictures are left out."""
    blocks = content.blocks if isinstance(content, Document) else (content,)
    shown = [block for block in blocks if not isinstance(block, Picture)]
    for place, block in enumerate(shown):
        if place:
            console.print()
        for part in _block(block, console.width):
            console.print(part)


def _block(block: Block, width: int) -> Iterator[RenderableType]:
    if isinstance(block, Heading):
        yield Text(block.text, style="bold" if block.level > 1 else "bold underline")
    elif isinstance(block, Items):
        for item in block.items:
            listed = RichTable.grid()
            listed.add_row(BULLET, _paragraph(item))
            yield listed
    elif isinstance(block, Paragraph):
        yield _paragraph(block)
    elif isinstance(block, Table):
        if block.title:
            yield Text(f"{block.title}\n")
        yield fitted(block, width)
        for note in block.notes:
            yield Text.assemble("\n", _paragraph(note))


def _paragraph(paragraph: Paragraph) -> Text:
    return Text.assemble(*(span if isinstance(span, str) else (span.text, "bold") for span in paragraph.spans))


def fitted(table: Table, width: int) -> RenderableType:
    """Return the rows of a table: cells break between words; where no word may break, rows are lists."""
    headings = [column.heading for column in table.columns]
    rows = [[cell.text for cell in row] for row in table.rows]
    for gap in GAPS:
        widths = _column_widths([headings, *rows], width - gap * (len(headings) - 1))
        if widths is not None:
            break
    else:
        return Text("\n".join("\n  ".join(map("{}: {}".format, headings, row)) for row in rows))
    shown = RichTable(box=box.SIMPLE_HEAVY, show_edge=False, pad_edge=False, padding=(0, gap - 1, 0, 0))
    for column, wide in zip(table.columns, widths, strict=True):
        shown.add_column(Text(column.heading), justify=column.align, width=wide)
    for row in rows:
        shown.add_row(*map(Text, row))
    return shown


def _column_widths(rows: Sequence[Sequence[str]], room: int) -> list[int] | None:
    """Return widths that leave words whole, and where there is room cells too, then headings; None if words are longer.

    Columns that lack least come first: most of them are then whole.
    """
    columns = list(zip(*rows, strict=True))
    widths = [max(cell_len(word) for cell in column for word in cell.split() or [""]) for column in columns]
    left = room - sum(widths)
    if left < 0:
        return None
    for first in (1, 0):  # without the heading, then with it
        lacking = [max(map(cell_len, column[first:]), default=0) - w for column, w in zip(columns, widths, strict=True)]
        for place in sorted(range(len(widths)), key=lacking.__getitem__):
            more = max(0, min(lacking[place], left))
            widths[place] += more
            left -= more
    return widths


def show_framed(table: Table, console: Console) -> None:
    """Print a table in a frame, its notes below."""
    console.print(framed(table, console))
    for note in table.notes:
        console.print(_paragraph(note), style="dim")


def framed(table: Table, console: Console) -> RenderableType:
    """Return a table in a frame, its title above; a narrow terminal leaves out columns that are dispensable."""
    while True:
        shown = RichTable(title=Text(table.title) if table.title else None, title_justify="left", title_style="bold")
        shown.show_header = any(column.heading for column in table.columns)
        for column in table.columns:
            shown.add_column(Text(column.heading), justify=column.align, no_wrap=shown.show_header)
        for place, row in enumerate(table.rows):
            shown.add_row(*(Text(cell.text) for cell in row), style="bold green" if place == table.marked else None)
        last = max(range(len(table.columns)), key=lambda place: table.columns[place].dispensable)
        needed = Measurement.get(console, console.options.update(width=UNLIMITED), shown).maximum
        if not table.columns[last].dispensable or needed <= console.width:
            return shown
        table = table.without(last)
