"""What a person reads in the terminal: tables, notes, one sentence for an error."""

import os
import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console

from fedtempo.fleet_csv import FleetNotice

FAILED, BAD_INPUT, INTERRUPTED = 1, 2, 130  # exit codes
PIPED_WIDTH = 120


def console() -> Console:
    """Return a console that takes text as it is: names are not markup."""
    piped = not sys.stdout.isatty() and "COLUMNS" not in os.environ
    return Console(width=PIPED_WIDTH if piped else None, markup=False, emoji=False, highlight=False)


def print_markdown(text: str) -> None:
    """Show Markdown as a terminal can: tables with lines, pictures left out."""
    if sys.stdout.isatty():
        from rich.markdown import Markdown

        console().print(Markdown(re.sub(r"!\[.*\]\(.*\)", "", text)))
    else:
        print(text)


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
