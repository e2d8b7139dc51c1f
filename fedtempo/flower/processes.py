"""Flower's own processes, a SuperLink and SuperNodes: started, watched, ended with all that they start in turn.

A SuperLink starts an executor, in a session of its own, which starts a ServerApp for each run; a SuperNode's executor
starts a ClientApp for each message, and a ClientApp may outlive both. So all of them carry a mark in their environment,
by which they are found and ended. On Linux a watcher stands beside each process and ends what carries its mark when the
process is gone, or when the one that called `start` is, however that one ended.

Every wait for a process has a limit; every error quotes the end of its log.
"""

import hashlib
import json
import os
import re
import secrets
import socket
import subprocess
import sys
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import httpx
import psutil
from cryptography.hazmat.primitives import serialization
from flwr.cli.build import build_fab_from_disk
from flwr.common.serde import fab_to_proto, user_config_to_proto
from flwr.proto.control_pb2 import (
    ListNodesRequest,
    ListRunsRequest,
    RegisterNodeRequest,
    StartRunRequest,
    StopRunRequest,
    StreamLogsRequest,
)
from flwr.supercore.control import ControlHttpClient
from flwr.supercore.error import ApiErrorCode, FlowerError
from flwr.supercore.fab import Fab

from fedtempo.checks import InputError, check_positive
from fedtempo.flower.credentials import Credentials

Setting = bool | int | float | str

MARK = "FEDTEMPO_PROCESS"  # the environment variable that all processes of one tree carry
OFFLINE = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
START_ATTEMPTS = 5  # with another port each time, where somebody else took it meanwhile

# Below the range from which systems draw ports for outgoing connections, so that none of those comes in between.
_PORTS = range(20_000, 32_768)
_LINES_QUOTED = 15
_POLL = 0.1  # s
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
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


class RefusedError(ProcessError):
    """A SuperNode that the SuperLink does not let in: its key is unknown, or still counts as connected."""


class FlowerProcess:
    """One process and all that it starts in turn; as a context, started on entry and ended on exit."""

    def __init__(
        self, name: str, folder: Path | str, *, prefix: Sequence[str], environment: Mapping[str, str] | None
    ) -> None:
        """Keep log and state in the folder. The prefix goes before the command, e.g. `ip netns exec NAME`."""
        self.name = name
        self.folder = Path(folder).resolve()
        self.log_path = self.folder / f"{name}.log"
        self._prefix = tuple(prefix)
        self._environment = dict(environment or {})
        self._mark = ""
        self._process: subprocess.Popen[bytes] | None = None
        self._log_start = 0

    def __enter__(self) -> Self:
        """Start."""
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End the process and all that it started, in whatever way the block ended."""
        self.stop()

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
            return _COLOURS.sub("", stream.read().decode(errors="replace"))

    def start(self) -> None:
        """Start the process; `wait_until_ready` tells when it can be used."""
        if self.running:
            raise ProcessError(f"{self.name} runs already")
        _end_tree(self)  # what a process that died by itself may have left behind
        home = self.folder / f"{self.name}-home"  # Flower unpacks apps there; shared, two nodes would do so at once
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        programs = os.path.dirname(sys.executable)
        environment = os.environ | OFFLINE | {"FLWR_HOME": str(home), "PYTHONUNBUFFERED": "1"} | self._environment
        self._mark = environment[MARK] = secrets.token_hex(16)  # a new one, unknown to an earlier watcher
        # Flower finds its executors and apps by name: those of this environment must come first.
        environment["PATH"] = os.pathsep.join((programs, environment.get("PATH", os.defpath)))
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
                raise ProcessError(self._say(f"ended with code {self._process.returncode} before it was ready"))
            if time.monotonic() > deadline:
                raise ProcessError(self._say(f"was not ready after {timeout:g} s"))
            time.sleep(_POLL)

    def _start_until_ready(self, pattern: str, timeout: float) -> re.Match[str]:
        """Wait for a line of the log; where the port was taken meanwhile, start again with another one."""
        deadline = time.monotonic() + timeout
        for attempt in range(1, START_ATTEMPTS + 1):
            try:
                return self._wait_for_line(pattern, max(_POLL, deadline - time.monotonic()))
            except ProcessError:
                collided = not self.running and "address already in use" in self.log
                if attempt == START_ATTEMPTS or not (collided and self._take_other_port()):
                    raise
                self.start()
        raise AssertionError("the last attempt returns or raises")

    def _take_other_port(self) -> bool:
        """Choose another port, if it is free to choose."""
        return False

    def _say(self, what: str) -> str:
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


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """A run of an app that has ended."""

    run_id: int
    status: str  # completed, failed or stopped
    details: str  # why, where it failed
    log: str  # what the ServerApp wrote

    @property
    def completed(self) -> bool:
        """Whether the ServerApp ended without an error."""
        return self.status == "completed"


class SuperLink(FlowerProcess):
    """A SuperLink with TLS, to which none but registered SuperNodes are let in.

    Node ids and runs are kept in the folder: a SuperLink that is started again there knows its nodes. It listens on one
    port, for SuperNodes and for those who control it; whoever can reach that port can register keys and start runs.
    """

    def __init__(
        self,
        folder: Path | str,
        address: str,
        credentials: Credentials,
        *,
        prefix: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Take the address as `host` or `host:port`; without a port a free one is found."""
        super().__init__("superlink", folder, prefix=prefix, environment=environment)
        self.credentials = credentials
        self.host, port = _host_and_port(address)
        self._port_is_given = port is not None
        self.port = port or free_port(self.host)

    @property
    def address(self) -> str:
        """Where it listens; certain once it is ready, where the port was left open."""
        return f"{self.host}:{self.port}"

    def wait_until_ready(self, timeout: float = 60.0) -> None:
        """Wait until it answers."""
        self._start_until_ready(r"Uvicorn running on", timeout)

    def register(self, public_key: Path | str) -> int:
        """Let in the SuperNode that holds the key; return its node id, the same each time for the same key."""
        try:
            key = serialization.load_ssh_public_key(Path(public_key).read_bytes())
        except ValueError:
            raise InputError(f"public_key must be a public key in OpenSSH format, got {public_key}") from None
        pem = key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
        with self._control() as control:
            try:
                return control.RegisterNode(RegisterNodeRequest(public_key=pem)).node_id
            except httpx.HTTPStatusError as error:
                answer = FlowerError.from_json(error.response.text)
                if answer is None or answer.code != ApiErrorCode.PUBLIC_KEY_ALREADY_IN_USE:
                    raise
            known = control.ListNodes(ListNodesRequest()).nodes_info
            return next(int(node.node_id) for node in known if node.public_key == pem)

    def nodes(self) -> dict[int, str]:
        """Return what the SuperLink holds of each registered node: `registered`, `online` or `offline`.

        A node that was killed counts as online for up to a minute: until two heartbeats are missing.
        """
        with self._control() as control:
            return {node.node_id: node.status for node in control.ListNodes(ListNodesRequest()).nodes_info}

    def run_app(self, app: Path | str, run_config: Mapping[str, Setting] | None = None, *, timeout: float) -> Run:
        """Run the app in a folder and wait for its end; stop the run if it takes longer, or on Ctrl-C.

        The folder holds a `pyproject.toml` with `[tool.flwr.app]`. Keys of `run_config` must stand in it too.
        """
        app = Path(app)
        if not (app / "pyproject.toml").is_file():
            raise InputError(f"app must be a folder with a pyproject.toml, got {app}")
        deadline = time.monotonic() + check_positive("timeout", timeout)
        run_id = self.start_run(app, run_config)
        try:
            while (status := self.run_status(run_id))[0] not in ("completed", "failed", "stopped"):
                if not self.running:
                    raise ProcessError(self._say("ended before the run did"))
                if time.monotonic() > deadline:
                    raise ProcessError(self._say(f"has not finished run {run_id} after {timeout:g} s"))
                time.sleep(1)
            return Run(run_id=run_id, status=status[0], details=status[1], log=self.run_log(run_id))
        except BaseException:
            with suppress(ProcessError, httpx.HTTPError):
                self.stop_run(run_id)
            raise

    def start_run(self, app: Path | str, run_config: Mapping[str, Setting] | None = None) -> int:
        """Start a run of the app in a folder; return its id."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # flwr 1.41 uses an old name of pathspec's
                content = build_fab_from_disk(Path(app))
        except ValueError as error:
            raise InputError(f"app must be a Flower app, got {app}: {error}") from None
        fab = Fab(hashlib.sha256(content).hexdigest(), content, {})
        overrides = user_config_to_proto(dict(run_config or {}))
        request = StartRunRequest(fab=fab_to_proto(fab), override_config=overrides)
        with self._control() as control:
            return control.StartRun(request).run_id

    def run_status(self, run_id: int) -> tuple[str, str]:
        """Return the status of a run, and why, where there is more to say."""
        with self._control() as control:
            status = control.ListRuns(ListRunsRequest(run_id=run_id)).run_dict[run_id].status
        return status.sub_status or status.status, status.details

    def run_log(self, run_id: int) -> str:
        """Return what the ServerApp of a run that has ended wrote."""
        with self._control() as control:
            parts = [part.log_output for part in control.StreamLogs(StreamLogsRequest(run_id=run_id))]
        return _COLOURS.sub("", "".join(parts))

    def stop_run(self, run_id: int) -> None:
        """Stop a run."""
        with self._control() as control:
            control.StopRun(StopRunRequest(run_id=run_id))

    @contextmanager
    def _control(self) -> Iterator[ControlHttpClient]:
        """Talk to the SuperLink; what it answers with an error, or not at all, becomes a ProcessError."""
        if not self.running:
            raise ProcessError(self._say("does not run"))
        ca = self.credentials.ca_certificate.read_bytes()
        try:
            with ControlHttpClient.from_server_address(self.address, False, ca, []) as client:
                yield client
        except httpx.HTTPStatusError as error:
            answer = FlowerError.from_json(error.response.text)
            raise ProcessError(self._say(f"refused: {answer.message if answer else error}")) from error
        except httpx.TransportError as error:
            raise ProcessError(self._say(f"did not answer at {self.address} ({error})")) from error

    def _command(self) -> list[str]:
        keys = self.credentials
        return [
            "flower-superlink",
            *("--host", self.host),
            *("--port", str(self.port)),
            *("--ssl-ca-certfile", str(keys.ca_certificate.resolve())),
            *("--ssl-certfile", str(keys.server_certificate.resolve())),
            *("--ssl-keyfile", str(keys.server_key.resolve())),
            "--enable-supernode-auth",
            "--disable-runtime-dependency-installation",
            *("--database", str(self.folder / "superlink.db")),
        ]

    def _take_other_port(self) -> bool:
        if not self._port_is_given:
            self.port = free_port(self.host)
        return not self._port_is_given


class SuperNode(FlowerProcess):
    """A SuperNode, which proves by its key who it is."""

    def __init__(
        self,
        number: int,
        key: Path | str,
        address: str,
        node_config: Mapping[str, Setting],
        *,
        folder: Path | str,
        ca_certificate: Path | str,
        prefix: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Take the private key's path, the SuperLink's address as `host:port` and what the ClientApp reads there."""
        super().__init__(f"supernode-{number}", folder, prefix=prefix, environment=environment)
        self.number = number
        self._key = Path(key).resolve()
        self._ca_certificate = Path(ca_certificate).resolve()
        self._superlink = address
        self._node_config = " ".join(f"{name}={_toml(name, value)}" for name, value in node_config.items())
        self._port = free_port("127.0.0.1")  # between the SuperNode and its executor

    def wait_until_ready(self, timeout: float = 60.0, *, insist: bool = False) -> int:
        """Wait until the SuperLink has let it in; return its node id.

        A SuperLink refuses a key that it holds to be connected, and so a node that was killed and is started again,
        until two heartbeats are missing: for up to a minute. To insist is to knock until then.
        """
        deadline = time.monotonic() + timeout
        while True:
            try:
                match = self._start_until_ready(r"SuperNode ID: (\d+)", max(_POLL, deadline - time.monotonic()))
            except ProcessError as error:
                if self.running or "Failed to activate SuperNode" not in self.log:
                    raise
                if not insist or time.monotonic() > deadline:
                    raise RefusedError(str(error)) from None
                time.sleep(1)
                self.start()
            else:
                return int(match[1])

    def _command(self) -> list[str]:
        return [
            "flower-supernode",
            *("--superlink", self._superlink),
            *("--root-certificates", str(self._ca_certificate)),
            *("--auth-supernode-private-key", str(self._key)),
            *("--port", str(self._port)),
            *(("--node-config", self._node_config) if self._node_config else ()),
        ]

    def _take_other_port(self) -> bool:
        self._port = free_port("127.0.0.1")
        return True


def free_port(host: str) -> int:
    """Return a port on which nothing listens; should another program take it meanwhile, the starts here try again."""
    for _ in range(100):
        port = _PORTS.start + secrets.randbelow(len(_PORTS))
        try:
            family, kind, protocol, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            with socket.socket(family, kind, protocol) as probe:
                probe.bind(place)
        except OSError:
            continue
        return port
    raise ProcessError(f"no free port was found on {host}; is it an address of this machine?")


def _host_and_port(address: str) -> tuple[str, int | None]:
    """Split `host` or `host:port`."""
    host, colon, port = address.partition(":")
    if not host or host == "0.0.0.0" or (colon and not (port.isdigit() and 0 < int(port) < 2**16)):
        raise InputError(
            f"address must be a host or host:port by which SuperNodes reach the SuperLink, got {address!r}"
        )
    return host, int(port) if colon else None


def _toml(name: str, value: Setting) -> str:
    if isinstance(value, str) and ('"' in value or "\\" in value or not value.isprintable()):
        raise InputError(f"{name} must be text without quotes, backslashes and line ends, got {value!r}")
    return json.dumps(value, ensure_ascii=False)
