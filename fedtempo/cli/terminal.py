"""What a person reads in the terminal: tables, notes, one sentence for an error."""

import os
import re
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from typing import Any

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table as RichTable

from fedtempo.fleet_csv import FleetNotice
from fedtempo.tables.document import Document
from fedtempo.tables.markdown import to_markdown
from fedtempo.tables.table import Table
from fedtempo.tables.terminal import show

FAILED, BAD_INPUT, INTERRUPTED = 1, 2, 130  # exit codes
PIPED_WIDTH = 120
GAPS = 2, 1  # letters between the columns of a table: the wider where it fits


class Interrupted(Exception):  # noqa: N818
    """Ctrl-C; the message says how far it has come, and how it goes on."""


def console() -> Console:
    """Return a console that takes text as it is: names are not markup."""
    piped = not sys.stdout.isatty() and "COLUMNS" not in os.environ
    return Console(width=PIPED_WIDTH if piped else None, markup=False, emoji=False, highlight=False)


def print_content(content: Table | Document) -> None:
    """Print a table or a page as a terminal can, or as Markdown where there is none."""
    if sys.stdout.isatty():
        show(content, console())
    else:
        print(to_markdown(content))


def print_markdown(text: str) -> None:
    """Show Markdown as a terminal can: tables with lines and no cell cut off, pictures left out."""
    if not sys.stdout.isatty():
        print(text)
        return
    from rich.markdown import Markdown

    terminal = console()
    for is_table, lines in groupby(text.splitlines(), key=lambda line: line.startswith("|")):
        if is_table:
            terminal.print(table_of(list(lines), terminal.width))
        else:
            terminal.print(Markdown(re.sub(r"!\[.*\]\(.*\)", "", "\n".join(lines))))


def table_of(lines: Sequence[str], width: int) -> RichTable | str:
    """Return a table in Markdown for a terminal: cells break between words; where no word may break, rows are lists."""
    headings, alignment, *rows = ([cell.strip() for cell in line.strip().strip("|").split("|")] for line in lines)
    for gap in GAPS:
        widths = _column_widths([headings, *rows], width - gap * (len(headings) - 1))
        if widths is not None:
            break
    else:
        lists = ["\n  ".join(map("{}: {}".format, headings, row)) for row in rows]
        return "\n".join(lists)
    table = RichTable(box=box.SIMPLE_HEAVY, show_edge=False, pad_edge=False, padding=(0, gap - 1, 0, 0))
    for name, side, wide in zip(headings, alignment, widths, strict=True):
        table.add_column(name, justify="right" if side.endswith(":") else "left", width=wide)
    for row in rows:
        table.add_row(*row)
    return table


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


def note(message: str) -> None:
    """Say something beside the results."""
    print(f"note: {message}", file=sys.stderr)


def fail(message: str, code: int) -> int:
    """Say in one line what was wrong; return the exit code."""
    print(f"fedtempo: {' '.join(message.split())}", file=sys.stderr)
    return code


@contextmanager
def fleet_notices() -> Iterator[None]:
    """Show what a reader assumed or passed over as notes, not as warnings, once the input is accepted."""
    with warnings.catch_warnings(record=True, action="always", category=FleetNotice) as caught:
        yield
    for notice in caught or ():
        note(str(notice.message))


@contextmanager
def run_notices() -> Iterator[None]:
    """Show what a run's records tell as notes, at once: the run may take hours."""
    from fedtempo.engine.records import RunNotice

    with warnings.catch_warnings():
        usual = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:  # noqa: ANN401
            if issubclass(category, RunNotice):
                note(str(message))
            else:
                usual(message, category, *where, **more)

        warnings.simplefilter("always", RunNotice)
        warnings.showwarning = show
        yield


@contextmanager
def compiling_noted() -> Iterator[None]:
    """Say why nothing moves when kernels are compiled, as happens once on a machine."""
    from fedtempo.learning.compiled import on_compile

    with on_compile(lambda: note("compiling the kernels, once on this machine: up to half a minute")):
        yield
