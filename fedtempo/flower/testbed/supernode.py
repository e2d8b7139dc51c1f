"""A SuperNode, which proves by its key who it is."""

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from flwr.app import UserConfigValue

from fedtempo.checks import InputError
from fedtempo.flower.testbed.ports import free_port
from fedtempo.flower.testbed.watched import POLL, FlowerProcess, ProcessError

LOOPBACK = "127.0.0.1"


class RefusedError(ProcessError):
    """A SuperNode that the SuperLink does not let in: its key is unknown, or still counts as connected."""


class SuperNode(FlowerProcess):
    """One device of a federation."""

    def __init__(
        self,
        number: int,
        key: Path | str,
        address: str,
        node_config: Mapping[str, UserConfigValue],
        *,
        folder: Path | str,
        ca_certificate: Path | str,
        prefix: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        programs: Sequence[Path] = (),
    ) -> None:
        """Take the private key's path, the SuperLink's address as `host:port` and what the ClientApp reads there.

        ``programs``: folders of programs that are started in place of Flower's of the same name.
        """
        super().__init__(f"supernode-{number}", folder, prefix=prefix, environment=environment, programs=programs)
        self.number = number
        self._key = Path(key).resolve()
        self._ca_certificate = Path(ca_certificate).resolve()
        self._superlink = address
        self._node_config = " ".join(f"{name}={_toml(name, value)}" for name, value in node_config.items())
        self._port: int | None = None  # between the SuperNode and its executor, once started

    def wait_until_ready(self, timeout: float = 60.0, *, insist: bool = False) -> int:
        """Wait until the SuperLink has let it in, at most so many seconds; return its node id.

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
        if self._port is None:
            self._port = free_port(LOOPBACK)
        return [
            "flower-supernode",
            *("--superlink", self._superlink),
            *("--root-certificates", str(self._ca_certificate)),
            *("--auth-supernode-private-key", str(self._key)),
            *("--port", str(self._port)),
            *(("--node-config", self._node_config) if self._node_config else ()),
        ]

    def _take_other_port(self) -> bool:
        self._port = free_port(LOOPBACK)
        return True


def _toml(name: str, value: UserConfigValue) -> str:
    if isinstance(value, str) and ('"' in value or "\\" in value or not value.isprintable()):
        raise InputError(name=name, rule="be text without quotes, backslashes and line ends", got=repr(value))
    return json.dumps(value, ensure_ascii=False)
