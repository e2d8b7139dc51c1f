"""Ports and addresses of processes on this machine."""

import secrets
import socket

from fedtempo.checks import InputError
from fedtempo.flower.testbed.watched import ProcessError

# Below the range from which systems draw ports for outgoing connections, so that none of those comes in between.
PORTS = range(20_000, 32_768)


def free_port(host: str) -> int:
    """Return a port on which nothing listens; should another program take it meanwhile, the starts here try again."""
    for _ in range(100):
        port = PORTS.start + secrets.randbelow(len(PORTS))
        try:
            family, kind, protocol, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            with socket.socket(family, kind, protocol) as probe:
                probe.bind(place)
        except OSError:
            continue
        return port
    raise ProcessError(f"no free port was found on {host}; is it an address of this machine?")


def host_and_port(address: str) -> tuple[str, int | None]:
    """Split `host` or `host:port`."""
    host, colon, port = address.partition(":")
    if not host or host == "0.0.0.0" or (colon and not (port.isdigit() and 0 < int(port) < 2**16)):
        raise InputError(
            name="address", rule="be a host or host:port by which SuperNodes reach the SuperLink", got=repr(address)
        )
    return host, int(port) if colon else None
