"""Connections through a shared uplink: a socket to the client, a socket to the server, and what goes between them.

Nothing here knows HTTP, since TLS may hide it. What counts is how many bytes go up on a connection before an answer
comes down: a flight. For HTTP that is one request.
"""

import asyncio
import socket
import struct
from collections import deque

from fedtempo.flower.link.shaping import Client

HELD_BYTES = 16_384  # of one connection; with more than that nothing further is read from its socket
CONNECT_TIMEOUT = 10.0  # s to reach the server


class Connection:
    """A connection from a client and its twin to the server: bytes, ends and resets go from one to the other."""

    def __init__(self, client: Client, upstream: tuple[str, int]) -> None:
        """Make a connection that leads to ``upstream`` once the client has connected."""
        self.client = client
        self.bulk = False  # the flight is more than control traffic
        self.counts = False  # the flight is part of the upload that is being measured
        self._upstream = upstream
        self._near: asyncio.Transport  # the client's side
        self._far: asyncio.Transport  # the server's side; before it is connected, nothing is read from the client
        self._connecting: asyncio.Task[None] | None = None
        self._held: deque[bytes] = deque()
        self._held_bytes = 0  # with those that a lane is sending
        self._flight, self._flight_start = 0, 0.0
        self._server_is_slow = self._client_ended = self._server_ended = self._left = False
        self._open: list[asyncio.Transport] = []

    @property
    def waiting(self) -> bool:
        """Whether bytes wait, or are on their way to the server."""
        return self._held_bytes > 0

    @property
    def ready(self) -> bool:
        """Whether bytes wait that the server would take."""
        return bool(self._held) and not self._server_is_slow

    def take(self, size: int) -> bytes:
        """Take up to so many bytes of those that wait, in order to send them."""
        first = self._held.popleft()
        if len(first) > size:
            self._held.appendleft(first[size:])
        return first[:size]

    def put_back(self, piece: bytes) -> None:
        """Let bytes wait that have been taken but not sent."""
        self._held.appendleft(piece)

    def deliver(self, piece: bytes) -> None:
        """Hand bulk to the server."""
        self._far.write(piece)
        self._held_bytes -= len(piece)
        self.client.sent_bulk(len(piece), self.counts)
        if self._held_bytes <= HELD_BYTES:
            self._near.resume_reading()
        self._pass_on_ends()

    def accepted(self, near: asyncio.Transport) -> None:
        """Connect to the server for a client that has connected."""
        self._near = near
        self._opened(near)
        near.pause_reading()
        self.client.connections.append(self)
        self._connecting = self.client.loop.create_task(self._connect())

    async def _connect(self) -> None:
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT):
                await self.client.loop.create_connection(lambda: _Far(self), *self._upstream)
        except OSError:  # no answer in time is one, too
            self._connecting = None
            self.reset()

    def connected(self, far: asyncio.Transport) -> None:
        """Begin to pass bytes on."""
        self._far = far
        self._opened(far)
        far.set_write_buffer_limits(high=HELD_BYTES)
        if self._left:
            self.reset()
        else:
            self._near.resume_reading()

    def from_client(self, data: bytes) -> None:
        """Pass a small flight on at once, and let bulk wait for its turn."""
        if not self._flight:
            self._flight_start = self.client.loop.time()
        self._flight += len(data)
        if not self.bulk and self._flight <= self.client.control_size and self.client.may_pass(len(data)):
            self._far.write(data)
            return
        if not self.bulk:
            self.counts = self.client.begin_bulk(self._flight_start, self._flight - len(data))
            self.bulk = True
        self._held.append(data)
        self._held_bytes += len(data)
        if self._held_bytes > HELD_BYTES:
            self._near.pause_reading()
        self.client.lane.wake()

    def from_server(self, data: bytes) -> None:
        """Pass an answer on, unshaped; it ends the flight, unless some of that still waits."""
        if not self.waiting:
            self._flight, self.bulk, self.counts = 0, False, False
        self._near.write(data)

    def server_is_slow(self, slow: bool) -> None:
        """Send nothing further until the server has read what it was sent."""
        self._server_is_slow = slow
        self.client.lane.wake()

    def client_is_slow(self, slow: bool) -> None:
        """Read nothing further from the server until the client has read what it was sent."""
        if slow:
            self._far.pause_reading()
        else:
            self._far.resume_reading()

    def client_ended(self) -> None:
        """Note that the client sends nothing any more; it may still receive."""
        self._client_ended = True
        self._pass_on_ends()

    def server_ended(self) -> None:
        """Pass on that the server sends nothing any more; it may still receive."""
        self._server_ended = True
        if not self._near.is_closing():
            self._near.write_eof()
        self._pass_on_ends()

    def _pass_on_ends(self) -> None:
        if not self._client_ended or self.waiting or self._left:
            return
        if not self._far.is_closing():
            self._far.write_eof()
        if self._server_ended:
            self._leave()
            self._near.close()
            self._far.close()

    def lost(self, side: asyncio.Transport) -> None:
        """Note that one side is gone; unless both had ended, the other is reset, since what it got is not all."""
        self._open.remove(side)
        if not self._left:
            self.reset()
        if not self._open:
            self.client.open.discard(self)

    def reset(self) -> None:
        """Cut both sides off, at once."""
        self._leave()
        if self._connecting is not None:
            self._connecting.cancel()
        for transport in self._open:
            if not transport.is_closing():
                linger = struct.pack("ii", 1, 0)  # none at all: the peer gets a reset, not an end
                transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            transport.abort()

    def _opened(self, transport: asyncio.Transport) -> None:
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # peers may vanish
        self._open.append(transport)
        self.client.open.add(self)

    def _leave(self) -> None:
        if not self._left:
            self._left = True
            self.client.lane.recall(self)
            self.client.connections.remove(self)
            self._held.clear()
            self._held_bytes = 0
            self.client.lane.wake()


class _Side(asyncio.Protocol):
    """One side of a connection."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, error: Exception | None) -> None:
        self._connection.lost(self._transport)


class Near(_Side):
    """The client's side of a connection."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Connect to the server."""
        super().connection_made(transport)
        self._connection.accepted(self._transport)

    def data_received(self, data: bytes) -> None:
        """Pass on, or hold back."""
        self._connection.from_client(data)

    def eof_received(self) -> bool:
        """Keep the way back open."""
        self._connection.client_ended()
        return True

    def pause_writing(self) -> None:
        """Stop what the server sends."""
        self._connection.client_is_slow(True)

    def resume_writing(self) -> None:
        """Go on with what the server sends."""
        self._connection.client_is_slow(False)


class _Far(_Side):
    """The server's side of a connection."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._connection.connected(self._transport)

    def data_received(self, data: bytes) -> None:
        self._connection.from_server(data)

    def eof_received(self) -> bool:
        self._connection.server_ended()
        return True

    def pause_writing(self) -> None:
        self._connection.server_is_slow(True)

    def resume_writing(self) -> None:
        self._connection.server_is_slow(False)
