"""A SuperLink: lets registered nodes in, and runs apps on them."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from flwr.app import UserConfigValue

from fedtempo.checks import InputError, check_positive
from fedtempo.flower.credentials import Credentials
from fedtempo.flower.inner.control import Control, ControlError, RunStatus
from fedtempo.flower.log import without_colours
from fedtempo.flower.testbed.ports import free_port, host_and_port
from fedtempo.flower.testbed.watched import FlowerProcess, ProcessError

ENDED = ("completed", "failed", "stopped")  # statuses of a run
POLL_SECONDS = 1.0


@dataclass(frozen=True, kw_only=True, slots=True)
class AppRun:
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
        """Take the address as `host` or `host:port`; without a port a free one is found at the start."""
        super().__init__("superlink", folder, prefix=prefix, environment=environment)
        self.credentials = credentials
        self.host, self._given_port = host_and_port(address)
        self._port = self._given_port

    @property
    def port(self) -> int:
        """Where it listens; certain once it is ready, where the port was left open."""
        if self._port is None:
            self._port = free_port(self.host)
        return self._port

    @property
    def address(self) -> str:
        """Where it listens, with its host."""
        return f"{self.host}:{self.port}"

    def wait_until_ready(self, timeout: float = 60.0) -> None:
        """Wait until it answers, at most so many seconds."""
        self._start_until_ready(r"Uvicorn running on", timeout)

    def register(self, public_key: Path | str) -> int:
        """Let in the SuperNode that holds the key; return its node id, the same each time for the same key."""
        try:
            key = serialization.load_ssh_public_key(Path(public_key).read_bytes())
        except ValueError:
            raise InputError(name="public_key", rule="be a public key in OpenSSH format", got=f"{public_key}") from None
        pem = key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
        with self._control() as control:
            return control.register(pem)

    def nodes(self) -> dict[int, str]:
        """Return what the SuperLink holds of each registered node: `registered`, `online` or `offline`.

        A node that was killed counts as online for up to a minute: until two heartbeats are missing.
        """
        with self._control() as control:
            return control.nodes()

    def run_app(
        self, app: Path | str, run_config: Mapping[str, UserConfigValue] | None = None, *, timeout: float
    ) -> AppRun:
        """Run the app in a folder and wait for its end; stop the run if it takes longer (s), or on Ctrl-C.

        The folder holds a `pyproject.toml` with `[tool.flwr.app]`. Keys of `run_config` must stand in it too.
        """
        app = Path(app)
        if not (app / "pyproject.toml").is_file():
            raise InputError(name="app", rule="be a folder with a pyproject.toml", got=f"{app}")
        deadline = time.monotonic() + check_positive("timeout", timeout)
        run_id = self.start_run(app, run_config)
        with self.stopped_on_error(run_id):
            while (status := self.run_status(run_id)).status not in ENDED:
                if not self.running:
                    raise ProcessError(self._quoting_log("ended before the run did"))
                if time.monotonic() > deadline:
                    raise ProcessError(self._quoting_log(f"has not finished run {run_id} after {timeout:g} s"))
                time.sleep(POLL_SECONDS)
            return AppRun(run_id=run_id, status=status.status, details=status.details, log=self.run_log(run_id))

    def start_run(self, app: Path | str, run_config: Mapping[str, UserConfigValue] | None = None) -> int:
        """Start a run of the app in a folder; return its id."""
        with self._control() as control:
            return control.start_run(Path(app), run_config or {})

    def run_status(self, run_id: int) -> RunStatus:
        """Return where a run is."""
        with self._control() as control:
            return control.run_status(run_id)

    def run_log(self, run_id: int) -> str:
        """Return what the ServerApp of a run that has ended wrote."""
        with self._control() as control:
            return without_colours(control.run_log(run_id))

    def stop_run(self, run_id: int) -> None:
        """Stop a run."""
        with self._control() as control:
            control.stop_run(run_id)

    @contextmanager
    def stopped_on_error(self, run_id: int) -> Iterator[None]:
        """Stop a run if the block ends with an error; without an answer it ends with the SuperLink."""
        try:
            yield
        except BaseException:
            with suppress(ProcessError):
                self.stop_run(run_id)
            raise

    @contextmanager
    def _control(self) -> Iterator[Control]:
        """Talk to the SuperLink; what it answers with an error, or not at all, becomes a ProcessError."""
        if not self.running:
            raise ProcessError(self._quoting_log("does not run"))
        try:
            yield Control(self.address, self.credentials.ca_certificate.read_bytes())
        except ControlError as error:
            raise ProcessError(self._quoting_log(str(error))) from error

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
        if self._given_port is None:
            self._port = free_port(self.host)
        return self._given_port is None
