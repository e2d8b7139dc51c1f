"""Where a person sees how runs get on: a bar in a terminal, the same in a notebook, elsewhere a line now and then."""

import sys
import time
from collections.abc import Iterable
from html import escape
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Column
from rich.text import Text

if TYPE_CHECKING:
    from IPython.display import DisplayHandle

LINE_SECONDS = 60.0  # between lines where nobody sees a bar move
NOTEBOOK_SECONDS = 0.25  # between two pictures in a notebook, each of which is a message to the browser
BAR_WIDTH, REST_WIDTH = 12, 60  # letters that a bar takes, and what stands beside it


class Display(Protocol):
    """Shows how far something is, for as long as its block lasts."""

    def __enter__(self) -> Self:
        """Appear."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        """Go away."""

    def show(self, share: float, status: str, below: str = "") -> None:
        """Show the share that is done, from 0 to 1, what stands beside the bar, and a line below it."""


def display_of(title: str) -> Display:
    """Return what shows progress where this program runs."""
    console = Console(stderr=True)
    if console.is_terminal:
        return TerminalBar(console, title)
    return NotebookBar(title) if console.is_jupyter else Lines(title)


def somebody_looks() -> bool:
    """Return whether somebody is likely to look: at a terminal, or at a notebook."""
    return not isinstance(display_of(""), Lines)


class TerminalBar(Progress):
    """A bar on the terminal that notes and errors go to, and a line below it, cut to what fits."""

    below = ""

    def __init__(self, console: Console, title: str) -> None:
        """Prepare the bar; it appears with its block."""
        cut = Column(no_wrap=True, overflow="ellipsis", max_width=max(8, console.width - BAR_WIDTH - REST_WIDTH))
        super().__init__(
            TextColumn("{task.description}", markup=False, table_column=cut),
            BarColumn(BAR_WIDTH),
            TextColumn("{task.fields[status]}", markup=False),
            console=console,
            transient=True,
            redirect_stdout=sys.stdout.isatty(),
        )
        self.task = self.add_task(title, total=1.0, status="")

    def get_renderables(self) -> Iterable[RenderableType]:
        """Return the two lines."""
        yield from super().get_renderables()
        if self.below:
            yield Text(self.below, style="dim", no_wrap=True, overflow="ellipsis")

    def show(self, share: float, status: str, below: str = "") -> None:
        """Move the bar."""
        self.below = below
        self.update(self.task, completed=share, status=status)


class NotebookBar:
    """A bar below a notebook's cell, which is gone when the cell has its result."""

    def __init__(self, title: str) -> None:
        """Prepare the bar; it appears with its block."""
        self.title, self.last = title, float("-inf")
        self.handle: DisplayHandle | None = None

    def __enter__(self) -> Self:
        """Show an empty bar."""
        from IPython.display import display

        self.handle = display(self._content(0.0, "", ""), raw=True, display_id=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        """Leave nothing in the notebook."""
        self._update({"text/html": "", "text/plain": ""})

    def show(self, share: float, status: str, below: str = "") -> None:
        """Move the bar, not more often than somebody could see."""
        if time.monotonic() - self.last >= NOTEBOOK_SECONDS:
            self.last = time.monotonic()
            self._update(self._content(share, status, below))

    def _update(self, content: dict[str, str]) -> None:
        if self.handle is not None:
            self.handle.update(content, raw=True)

    def _content(self, share: float, status: str, below: str) -> dict[str, str]:
        bar = f'<progress value="{share:.4f}" max="1"></progress>'
        small = f"<br><small>{escape(below)}</small>" if below else ""
        return {
            "text/html": f"<div>{escape(self.title)} {bar} {escape(status)}{small}</div>",
            "text/plain": f"{self.title}: {status}",
        }


class Lines:
    """A plain line now and then, where nobody sees a bar move."""

    def __init__(self, title: str) -> None:
        """Start the first wait."""
        self.title, self.last = title, time.monotonic()

    def __enter__(self) -> Self:
        """Show nothing yet."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        """Leave the lines as they are."""

    def show(self, share: float, status: str, below: str = "") -> None:
        """Print the status, if the last line is long enough ago."""
        if time.monotonic() - self.last >= LINE_SECONDS:
            self.last = time.monotonic()
            print(f"{self.title}: {status}", file=sys.stderr, flush=True)
