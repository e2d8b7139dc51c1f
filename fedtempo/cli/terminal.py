"""What a person reads in the terminal: tables, notes, one sentence for an error."""

import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

import typer
from rich.console import Console

from fedtempo import startup
from fedtempo.fleet_csv import FleetNotice
from fedtempo.tables.document import Document
from fedtempo.tables.markdown import to_markdown
from fedtempo.tables.table import Table
from fedtempo.tables.terminal import show

FAILED, BAD_INPUT, INTERRUPTED = 1, 2, startup.INTERRUPTED  # exit codes
PIPED_WIDTH = 120


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


def spelling(context: typer.Context) -> Callable[[str], str]:
    """Return how whoever gave this command knows a setting of a name: by its option, or by its place."""
    known = {
        str(one.name): max(one.opts, key=len) if one.param_type_name == "option" else one.metavar or str(one.name)
        for one in context.command.params
    }
    return lambda name: known.get(name, name)


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
    """Show what readers of records notice as notes, at once: the run may take hours."""
    from fedtempo.engine.records import RunNotice

    with warnings.catch_warnings():
        usual = warnings.showwarning

        def show_notice(
            message: Warning | str,
            category: type[Warning],
            filename: str,
            lineno: int,
            file: TextIO | None = None,
            line: str | None = None,
        ) -> None:
            if issubclass(category, RunNotice):
                note(str(message))
            else:
                usual(message, category, filename, lineno, file, line)

        warnings.simplefilter("always", RunNotice)
        warnings.showwarning = show_notice
        yield


@contextmanager
def compiling_noted() -> Iterator[None]:
    """Say why nothing moves when kernels are compiled, as happens once on a machine."""
    from fedtempo.learning.compiled import on_compile

    with on_compile(lambda: note("compiling the kernels, once on this machine: up to half a minute")):
        yield
