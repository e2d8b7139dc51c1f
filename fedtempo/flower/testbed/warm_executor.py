"""A SuperNode's executor whose ClientApps begin at once, as forks of a process that has all imports behind it.

Flower's executor starts a program for each message, which imports Flower, the app and its libraries and loads kernels:
three seconds of computing before training begins. On a device of its own that is a small part of a round; on the
testbed, where all nodes share the cores, it was the largest. Here it happens once for each node that is drawn.
"""

import json
import shlex
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import IO, cast

from fedtempo.flower.inner.executor import ExecutionSpec, LaunchResult, SubprocessExecutor, client_task, run_with

NAME = "flower-superexec"  # the program that a SuperNode starts
ALONE = ("-P",)  # what lies in the folder in which somebody starts the testbed is none of its modules
FORKS = "from fedtempo.flower.testbed.forks import serve; serve()"


class WarmExecutor(SubprocessExecutor):
    """Has ClientApps forked; whatever else there is to start, it starts as Flower's executor does."""

    def __init__(self) -> None:
        """Start nothing yet: a node that is never drawn needs nothing."""
        self._forks: subprocess.Popen[bytes] | None = None

    def launch(self, spec: ExecutionSpec) -> LaunchResult:
        """Start what one message asks for."""
        task = client_task(spec)
        if task is None:
            return super().launch(spec)
        try:
            self._input().write(json.dumps(asdict(task)).encode() + b"\n")
        except BrokenPipeError:  # why, it has written to the node's log
            return LaunchResult.failed("the process that forks ClientApps has ended")
        return LaunchResult.accepted()

    def _input(self) -> IO[bytes]:
        """Return the input of the process that forks, started where there is none."""
        if self._forks is None or self._forks.poll() is not None:
            self.close()
            self._forks = subprocess.Popen([sys.executable, *ALONE, "-c", FORKS], stdin=subprocess.PIPE, bufsize=0)
        return cast("IO[bytes]", self._forks.stdin)

    def close(self) -> None:
        """Let go of the process that forks: it ends with its input."""
        if self._forks is not None:
            cast("IO[bytes]", self._forks.stdin).close()


def write_program(folder: Path) -> Path:
    """Write the program that SuperNodes start in place of Flower's where the folder comes first in their path."""
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / NAME
    command = [sys.executable, *ALONE, "-c", f"from {__name__} import main; main()"]
    program.write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n')
    program.chmod(0o700)
    return folder.absolute()


def main() -> None:
    """Be `flower-superexec`, with its arguments, but for the executor."""
    run_with(WarmExecutor)
