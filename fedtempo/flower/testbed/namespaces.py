"""Network namespaces: a host of its own for each node, on one bridge, and all gone afterwards. They need root."""

import os
import secrets
import shutil
import subprocess

from fedtempo.checks import InputError
from fedtempo.flower.startable import Startable
from fedtempo.flower.testbed.sweeper import Sweeper

MOST_NODES, DEVICE = 250, "eth0"


class Namespaces(Startable):
    """Hosts behind a bridge: the server's side has the first address, the nodes those that follow."""

    def __init__(self, count: int) -> None:
        """Choose names and a net that nobody else here is likely to have."""
        if count > MOST_NODES:
            raise InputError(name="netns", rule=f"have at most {MOST_NODES} nodes", got=count)
        if os.geteuid() != 0 or shutil.which("ip") is None:
            raise InputError(
                name="netns",
                rule="have root and the command ip (package iproute2)",
                got="neither or one",
                remedy="leave it out",
            )
        tag = secrets.token_hex(2)
        self.bridge, self.names = f"ft{tag}", [f"ft{tag}-{number}" for number in range(count)]
        self._sweeper = Sweeper()
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

    def start(self) -> None:
        """Make them."""
        self._sweeper.start()
        try:
            self._sweeper.order("ip", "link", "delete", self.bridge)
            _ip("link", "add", self.bridge, "type", "bridge")
            _ip("address", "add", f"{self.server}/24", "dev", self.bridge)
            _ip("link", "set", self.bridge, "up")
            for number, name in enumerate(self.names):
                outside = f"{self.bridge}v{number}"
                self._sweeper.order("ip", "netns", "delete", name)
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
            self.stop()
            raise

    def stop(self) -> None:
        """Remove them."""
        self._sweeper.stop()


def _ip(*arguments: str) -> None:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, timeout=30, check=False)
    if done.returncode:
        raise InputError(name="netns", rule="have a machine that allows network namespaces", got=done.stderr.strip())
