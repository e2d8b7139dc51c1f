"""Files: output that appears whole or not at all, and one sentence for input that cannot be read."""

import csv
import errno
import itertools
import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any

from fedtempo.checks import InputError

try:
    import fcntl
except ModuleNotFoundError:  # Windows has other locks; there, nothing keeps two processes apart
    fcntl = None  # type: ignore[assignment]

FULL = (errno.ENOSPC, errno.EDQUOT)  # what systems call a full disk
_numbers = itertools.count()


@contextmanager
def whole_file(path: Path | str, mode: str = "w") -> Iterator[IO[Any]]:
    """Open a file for writing that takes its place only when the block ends without an error."""
    with whole_files((path, mode)) as (stream,):
        yield stream


@contextmanager
def whole_files(*targets: tuple[Path | str, str]) -> Iterator[list[IO[Any]]]:
    """Open files, given as (path, mode), that take their places together when the block ends without an error.

    The content goes to neighbours on the same file systems and reaches the disk; only when all of it is there are the
    neighbours renamed over the targets. An error, Ctrl-C, a crash or a full disk leaves the old files, or none. A
    target that is not a regular file (a pipe, a terminal) is written to directly, since it cannot be replaced.
    """
    places = [Path(os.path.realpath(path)) for path, _ in targets]
    if len(set(places)) < len(places):
        raise InputError(name="output files", rule="differ from each other", got=f"{places[0]} more than once")
    written: list[tuple[Path, Path]] = []
    try:
        with naming_full_disks(*(path for path, _ in targets)), ExitStack() as streams:
            opened = []
            for (path, mode), place in zip(targets, places, strict=True):
                direct = place.exists() and not place.is_file()
                neighbour = place if direct else place.with_name(f".fedtempo-{os.getpid()}-{next(_numbers)}.part")
                opened.append(streams.enter_context(_open(neighbour, mode, path)))
                if not direct:
                    written.append((neighbour, place))
            yield opened
            for stream in opened:
                stream.flush()
                if os.path.isfile(stream.name):
                    os.fsync(stream.fileno())
        for neighbour, place in written:
            if place.exists():
                shutil.copymode(place, neighbour)
        for neighbour, place in written:
            os.replace(neighbour, place)
    finally:
        for neighbour, _ in written:
            neighbour.unlink(missing_ok=True)


@contextmanager
def naming_full_disks(*paths: Path | str) -> Iterator[None]:
    """Let the error of a full disk say what could not be written, which the system says of opening a file alone."""
    try:
        yield
    except OSError as error:
        if error.errno not in FULL or error.filename is not None:
            raise
        raise type(error)(error.errno, error.strerror, ", ".join(map(str, paths))) from None


@contextmanager
def read_errors(path: Path | str, kind: str = "a file") -> Iterator[None]:
    """Turn whatever is wrong with an input file into one sentence that names it; ``kind`` says what it should be."""
    try:
        yield
    except UnicodeDecodeError:
        raise InputError(name=path, rule="be UTF-8 text", got="other bytes", remedy="save it as UTF-8") from None
    except FileNotFoundError:
        raise InputError(name=path, rule=f"be {kind}", got="no such file") from None
    except OSError as error:
        raise InputError(name=path, rule="be readable", got=f"{error.strerror}") from None
    except csv.Error as error:
        raise InputError(name=path, rule="be CSV", got=f"{error}") from None
    except InputError as error:
        raise error.within(path) from None


def lock(stream: IO[Any]) -> bool:
    """Keep other processes from locking a file until it is closed; return False if one has locked it already."""
    if fcntl is None:
        return True
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _open(place: Path, mode: str, target: Path | str) -> IO[Any]:
    """Open a file; an error names the target that the user gave."""
    text: dict[str, Any] = {} if "b" in mode else {"encoding": "utf-8", "newline": ""}
    try:
        return open(place, mode, **text)
    except OSError as error:
        reason = error.strerror if place.parent.is_dir() else f"no such directory as {place.parent}"
        raise type(error)(error.errno, reason, str(target)) from None
