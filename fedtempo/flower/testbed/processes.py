"""Flower's own processes: a SuperLink, and SuperNodes that prove who they are."""

import hashlib
import json
import secrets
import socket
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx
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
from fedtempo.flower.testbed.watched import COLOURS, POLL, FlowerProcess, ProcessError

Setting = bool | int | float | str

# Below the range from which systems draw ports for outgoing connections, so that none of those comes in between.
_PORTS = range(20_000, 32_768)


class RefusedError(ProcessError):
    """A SuperNode that the SuperLink does not let in: its key is unknown, or still counts as connected."""


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
            raise InputError(name="public_key", rule="be a public key in OpenSSH format", got=f"{public_key}") from None
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
            raise InputError(name="app", rule="be a folder with a pyproject.toml", got=f"{app}")
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
            raise InputError(name="app", rule="be a Flower app", got=f"{app}: {error}") from None
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
        return COLOURS.sub("", "".join(parts))

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
        programs: Sequence[Path] = (),
    ) -> None:
        """Take the private key's path, the SuperLink's address as `host:port` and what the ClientApp reads there."""
        super().__init__(f"supernode-{number}", folder, prefix=prefix, environment=environment, programs=programs)
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
                match = self._start_until_ready(r"SuperNode ID: (\d+)", max(POLL, deadline - time.monotonic()))
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
            name="address", rule="be a host or host:port by which SuperNodes reach the SuperLink", got=repr(address)
        )
    return host, int(port) if colon else None


def _toml(name: str, value: Setting) -> str:
    if isinstance(value, str) and ('"' in value or "\\" in value or not value.isprintable()):
        raise InputError(name=name, rule="be text without quotes, backslashes and line ends", got=repr(value))
    return json.dumps(value, ensure_ascii=False)
