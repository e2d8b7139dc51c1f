"""Output files that appear whole or not at all."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any


@contextmanager
def whole_file(path: Path | str, mode: str = "w") -> Iterator[IO[Any]]:
    """Open a file for writing that takes its place only when the block ends without an error.

    The content goes to a neighbour on the same file system, reaches the disk, and is then renamed over the target in
    one step. An error, Ctrl-C, a crash or a full disk leaves the old file, or none. A target that is not a regular file
    (a pipe, a terminal) is written to directly, since it cannot be replaced.
    """
    target = Path(os.path.realpath(path))
    encoding = None if "b" in mode else "utf-8"
    newline = None if "b" in mode else ""
    if target.exists() and not target.is_file():
        with open(target, mode, encoding=encoding, newline=newline) as stream:
            yield stream
        return
    neighbour = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        with open(neighbour, mode, encoding=encoding, newline=newline) as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        if target.exists():
            shutil.copymode(target, neighbour)
        os.replace(neighbour, target)
    except FileNotFoundError as error:
        raise FileNotFoundError(error.errno, "no such directory", str(target.parent)) from None
    finally:
        neighbour.unlink(missing_ok=True)
