"""The uplink that clients share: who may send how fast, and how long their uploads took.

A ``ShapedLink`` stands beside the server and has one port for each client. What a client sends through its port
reaches the server at the rate of its share; what the server sends back passes unshaped. Back-pressure does the shaping:
the link reads from a socket only as fast as it may send on, so bytes wait at the client.

- Client i with the share f_i sends f_i R_i bits/s: R_i is what it reaches alone with one unit of bandwidth.
- ``paper`` gives each member its own constant share, ``equal`` the same share f_tot/K to each, ``shared`` the whole
  bandwidth to whoever began its upload first, while the others wait in line.
- Bulk is a flight (the bytes on one connection until an answer comes; for HTTP, one request) of more than
  ``control_size`` bytes. Anything smaller is control traffic and passes at once, whoever sends it, up to 64 KiB and
  then 4 KiB/s for each client; what goes beyond that is bulk, too.
- Bulk of a client that has no share trickles with 2 % of the whole bandwidth, so that nobody hangs for ever.
- An upload begins when the first byte of bulk reaches the link after the allotment, even if it has to wait in line, and
  ends when the last one has been handed to the server's socket. All bulk in between is one upload, over however many
  requests and connections; they share the client's rate.
- The client's own kernel may take up to about 1 MB from its program before that has to wait, as on any uplink. An HTTP
  client that gives up when it hears nothing for T seconds needs at least that much over T as its rate.
"""

import asyncio
import socket
import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

from fedtempo.checks import InputError, check_count, check_positive
from fedtempo.flower.link.allotment import check_allotment, check_client_numbers, check_rates
from fedtempo.flower.link.connection import Connection, Near
from fedtempo.flower.link.shaping import TRICKLE, Client, Lane, Upload
from fedtempo.flower.startable import Startable
from fedtempo.theory.bandwidth import LinkMode

CONTROL_SIZE = 4_096  # bytes of the largest flight that is control traffic
RECEIVE_BUFFER = 16_384  # bytes asked for; the kernel takes twice as much, about half of it for its own records
SEGMENT_BYTES = 1_460  # as on Ethernet; a loopback segment would be larger than the whole receive buffer
ANSWER_TIMEOUT = 30.0  # s for the link's own thread to answer

Result = TypeVar("Result")


class ShapedLink(Startable):
    """A proxy that shapes what clients send to a server: a port for each client, no privileges, any TCP protocol."""

    def __init__(
        self,
        upstream: tuple[str, int],
        rates: Sequence[float],
        *,
        total_bandwidth: float = 1.0,
        host: str = "127.0.0.1",
        first_port: int = 0,
        control_size: int = CONTROL_SIZE,
    ) -> None:
        """Set up a link to the server at ``upstream``; client i reaches rates[i] bits/s with one unit of bandwidth.

        It listens for client i on ``first_port`` + i, or on any free port where that is 0.
        """
        self.ports: list[int] = []  # of each client, once started
        self._first_port = first_port
        self._upstream, self._host = upstream, host
        self._rates = check_rates(rates)
        self._total = check_positive("total_bandwidth", total_bandwidth)
        self._control_size = check_count("control_size", control_size)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Listen on a port for each client."""
        if self._thread is not None:
            raise RuntimeError("the link has been started already")
        sockets: list[socket.socket] = []
        try:
            for number in range(len(self._rates)):
                sockets.append(_listening(self._host, self._first_port + number if self._first_port else 0))
        except OSError as error:
            for opened in sockets:
                opened.close()
            ports = f" and ports from {self._first_port} on free" if self._first_port else ""
            raise InputError(
                name="host", rule=f"be an address of this machine{ports}", got=f"{self._host!r}: {error}"
            ) from error
        self._loop = loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=loop.run_forever, name="fedtempo-link", daemon=True)
        self._thread.start()
        self.ports = [listening.getsockname()[1] for listening in sockets]
        asyncio.run_coroutine_threadsafe(self._open(loop, sockets), loop).result(ANSWER_TIMEOUT)

    def stop(self) -> None:
        """Cut all connections off, and leave no thread, socket or task behind."""
        if self._loop is None or self._thread is None:
            return
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(ANSWER_TIMEOUT)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._loop = self._thread = None
        self.ports = []

    def allot(self, members: Sequence[int], mode: LinkMode, shares: Sequence[float] | None = None) -> None:
        """Say how these clients upload next: see ``Link.allot``."""
        allotted = check_allotment(members, mode, shares, num_clients=len(self._rates), total_bandwidth=self._total)

        def give() -> None:
            for member, share in allotted.items():
                self._clients[member].allot(share, self._line if mode == "shared" else None)

        self._in_loop(give)

    def measured(self, clients: Sequence[int]) -> dict[int, Upload]:
        """Return what these clients have uploaded since they were allotted: see ``Link.measured``."""
        numbers = check_client_numbers("clients", clients, len(self._rates))
        uploads = self._in_loop(lambda: [self._clients[number].measured() for number in numbers])
        return {number: upload for number, upload in zip(numbers, uploads, strict=True) if upload is not None}

    @property
    def open_connections(self) -> int:
        """How many connections of clients are open."""
        return self._in_loop(lambda: sum(len(client.open) for client in self._clients))

    def _in_loop(self, work: Callable[[], Result]) -> Result:
        """Do something in the link's thread, which alone touches clients and connections."""
        if self._loop is None:
            raise RuntimeError("the link must be started before it is used; enter it as a context manager")

        async def run() -> Result:
            return work()

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(ANSWER_TIMEOUT)

    async def _open(self, loop: asyncio.AbstractEventLoop, sockets: Sequence[socket.socket]) -> None:
        trickle = TRICKLE * self._total
        self._clients = [Client(loop, rate, trickle, self._control_size) for rate in self._rates]
        self._line = Lane(loop)
        self._servers = []
        for client, listening in zip(self._clients, sockets, strict=True):
            self._servers.append(await loop.create_server(self._accept(client), sock=listening))

    def _accept(self, client: Client) -> Callable[[], Near]:
        return lambda: Near(Connection(client, self._upstream))

    async def _close(self) -> None:
        for server in self._servers:
            server.close()
        attempts = asyncio.all_tasks() - {asyncio.current_task()}  # to accept a client, to connect to the server
        while attempts or any(client.open for client in self._clients):
            for connection in [connection for client in self._clients for connection in client.open]:
                connection.reset()
            await asyncio.sleep(0)
            attempts = {attempt for attempt in attempts if not attempt.done()}
        for lane in (self._line, *(client.own_lane for client in self._clients)):
            lane.close()
        await asyncio.get_running_loop().shutdown_default_executor()


def _listening(host: str, port: int) -> socket.socket:
    """Return a socket that accepts connections with a small window, so that it takes little in before it holds back."""
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    listening = socket.socket(family, kind, protocol)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # after a restart, connections may still linger
        # Accepted sockets inherit both; after listen() it would be too late for the window.
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, SEGMENT_BYTES)
        listening.bind(address)
        listening.listen()
    except OSError:
        listening.close()
        raise
    return listening
