"""What is removed at the end of a block, even where this process does not live to see it.

A small process waits until the block ends or this process is gone, however it went, and then cleans up.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedtempo.flower.startable import Startable

SECONDS = 60.0  # that cleaning up may take

# Reads what to do, a line each, until the pipe is closed. Processes may write into a folder until they have been ended.
_SWEEPER = """
import json, os, shutil, signal, subprocess, sys, time

for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(ignored, signal.SIG_IGN)
orders = [json.loads(line) for line in sys.stdin]
for command in orders[::-1]:
    if command[0] == "remove":
        end = time.monotonic() + 20
        while os.path.exists(command[1]) and time.monotonic() < end:
            shutil.rmtree(command[1], ignore_errors=True)
            time.sleep(0.1)
    else:
        subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
"""


class Sweeper(Startable):
    """Carries out orders at the end, the last first."""

    def __init__(self) -> None:
        """Start with none."""
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Start the process that waits."""
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _SWEEPER], stdin=subprocess.PIPE, text=True, start_new_session=True
        )

    def order(self, *command: str) -> None:
        """Say what to run at the end; ``remove`` and a path removes a folder."""
        if self._process is None or self._process.stdin is None:
            raise RuntimeError("the sweeper must be started before it gets orders; enter it as a context manager")
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()

    def stop(self) -> None:
        """Let it clean up, and wait for that."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
            self._process.wait(SECONDS)
            self._process = None


@contextmanager
def swept_folder(prefix: str) -> Iterator[Path]:
    """Give a new folder for the time of a block."""
    with Sweeper() as sweeper:
        folder = tempfile.mkdtemp(prefix=prefix)
        sweeper.order("remove", folder)
        yield Path(folder)
