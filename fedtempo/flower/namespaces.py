"""Network namespaces: a host of its own for each node, on one bridge, and all gone afterwards. They need root."""

import os
import secrets
import shutil
import subprocess
from types import TracebackType
from typing import Self

from fedtempo.checks import InputError

MOST_NODES, DEVICE = 250, "eth0"


class Namespaces:
    """Hosts behind a bridge: the server's side has the first address, node i the one that ``address`` tells."""

    def __init__(self, count: int) -> None:
        """Choose names and a net that nobody else here is likely to have."""
        if count > MOST_NODES:
            raise InputError(f"--netns takes at most {MOST_NODES} nodes, got {count}")
        if os.geteuid() != 0 or shutil.which("ip") is None:
            raise InputError(
                "--netns needs root and the command ip (package iproute2), got neither or one; leave it out"
            )
        tag = secrets.token_hex(2)
        self.bridge, self.names = f"ft{tag}", [f"ft{tag}-{number}" for number in range(count)]
        self.net = f"10.{200 + secrets.randbelow(50)}.{secrets.randbelow(256)}"

    @property
    def server(self) -> str:
        """The server's address."""
        return f"{self.net}.1"

    def prefix(self, number: int) -> list[str]:
        """Return what runs a command as node i."""
        return ["ip", "netns", "exec", self.names[number]]

    def place(self, number: int) -> tuple[str, str]:
        """Return the namespace and the device of node i."""
        return self.names[number], DEVICE

    def __enter__(self) -> Self:
        """Make them."""
        try:
            _ip("link", "add", self.bridge, "type", "bridge")
            _ip("address", "add", f"{self.server}/24", "dev", self.bridge)
            _ip("link", "set", self.bridge, "up")
            for number, name in enumerate(self.names):
                outside = f"{self.bridge}v{number}"
                _ip("netns", "add", name)
                _ip("link", "add", outside, "type", "veth", "peer", "name", DEVICE, "netns", name)
                _ip("link", "set", outside, "master", self.bridge, "up")
                for command in (
                    ("address", "add", f"{self.net}.{number + 2}/24", "dev", DEVICE),
                    ("link", "set", "dev", DEVICE, "up"),
                    ("link", "set", "dev", "lo", "up"),
                ):
                    _ip("-n", name, *command)
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Remove them."""
        self._remove()

    def _remove(self) -> None:
        for name in self.names:
            _ip("netns", "delete", name, check=False)
        _ip("link", "delete", self.bridge, check=False)


def _ip(*arguments: str, check: bool = True) -> None:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, timeout=30, check=False)
    if check and done.returncode:
        raise InputError(f"--netns needs a machine that allows network namespaces, got: {done.stderr.strip()}")
