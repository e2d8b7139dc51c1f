"""Who sends when on a shared uplink: clients, and the lanes that send for them. All of it runs in one event loop."""

import asyncio
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from fedtempo.flower.link.connection import Connection

CONTROL_BURST = 65_536  # bytes that a client may send at once in small flights, unshaped
CONTROL_RATE = 4_096  # bytes/s by which that allowance fills up again
TRICKLE = 0.02  # part of the whole bandwidth that a client without a share sends its bulk with
PIECE_SECONDS = 0.01  # of a lane's time for each piece that it sends
PIECE_BYTES = (512, 16_384)  # but no smaller and no larger than these
CATCH_UP = 0.1  # s that a lane may lag behind and make up for, since timers of a busy machine fire late
QUIET = 1.0  # s without bulk, after which more is a new upload, not the rest of a late one


class Upload(NamedTuple):
    """A client's bulk from its first byte to its last, on ``time.monotonic()`` of the link's process."""

    start: float  # s
    end: float  # s
    size: int  # bytes


class Client:
    """What the link knows of one client: its rate, its share, its connections, and its upload since the allotment."""

    def __init__(self, loop: asyncio.AbstractEventLoop, rate: float, trickle: float, control_size: int) -> None:
        """Make a client that has no share yet; ``rate`` is in bits/s for one unit of bandwidth."""
        self.loop, self.control_size = loop, control_size
        self.own_lane = Lane(loop)
        self.lane = self.own_lane
        self.connections: list[Connection] = []  # those that may send, in the order of their turns
        self.open: set[Connection] = set()  # those of which a socket is open
        self.in_line_since = 0.0  # when its bulk began to wait: the order in which a common lane serves
        self._rate, self._trickle = rate, trickle
        self._share: float | None = None
        self._upload: Upload | None = None
        self._rest_of_late = False  # bulk goes by that had begun before the allotment
        self._last_bulk = 0.0
        self._allowance, self._allowance_at = float(CONTROL_BURST), loop.time()
        self.own_lane.join(self)

    @property
    def bits_per_second(self) -> float:
        """What it sends its bulk with while it is served."""
        return self._rate * (self._trickle if self._share is None else self._share)

    def allot(self, share: float, lane: "Lane | None") -> None:
        """Give it a share, in a lane with others or in its own; what it sends counts from now on."""
        self.in_line_since = self.loop.time()
        self._move(lane or self.own_lane, share)
        self._rest_of_late = any(connection.waiting for connection in self.connections)

    def measured(self) -> Upload | None:
        """Take away its share, and return what it sent with it."""
        upload = self._upload
        self._move(self.own_lane, None)
        return upload if upload is not None and upload.end > upload.start else None

    def _move(self, lane: "Lane", share: float | None) -> None:
        self.lane.remove(self)
        self.lane, self._share, self._upload = lane, share, None
        for connection in self.connections:
            connection.counts = False
        lane.join(self)

    def may_pass(self, size: int) -> bool:
        """Return whether so many bytes of a small flight may pass at once."""
        now = self.loop.time()
        self._allowance = min(CONTROL_BURST, self._allowance + CONTROL_RATE * (now - self._allowance_at))
        self._allowance_at = now
        if self._allowance < size:
            return False
        self._allowance -= size
        return True

    def begin_bulk(self, start: float, passed: int) -> bool:
        """Note that a flight is bulk, of which some bytes have passed as if it were small; return whether it counts."""
        if not any(connection.waiting for connection in self.connections):
            self.in_line_since = start if self._upload is None else self._upload.start
        self.lane.charge(start, passed, self.bits_per_second)
        self._rest_of_late = self._rest_of_late and start - self._last_bulk < QUIET
        self._last_bulk = self.loop.time()
        if self._share is None or self._rest_of_late:
            return False
        if self._upload is None:
            self._upload = Upload(start, start, 0)
        self._upload = self._upload._replace(size=self._upload.size + passed)
        return True

    def sent_bulk(self, size: int, counts: bool) -> None:
        """Note bulk that has just been handed to the server."""
        self._last_bulk = self.loop.time()
        if counts and self._upload is not None:
            self._upload = Upload(self._upload.start, self._last_bulk, self._upload.size + size)

    def next_connection(self) -> "Connection | None":
        """Return the connection that sends next: they take turns."""
        for connection in self.connections:
            if connection.ready:
                self.connections.remove(connection)
                self.connections.append(connection)
                return connection
        return None


class Lane:
    """Sends bulk, one piece at a time: each piece takes its size over its client's rate.

    Of several clients in one lane, whoever began its upload first goes first; the next goes whenever that one has
    nothing to send. So the lane is never idle while somebody waits.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Make a lane without clients."""
        self._clients: list[Client] = []
        self._loop = loop
        self._free_at = 0.0
        self._sender: Connection | None = None
        self._piece = b""
        self._timer: asyncio.TimerHandle | None = None

    def wake(self) -> None:
        """Begin to send the next piece, if the lane is free and somebody waits."""
        if self._sender is not None:
            return
        for client in sorted(self._clients, key=lambda client: client.in_line_since):
            if (connection := client.next_connection()) is not None:
                rate = client.bits_per_second
                self._sender = connection
                self._piece = connection.take(min(max(int(rate * PIECE_SECONDS / 8), PIECE_BYTES[0]), PIECE_BYTES[1]))
                begin = max(self._free_at, self._loop.time() - CATCH_UP)
                self._free_at = begin + len(self._piece) * 8 / rate
                self._timer = self._loop.call_at(self._free_at, self._deliver)
                return

    def charge(self, start: float, passed: int, rate: float) -> None:
        """Take the time for bytes that have passed already; an idle lane begins at ``start``."""
        if self._sender is None:
            self._free_at = max(self._free_at, start)
        self._free_at += passed * 8 / rate

    def join(self, client: Client) -> None:
        """Take a client in; an idle lane begins with it now."""
        self._clients.append(client)
        if self._sender is None:
            self._free_at = max(self._free_at, self._loop.time())
        self.wake()

    def recall(self, connection: "Connection") -> None:
        """Give a connection its piece back, if it is the one that is being sent."""
        if self._sender is connection:
            self.close()
            connection.put_back(self._piece)
            self._sender, self._piece = None, b""
            self._free_at = min(self._free_at, self._loop.time())

    def remove(self, client: Client) -> None:
        """Let a client leave, with the piece that is being sent for it."""
        for connection in client.connections:
            self.recall(connection)
        self._clients.remove(client)
        if not self._clients:
            self._free_at = 0.0  # what it owed, it owed at another rate
        self.wake()

    def close(self) -> None:
        """Send nothing until woken."""
        if self._timer is not None:
            self._timer.cancel()

    def _deliver(self) -> None:
        if (connection := self._sender) is not None:
            piece, self._sender, self._piece = self._piece, None, b""
            connection.deliver(piece)
        self.wake()
