"""A process that is ended with all that it starts in turn, however the one that started it ends.

A SuperLink starts an executor, in a session of its own, which starts a ServerApp for each run; a SuperNode's executor
starts a ClientApp for each message, and a ClientApp may outlive both. So all of them carry a mark in their environment,
by which they are found and ended. On Linux a watcher stands beside each process and ends what carries its mark when the
process is gone, or when the one that called `start` is, however that one ended.

Every wait for a process has a limit; every error quotes the end of its log.
"""

import os
import re
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from fedtempo.checks import check_positive
from fedtempo.flower.log import without_colours
from fedtempo.flower.startable import Startable

MARK = "FEDTEMPO_PROCESS"  # the environment variable that all processes of one tree carry
OFFLINE = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
START_ATTEMPTS = 5  # with another port each time, where somebody else took it meanwhile

_LINES_QUOTED = 15
POLL = 0.1  # s
_CHATTER = re.compile(r"\[uvicorn\.access\]|ControlServicer\.\w+$")  # a line for each request

# Forks a watcher, then becomes the command. The watcher needs nothing but the standard library, so it is small.
_WATCHED = """
import os, select, signal, sys, time

caller, mark = int(sys.argv[1]), sys.argv[2].encode()

def marked():
    for name in os.listdir("/proc"):
        try:
            if name.isdigit() and int(name) != os.getpid():
                with open(f"/proc/{name}/environ", "rb") as environment:
                    if mark in environment.read().split(bytes(1)):
                        yield int(name)
        except OSError:
            pass

try:
    ends = [os.pidfd_open(caller), os.pidfd_open(os.getpid())]
except (AttributeError, OSError):  # another system, or a Linux before 5.3
    ends = []
if os.getppid() != caller:
    sys.exit("the process that asked for this one is gone")
if ends and os.fork() == 0:
    select.select(ends, [], [])
    while left := list(marked()):
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass
        time.sleep(0.1)
    os._exit(0)
try:
    os.execvp(sys.argv[3], sys.argv[3:])
except OSError as error:
    sys.exit(f"{sys.argv[3]} cannot be started: {error.strerror}")
"""


class ProcessError(RuntimeError):
    """A process that did not do what it was started for. The message quotes the end of its log."""


class FlowerProcess(Startable):
    """One process and all that it starts in turn; as a context, started on entry and ended on exit."""

    def __init__(
        self,
        name: str,
        folder: Path | str,
        *,
        prefix: Sequence[str],
        environment: Mapping[str, str] | None,
        programs: Sequence[Path] = (),
    ) -> None:
        """Keep log and state in the folder. The prefix goes before the command, e.g. `ip netns exec NAME`.

        ``programs``: folders of programs that are started in place of Flower's of the same name.
        """
        self.name = name
        self.folder = Path(folder).resolve()
        self.log_path = self.folder / f"{name}.log"
        self._prefix = tuple(prefix)
        self._environment = dict(environment or {})
        self._programs = [*map(str, programs), os.path.dirname(sys.executable)]
        self._mark = ""
        self._process: subprocess.Popen[bytes] | None = None
        self._log_start = 0
        self._changing = threading.RLock()  # who starts a process again waits until one who kills it is done

    @property
    def running(self) -> bool:
        """Whether the process itself runs."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int | None:
        """The process id while it runs."""
        return self._process.pid if self._process is not None and self.running else None

    @property
    def log(self) -> str:
        """What the process and all that it started have written since the last start."""
        if not self.log_path.exists():
            return ""
        with open(self.log_path, "rb") as stream:
            stream.seek(self._log_start)
            return without_colours(stream.read().decode(errors="replace"))

    def start(self) -> None:
        """Start the process; `wait_until_ready` tells when it can be used."""
        with self._changing:
            self._start()

    def _start(self) -> None:
        if self.running:
            raise ProcessError(f"{self.name} runs already")
        _end_tree(self)  # what a process that died by itself may have left behind
        home = self.folder / f"{self.name}-home"  # Flower unpacks apps there; shared, two nodes would do so at once
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        environment = os.environ | OFFLINE | {"FLWR_HOME": str(home), "PYTHONUNBUFFERED": "1"} | self._environment
        self._mark = environment[MARK] = secrets.token_hex(16)  # a new one, unknown to an earlier watcher
        # Flower finds its executors and apps by name: those of this environment must come first.
        environment["PATH"] = os.pathsep.join((*self._programs, environment.get("PATH", os.defpath)))
        watched = [sys.executable, "-I", "-S", "-c", _WATCHED, str(os.getpid()), f"{MARK}={self._mark}"]
        with open(self.log_path, "ab") as log:
            self._log_start = log.tell()
            self._process = subprocess.Popen(
                [*watched, *self._prefix, *self._command()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,  # Ctrl-C in a terminal is for the caller, who then ends this in order
            )

    def stop(self, grace: float = 10.0) -> None:
        """Ask the process to end, then end it and all that it started. Does nothing where it does not run."""
        stop_all([self], grace)

    def kill(self) -> None:
        """End the process and all that it started at once and without a word, as a power cut would."""
        with self._changing:
            if self.running and self._process is not None:
                self._process.kill()
            _end_tree(self)

    def _command(self) -> list[str]:
        raise NotImplementedError

    def _wait_for_line(self, pattern: str, timeout: float) -> re.Match[str]:
        """Wait for a line of the log; raise if the process ends before it or does not write it in time."""
        if self._process is None:
            raise ProcessError(f"{self.name} has not been started")
        deadline = time.monotonic() + check_positive("timeout", timeout)
        while True:
            ended = self._process.poll() is not None  # before the log is read, so that no last line is missed
            if match := re.search(pattern, self.log):
                return match
            if ended:
                raise ProcessError(self._quoting_log(f"ended with code {self._process.returncode} before it was ready"))
            if time.monotonic() > deadline:
                raise ProcessError(self._quoting_log(f"was not ready after {timeout:g} s"))
            time.sleep(POLL)

    def _start_until_ready(self, pattern: str, timeout: float) -> re.Match[str]:
        """Wait for a line of the log; where the port was taken meanwhile, start again with another one."""
        deadline = time.monotonic() + timeout
        for attempt in range(1, START_ATTEMPTS + 1):
            try:
                return self._wait_for_line(pattern, max(POLL, deadline - time.monotonic()))
            except ProcessError:
                collided = not self.running and "address already in use" in self.log
                if attempt == START_ATTEMPTS or not (collided and self._take_other_port()):
                    raise
                self.start()
        raise AssertionError("the last attempt returns or raises")

    def _take_other_port(self) -> bool:
        """Choose another port, if it is free to choose."""
        return False

    def _quoting_log(self, what: str) -> str:
        """Return a message that quotes the end of the log."""
        lines = [line for line in self.log.splitlines() if line.strip() and not _CHATTER.search(line)][-_LINES_QUOTED:]
        quoted = "".join(f"\n  | {line}" for line in lines) or " (it is empty)"
        return f"{self.name} {what}; the end of {self.log_path}:{quoted}"


def stop_all(processes: Iterable[FlowerProcess], grace: float = 10.0) -> None:
    """Ask all of them to end, wait for `grace` seconds in all, then end them and all that they started."""
    processes = list(processes)
    try:
        for process in processes:
            if process.running and process._process is not None:
                process._process.terminate()
        deadline = time.monotonic() + grace
        for process in processes:
            if process._process is not None:
                with suppress(subprocess.TimeoutExpired):
                    process._process.wait(max(0.0, deadline - time.monotonic()))
    finally:
        _end_tree(*processes)


def _end_tree(*processes: FlowerProcess) -> None:
    """End every process that carries a mark of theirs, until there is none."""
    marks = {process._mark for process in processes if process._process is not None}
    deadline = time.monotonic() + 10
    while marks and (left := _marked(marks)):
        for process in left:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(left, timeout=1)
        if time.monotonic() > deadline:
            raise ProcessError(f"processes {[process.pid for process in left]} do not end, not even by SIGKILL")
    for process in processes:
        if process._process is not None:
            process._process.kill()  # where its environment cannot be read, as behind sudo
            process._process.wait(10)


def _marked(marks: set[str]) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):  # it ended meanwhile, or belongs to somebody else
            if process.environ().get(MARK) in marks and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found
