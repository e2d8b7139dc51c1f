"""A shaped uplink for devices elsewhere, with its control for the server's process and a token that opens it."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fedtempo.flower.credentials import write_secret
from fedtempo.flower.link.control import LinkServer
from fedtempo.flower.link.shaped import ShapedLink


@dataclass(frozen=True, kw_only=True, slots=True)
class LinkRequest:
    """A link between SuperNodes and a SuperLink."""

    superlink: tuple[str, int]  # host and port
    rates: Sequence[float]  # Mbit/s of each client alone on the whole link
    token: Path  # the file to write the token to
    host: str = "127.0.0.1"  # at which nodes reach this machine
    first_port: int = 0  # of client 0, the others follow; 0: any free ones
    port: int = 0  # of the control, on the loopback address; 0: any free one


@dataclass(frozen=True, slots=True)
class ServedLink:
    """Where a link that runs can be reached."""

    ports: list[int]  # of each client
    control: tuple[str, int]


@contextmanager
def serve_link(request: LinkRequest) -> Iterator[ServedLink]:
    """Run a link for the time of a block."""
    rates = [1e6 * rate for rate in request.rates]
    shaped = ShapedLink(request.superlink, rates, host=request.host, first_port=request.first_port)
    with shaped, LinkServer(shaped, port=request.port) as control:
        request.token.unlink(missing_ok=True)  # one that exists may be open to others
        write_secret(request.token, control.token.encode())
        yield ServedLink(shaped.ports, control.address)
