"""The shared uplink on real sockets and, where this user may make them, real network namespaces.

A busy machine delays everything, so measured times have tight bounds from below and wide ones from above, and where
delays of this test itself would matter, times are counted from when the link saw the first byte.
"""

import itertools
import json
import os
import shutil
import socket
import statistics
import struct
import subprocess
import threading
import time
from contextlib import contextmanager

import pytest

from fedtempo.checks import InputError
from fedtempo.flower import link_control
from fedtempo.flower.link.shaped import ShapedLink, Upload
from fedtempo.flower.link.control import LinkServer, RemoteLink
from fedtempo.flower.link.shaping import Client
from fedtempo.flower.link.tc import Counters, Meter, TcLink
from fedtempo.flower.testbed.processes import free_port
from fedtempo.theory.bandwidth import allocate_bandwidth

MBIT = 1e6
SLACK = 3.0  # how much later than it should a busy machine may end an upload
PROMPT = 1.0  # s for a small request on a busy machine; behind the bulk in these tests it would wait for longer


class Sink:
    """A server that takes requests (length, then so many bytes) and answers each with two bytes."""

    def __init__(self, host="127.0.0.1"):
        self.listening = socket.create_server((host, 0))
        self.address = self.listening.getsockname()[:2]
        self.received = []  # of each connection: bytes, and how it ended
        self.connections = []
        self._changed = threading.Condition()
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self):
        while True:
            try:
                connection, _ = self.listening.accept()
            except OSError:
                return
            self.connections.append(connection)
            thread = threading.Thread(target=self._serve, args=(connection,))
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection):
        size, end = 0, "end"
        try:
            with connection.makefile("rb") as stream:
                while header := stream.read(8):
                    left = struct.unpack("!Q", header)[0]
                    while left and (data := stream.read1(min(left, 65_536))):
                        left, size = left - len(data), size + len(data)
                    if left:
                        break
                    connection.sendall(b"ok")
        except ConnectionError:
            end = "reset"
        with self._changed:
            self.received.append((size, end))
            self._changed.notify_all()
        connection.close()

    def ended(self, count, timeout=5.0):
        """Wait until so many connections have ended."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.received) >= count, timeout)
            return self.received

    def close(self):
        self.listening.shutdown(socket.SHUT_RDWR)
        self.listening.close()
        for thread in self._threads:
            thread.join(5.0)
            assert not thread.is_alive()


@pytest.fixture
def sink():
    server = Sink()
    yield server
    server.close()


def connect(port):
    return socket.create_connection(("127.0.0.1", port), timeout=20.0)


def request(connection, size):
    """Send a request of that size, wait for the answer, and return how long it took."""
    began = time.monotonic()
    connection.sendall(struct.pack("!Q", size) + bytes(size))
    assert connection.recv(2, socket.MSG_WAITALL) == b"ok"
    return time.monotonic() - began


def upload(port, *sizes):
    """Send requests one after another on one new connection."""
    with connect(port) as connection:
        return [request(connection, size) for size in sizes]


@contextmanager
def in_background(work, *args):
    """Do something meanwhile; what goes wrong there comes out here."""
    errors = []

    def run():
        try:
            work(*args)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    yield thread
    thread.join(20.0)
    assert not thread.is_alive()
    if errors:
        raise errors[0]


def all_upload(link, sizes, delays=None):
    """Let client i upload sizes[i] bytes, delays[i] seconds from now; return what the link measured."""

    def later(port, delay, size):
        time.sleep(delay)
        upload(port, size)

    delays = delays or [0.0] * len(sizes)
    threads = [threading.Thread(target=later, args=args) for args in zip(link.ports, delays, sizes, strict=False)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20.0)
    return link.measured(range(len(sizes)))


def has_bulk(link, client):
    """Return whether bulk of a client is on its way."""
    return link._in_loop(lambda: any(connection.bulk for connection in link._clients[client].connections))


def seconds(done: Upload) -> float:
    return done.end - done.start


def whole(uploads) -> float:
    """Return the seconds from the first start to the last end."""
    return max(done.end for done in uploads.values()) - min(done.start for done in uploads.values())


def eventually(condition, timeout=5.0):
    until = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)


@pytest.mark.parametrize(("rate", "share", "size"), [(1 * MBIT, 0.8, 100_000), (20 * MBIT, 0.5, 1_000_000)])
def test_an_upload_takes_its_size_over_share_times_rate(sink, rate, share, size):
    with ShapedLink(sink.address, [rate]) as link:
        link.allot([0], "paper", [share])
        (took,) = upload(link.ports[0], size)
        done = link.measured([0])[0]
        assert sink.ended(1) == [(size, "end")]
    expected = size * 8 / (share * rate)
    assert done.size == size + 8
    assert 0.98 * expected < seconds(done) < SLACK * expected
    assert seconds(done) <= took  # the client is done after the link


def test_shares_of_the_paper_end_together_and_equal_ones_do_not(sink):
    size, rates, delays, total = 150_000, [2 * MBIT, 8 * MBIT], [0.3, 0.0], 1.2
    alone = [size * 8 / rate for rate in rates]  # 0.6 s and 0.15 s with one unit of bandwidth
    round_time, shares = allocate_bandwidth(delays, alone, total)
    with ShapedLink(sink.address, rates, total_bandwidth=total) as link:
        link.allot([0, 1], "paper", shares)
        paper = all_upload(link, [size, size], delays)
        link.allot([0, 1], "equal")
        equal = all_upload(link, [size, size], delays)
    ends = [[delays[client] + seconds(uploads[client]) for client in (0, 1)] for uploads in (paper, equal)]
    assert abs(ends[0][0] - ends[0][1]) < 0.2 * round_time
    assert ends[1][0] - ends[1][1] > 0.5 * round_time
    for client, share in enumerate(shares):
        assert seconds(paper[client]) > 0.98 * alone[client] / share
        assert seconds(equal[client]) > 0.98 * alone[client] / (total / 2)


def test_shared_serves_in_order_of_arrival_and_is_never_idle(sink):
    size, rates, delays = 200_000, [4 * MBIT, 8 * MBIT, 4 * MBIT], [0.2, 0.0, 0.1]
    alone = [size * 8 / rate for rate in rates]  # 0.4, 0.2, 0.4 s
    with ShapedLink(sink.address, rates) as link:
        link.allot([0, 1, 2], "shared")
        shared = all_upload(link, [size] * 3, delays)
        link.allot([0, 1, 2], "paper", allocate_bandwidth(delays, alone).bandwidth)
        paper = all_upload(link, [size] * 3, delays)
    in_order = sorted(shared, key=lambda client: shared[client].start)
    assert sorted(shared, key=lambda client: shared[client].end) == in_order
    assert shared[in_order[2]].start < shared[in_order[1]].end  # it began when it came, and waited in line
    assert 0.98 * sum(alone) < whole(shared) < SLACK * sum(alone)
    assert whole(shared) < 1.5 * whole(paper)


def test_shared_gives_a_pause_of_the_first_to_the_next(sink):
    with ShapedLink(sink.address, [4 * MBIT] * 2) as link, connect(link.ports[0]) as first:
        link.allot([0, 1], "shared")
        request(first, 50_000)
        with in_background(upload, link.ports[1], 300_000):  # 0.6 s
            eventually(lambda: has_bulk(link, 1))
            time.sleep(0.1)
            request(first, 100_000)  # 0.2 s, before the rest of the second
        done = link.measured([0, 1])
    assert done[0].end < done[1].end
    assert done[0].size == 150_016  # both requests are one upload
    assert done[1].end - done[0].start > 0.98 * 450_000 * 8 / (4 * MBIT)


def test_total_throughput_never_exceeds_what_was_allotted(sink):
    rate, size = 4 * MBIT, 100_000
    for mode in ("equal", "shared"):
        with ShapedLink(sink.address, [rate] * 4) as link:
            link.allot(range(4), mode)
            done = all_upload(link, [size] * 4)
        assert sum(upload.size for upload in done.values()) * 8 / whole(done) < 1.02 * rate


def test_connections_of_one_client_share_its_rate_and_count_as_one_upload(sink):
    with ShapedLink(sink.address, [4 * MBIT]) as link:
        link.allot([0], "paper", [1.0])
        with in_background(upload, link.ports[0], 60_000, 60_000), in_background(upload, link.ports[0], 80_000):
            upload(link.ports[0], 500, 50_000)
        done = link.measured([0])[0]
    size = 60_000 + 60_000 + 80_000 + 50_000 + 4 * 8
    assert done.size == size
    assert 0.98 * size * 8 / (4 * MBIT) < seconds(done) < SLACK * size * 8 / (4 * MBIT)


def test_small_requests_pass_during_bulk_of_others_and_of_the_same_client(sink):
    with ShapedLink(sink.address, [1 * MBIT] * 3) as link:
        link.allot([0, 1], "shared")
        connections = [connect(link.ports[client]) for client in (0, 1, 1, 2)]
        with in_background(request, connections[0], 200_000):  # 1.6 s
            eventually(lambda: has_bulk(link, 0))
            with in_background(request, connections[1], 30_000):
                eventually(lambda: has_bulk(link, 1))
                for connection in connections[2:]:
                    assert statistics.median(request(connection, 1_000) for _ in range(5)) < PROMPT
        assert link.measured([2]) == {}
        done = link.measured([0, 1])
        for connection in connections:
            connection.close()
    assert done[0].size == 200_008
    assert done[1].size == 30_008  # its small requests did not count
    assert done[1].end > done[0].end


def test_polls_while_a_client_computes_are_no_upload(sink):
    with ShapedLink(sink.address, [4 * MBIT]) as link, connect(link.ports[0]) as connection:
        link.allot([0], "paper", [1.0])
        for _ in range(10):
            request(connection, 700)
        assert link.measured([0]) == {}
        link.allot([0], "paper", [1.0])
        for _ in range(3):
            request(connection, 700)
            time.sleep(0.1)
        began = time.monotonic()
        request(connection, 50_000)
        ended = time.monotonic()
        request(connection, 700)
        done = link.measured([0])[0]
    assert done.size == 50_008
    assert seconds(done) > 0.98 * 0.1
    assert began <= done.start < done.end <= ended


def test_many_small_requests_are_bulk_after_all(sink):
    with ShapedLink(sink.address, [1 * MBIT]) as link:
        link.allot([0], "paper", [0.5])
        began = time.monotonic()
        upload(link.ports[0], *[4_000] * 32)
        assert time.monotonic() - began > 0.8 * (32 * 4_008 - 65_536) * 8 / (0.5 * MBIT)
        assert link.measured([0])[0].size > 40_000


def test_bulk_without_a_share_trickles_until_there_is_one(sink):
    with ShapedLink(sink.address, [8 * MBIT]) as link, in_background(upload, link.ports[0], 200_000):
        time.sleep(0.6)  # with a share 0.2 s would do
        assert not sink.received
        assert link.measured([0]) == {}
        assert has_bulk(link, 0)
        link.allot([0], "paper", [1.0])
        began = time.monotonic()
        sink.ended(1)
        assert time.monotonic() - began > 0.5 * 0.2  # no more than half had trickled
        assert link.measured([0]) == {}  # begun before the allotment


def test_the_trickle_ends_too(sink):
    with ShapedLink(sink.address, [8 * MBIT]) as link:
        (took,) = upload(link.ports[0], 20_000)
    assert took > 0.9 * 20_000 * 8 / (0.02 * 8 * MBIT)


def test_the_rest_of_a_late_upload_does_not_count_for_the_next(sink):
    with ShapedLink(sink.address, [2 * MBIT]) as link:
        link.allot([0], "paper", [1.0])
        with in_background(upload, link.ports[0], 200_000, 30_000):  # 0.8 s, 0.12 s
            time.sleep(0.3)
            early = link.measured([0])[0]
            link.allot([0], "paper", [1.0])
        time.sleep(1.1)  # it computes
        began = time.monotonic()
        upload(link.ports[0], 30_000)
        done = link.measured([0])[0]
    assert early.size < 200_000
    assert done.size == 30_008
    assert done.start >= began


def test_a_share_stays_until_it_is_measured_and_others_keep_theirs(sink):
    with ShapedLink(sink.address, [4 * MBIT] * 2) as link:
        link.allot([0], "paper", [0.5])
        link.allot([1], "paper", [0.5])
        for client in (0, 1):
            upload(link.ports[client], 50_000)
        assert link.measured([1]).keys() == {1}
        upload(link.ports[0], 50_000)
        done = link.measured([0, 1])
    assert done.keys() == {0}
    assert done[0].size == 100_016


def test_ends_are_passed_on_each_way(sink):
    with ShapedLink(sink.address, [8 * MBIT]) as link:
        link.allot([0], "paper", [1.0])
        with connect(link.ports[0]) as connection:
            connection.sendall(struct.pack("!Q", 50_000) + bytes(50_000))
            connection.shutdown(socket.SHUT_WR)  # what waits must arrive, and the answer come back
            assert connection.recv(2, socket.MSG_WAITALL) == b"ok"
            assert connection.recv(1) == b""
        assert sink.ended(1) == [(50_000, "end")]
        eventually(lambda: link.open_connections == 0)


def test_a_reset_is_passed_on_in_the_middle_of_an_upload(sink):
    with ShapedLink(sink.address, [1 * MBIT] * 2) as link:
        link.allot([0, 1], "shared")
        dying = connect(link.ports[0])
        dying.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        dying.settimeout(0.2)
        with pytest.raises(TimeoutError):
            dying.sendall(struct.pack("!Q", 10**8) + bytes(10**7))
        dying.close()
        upload(link.ports[1], 50_000)  # the line goes on
        ((size, end), _) = sink.ended(2)
        eventually(lambda: link.open_connections == 0)
        assert link.measured([1])[1].size == 50_008
    assert (end, size < 200_000) == ("reset", True)


def test_a_client_that_dies_leaves_nothing_behind(sink):
    """As when its process is killed: what the kernel has taken still arrives, then the connection ends."""
    with ShapedLink(sink.address, [8 * MBIT]) as link:
        link.allot([0], "paper", [1.0])
        dying = connect(link.ports[0])
        dying.sendall(struct.pack("!Q", 10**8) + bytes(60_000))
        dying.close()
        assert sink.ended(1) == [(60_000, "end")]
        eventually(lambda: link.open_connections == 0)
        assert link.measured([0])[0].size == 60_008


def test_a_server_that_hangs_up_or_is_not_there_resets_the_client(sink):
    with ShapedLink(sink.address, [1 * MBIT]) as link, connect(link.ports[0]) as connection:
        request(connection, 10)
        sink.connections[0].setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        sink.connections[0].shutdown(socket.SHUT_RD)  # wakes the sink, which closes
        with pytest.raises(ConnectionResetError):
            connection.recv(1)
        eventually(lambda: link.open_connections == 0)
    with socket.socket() as deaf:  # bound, so that nobody else gets its port, the link least of all; it never listens
        deaf.bind(("127.0.0.1", 0))
        with ShapedLink(deaf.getsockname(), [1 * MBIT]) as link:
            with pytest.raises(ConnectionResetError), connect(link.ports[0]) as connection:
                connection.recv(1)
            eventually(lambda: link.open_connections == 0)


def test_stop_leaves_nothing_behind_even_with_open_connections(sink):
    threads, files = threading.active_count(), len(os.listdir("/proc/self/fd"))
    link = ShapedLink(sink.address, [1 * MBIT] * 3)
    link.start()
    link.allot([0, 1], "shared")
    connections = [connect(port) for port in link.ports]
    for connection in connections:
        connection.settimeout(0.1)
        with pytest.raises(TimeoutError):
            connection.sendall(struct.pack("!Q", 10**8) + bytes(10**7))
    ports = link.ports
    link.stop()
    link.stop()
    for connection in connections:
        with pytest.raises(ConnectionResetError):
            connection.recv(1)
        connection.close()
    sink.ended(3)
    with pytest.raises(ConnectionRefusedError):
        connect(ports[0])
    with pytest.raises(RuntimeError, match="must be started"):
        link.allot([0], "equal")
    eventually(lambda: threading.active_count() == threads and len(os.listdir("/proc/self/fd")) == files)


def test_downstream_passes_unshaped():
    listening = socket.create_server(("127.0.0.1", 0))
    size = 2_000_000  # 16 s at the client's rate

    def serve():
        connection, _ = listening.accept()
        with connection:
            connection.sendall(bytes(size))

    with listening, ShapedLink(listening.getsockname(), [1 * MBIT]) as link, in_background(serve):
        began = time.monotonic()
        with connect(link.ports[0]) as connection, connection.makefile("rb") as stream:
            assert len(stream.read()) == size
        assert time.monotonic() - began < 4.0


class LateLoop:
    """A clock on which each timer fires 4 ms late."""

    def __init__(self):
        self.now, self.timers = 0.0, []

    def time(self):
        return self.now

    def call_at(self, when, action):
        self.timers.append((when, action))

    def run(self):
        while self.timers:
            when, action = self.timers.pop(0)
            self.now = max(self.now, when) + 0.004
            action()


class Bytes:
    """A connection that has so many bytes to send."""

    def __init__(self, client, size):
        self.client, self.left, self.sent = client, size, []
        client.connections.append(self)

    @property
    def ready(self):
        return self.left > 0

    waiting = ready

    def take(self, size):
        size = min(size, self.left)
        self.left -= size
        return bytes(size)

    def deliver(self, piece):
        self.sent.append(self.client.loop.now)


def test_late_timers_do_not_slow_a_lane_down_and_connections_take_turns():
    loop = LateLoop()
    client = Client(loop, rate=MBIT, trickle=1.0, control_size=0)  # 1250 bytes in 10 ms
    first, second = Bytes(client, 125_000), Bytes(client, 62_500)
    client.lane.wake()
    loop.run()
    assert first.sent[-1] == pytest.approx(1.5, abs=0.005)
    assert second.sent[-1] == pytest.approx(1.0, abs=0.005)
    assert len(first.sent) == 100


BAD_ALLOTMENTS = {
    "members must be numbers of clients from 0 to 1, got 2": ([2], "equal", None),
    "members must hold whole numbers": ([0.5], "equal", None),
    "members must name each client once": ([1, 1], "equal", None),
    "shares must have one entry for each of 2 members, got 0": ([0, 1], "paper", None),
    "shares must have one entry for each of 2 members, got 1": ([0, 1], "paper", [0.5]),
    "shares must sum to at most 1, the total, got 1.2": ([0, 1], "paper", [0.6, 0.6]),
    "shares must hold numbers": ([0, 1], "paper", ["a", "b"]),
    "shares must be positive": ([0, 1], "paper", [0.6, 0.0]),
    "shares must be left out for mode equal": ([0, 1], "equal", [0.5, 0.5]),
    "mode must be one of paper, equal, shared, got 'fair'": ([0], "fair", None),
}


class Notes:
    """A link that notes how it was called."""

    def __init__(self):
        self.calls = []

    def allot(self, members, mode, shares=None):
        self.calls.append((members, mode, shares))

    def measured(self, clients):
        if clients == [9]:
            raise OSError("no such device")
        return {client: Upload(1.5, 2.5, 10**10) for client in clients}


@pytest.mark.parametrize("message", BAD_ALLOTMENTS)
def test_bad_allotments_are_refused_here_and_from_afar(message):
    with ShapedLink(("127.0.0.1", 1), [MBIT, MBIT]) as link, LinkServer(link) as server:
        for way in (link, RemoteLink(server.address, server.token)):
            with pytest.raises(InputError, match=message):
                way.allot(*BAD_ALLOTMENTS[message])


def test_bad_links_are_refused():
    with pytest.raises(InputError, match="rates must have one entry for each client, got none"):
        ShapedLink(("127.0.0.1", 1), [])
    with pytest.raises(InputError, match="rates must be positive"):
        ShapedLink(("127.0.0.1", 1), [0.0])
    with pytest.raises(InputError, match="host must be an address of this machine"):
        ShapedLink(("127.0.0.1", 1), [1.0], host="192.0.2.1").start()


def test_a_link_can_be_called_from_afar(sink):
    with ShapedLink(sink.address, [8 * MBIT] * 2) as link, LinkServer(link) as server:
        remote = RemoteLink(server.address, server.token)
        remote.allot([1], "paper", [0.5])
        upload(link.ports[1], 50_000)
        done = remote.measured([0, 1])
    assert done.keys() == {1}
    assert done[1].size == 50_008
    assert seconds(done[1]) > 0.98 * 0.1


def test_calls_from_afar_arrive_as_they_were_made():
    notes = Notes()
    with LinkServer(notes) as server:
        remote = RemoteLink(server.address, server.token)
        remote.allot((3, 1), "paper", (0.25, 0.5))
        remote.allot(range(2), "shared")
        assert notes.calls == [([3, 1], "paper", [0.25, 0.5]), ([0, 1], "shared", None)]
        assert remote.measured([4]) == {4: Upload(1.5, 2.5, 10**10)}
        with pytest.raises(ConnectionError, match="failed: OSError: no such device"):
            remote.measured([9])


def test_a_wrong_token_and_nonsense_are_refused():
    notes = Notes()
    with LinkServer(notes) as server:
        with pytest.raises(InputError, match="token must be the one"):
            RemoteLink(server.address, "0" * 64).allot([0], "equal")
        for line, answer in {
            b"{}": "token",
            b"[]": "token",
            b"hello": "one line of JSON",
            json.dumps({"token": server.token, "call": "stop"}).encode(): "call must be allot or measured",
            json.dumps({"token": "é"}).encode(): "token",
        }.items():
            with socket.create_connection(server.address, timeout=5.0) as connection:
                connection.sendall(line + b"\n")
                assert answer in connection.makefile().readline()
    assert notes.calls == []


def test_calls_are_bounded_in_time(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        remote = RemoteLink(silent.getsockname(), "token", timeout=0.2)
        with pytest.raises(ConnectionError, match=r"must answer within 0\.2 s"):
            remote.allot([0], "equal")
    with pytest.raises(ConnectionError, match="cannot be reached"):
        remote.measured([0])
    monkeypatch.setattr(link_control, "REQUEST_TIMEOUT", 0.2)
    with LinkServer(Notes()) as server, socket.create_connection(server.address, timeout=5.0) as mute:
        assert RemoteLink(server.address, server.token).measured([1])  # nobody waits for the mute one
        assert mute.recv(1) == b""


def test_the_server_of_a_link_stops_with_callers_waiting():
    threads = threading.active_count()
    server = LinkServer(Notes())
    server.start()
    with socket.create_connection(server.address, timeout=5.0) as mute:
        eventually(lambda: threading.active_count() == threads + 2)
        began = time.monotonic()
        server.stop()
        assert time.monotonic() - began < 0.8 * link_control.REQUEST_TIMEOUT
        assert mute.recv(1) == b""
    assert threading.active_count() == threads


def test_the_server_of_a_link_stops_before_a_callers_thread_has_begun(monkeypatch):
    serve = link_control._Server.serve

    def late(server, caller):
        time.sleep(0.5)
        serve(server, caller)

    monkeypatch.setattr(link_control._Server, "serve", late)
    threads, server = threading.active_count(), LinkServer(Notes())
    server.start()
    with socket.create_connection(server.address, timeout=5.0):
        eventually(lambda: threading.active_count() == threads + 2)
        began = time.monotonic()
        server.stop()
        assert time.monotonic() - began < 0.8 * link_control.REQUEST_TIMEOUT


def meter_of(rate, *pieces):
    """Return what a meter sees of pieces (seconds, bytes sent in each, bytes received in each), in looks of 20 ms."""
    now, sent, received = 100.0, 5_000, 7_000
    meter = Meter(rate, now, Counters(sent, received))
    for duration, up, down in pieces:
        for _ in range(round(duration / 0.02)):
            now, sent, received = now + 0.02, sent + up, received + down
            meter.look(now, Counters(sent, received))
    return meter.upload


def test_a_meter_tells_uploads_from_polls_and_downloads():
    full = 2_500  # bytes in 20 ms at 1 Mbit/s
    poll, idle = (0.02, 1_500, 900), (0.4, 0, 0)
    assert meter_of(MBIT, *[poll, idle] * 20) is None
    assert meter_of(MBIT, *[poll, (0.1, 0, 0)] * 20) is None
    assert meter_of(MBIT, (1.0, full // 2, 100_000)) is None
    start, end, size = meter_of(
        MBIT, poll, (2.0, 0, 0), (0.4, full, 60), (0.1, 0, 0), (0.4, full, 60), (2.0, 0, 0), poll
    )
    assert (start, end, size) == (pytest.approx(102.02), pytest.approx(102.92), 40 * full)
    in_two_runs = meter_of(MBIT, (0.4, full, 60), (1.0, 0, 0), poll, (1.0, 0, 0), (0.4, full, 60))
    assert (in_two_runs.end - in_two_runs.start, in_two_runs.size) == (pytest.approx(2.82), 40 * full)


numbers = itertools.count()


@contextmanager
def namespace(subnet):
    """Make a network namespace with a device to this one; it is gone afterwards whatever happens."""
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    if shutil.which("ip") is None or shutil.which("tc") is None:
        pytest.skip("ip and tc of iproute2 are not installed")
    name = f"ft{os.getpid()}x{next(numbers)}"
    inside, outside = f"{name}i"[-15:], f"{name}o"[-15:]

    def ip(*args, check=True):
        done = subprocess.run(["ip", *args], capture_output=True, text=True, timeout=10.0, check=False)
        if check and done.returncode:
            pytest.skip(f"ip {' '.join(args)}: {done.stderr.strip()}")

    try:
        ip("netns", "add", name)
        ip("link", "add", outside, "type", "veth", "peer", "name", inside, "netns", name)
        ip("addr", "add", f"{subnet}.1/30", "dev", outside)
        ip("link", "set", outside, "up")
        ip("-n", name, "addr", "add", f"{subnet}.2/30", "dev", inside)
        ip("-n", name, "link", "set", inside, "up")
        yield name, inside, f"{subnet}.1"
    finally:
        ip("link", "del", outside, check=False)
        ip("netns", "del", name, check=False)


SEND = """
import socket, struct, sys
address, port, *sizes = sys.argv[1:]
with socket.create_connection((address, int(port)), timeout=20.0) as connection:
    for size in map(int, sizes):
        connection.sendall(struct.pack("!Q", size) + bytes(size))
        assert connection.recv(2, socket.MSG_WAITALL) == b"ok"
"""


def test_tc_shapes_and_measures_a_namespace():
    with namespace(f"10.{200 + os.getpid() % 50}.{os.getpid() // 50 % 250}") as (name, device, address):
        sink = Sink(address)

        def upload_from_inside(*sizes):
            command = ["ip", "netns", "exec", name, "python3", "-c", SEND, address, str(sink.address[1])]
            subprocess.run([*command, *map(str, sizes)], check=True, timeout=20.0)

        try:
            with TcLink([(name, device)], [8 * MBIT]) as link:
                link.allot([0], "paper", [0.5])
                upload_from_inside(400_000)
                done = link.measured([0])[0]
                assert 400_000 < done.size < 1.15 * 400_000  # headers are sent as well
                assert 0.9 * 0.8 < seconds(done) < SLACK * 0.8 * 1.15
                link.allot([0], "equal")
                upload_from_inside(500, 500)
                assert link.measured([0]) == {}
                assert link.measured([0]) == {}
                with pytest.raises(InputError, match="mode must be paper or equal for a link of token buckets"):
                    link.allot([0], "shared")
                shown = subprocess.run(["ip", "netns", "exec", name, "tc", "qdisc"], capture_output=True, text=True)
                assert f"dev {device} root" in shown.stdout
                assert "rate 160Kbit" in shown.stdout  # the trickle
        finally:
            sink.close()
        shown = subprocess.run(["ip", "netns", "exec", name, "tc", "qdisc"], capture_output=True, text=True)
        assert "tbf" not in shown.stdout
    assert name not in subprocess.run(["ip", "netns", "list"], capture_output=True, text=True).stdout


def test_tc_refuses_what_is_not_there():
    with pytest.raises(InputError, match="places must have one entry for each of 2 rates, got 1"):
        TcLink([("a", "b")], [MBIT, MBIT])
    link = TcLink([("fedtempo-no-such-namespace", "eth0")], [MBIT])
    with pytest.raises(RuntimeError, match="must be started"):
        link.allot([0], "equal")
    with pytest.raises(InputError, match="namespace must be one that this user may enter, got 'fedtempo-no-such"):
        link.start()


def test_a_link_that_is_started_again_has_the_same_ports():
    first = free_port("127.0.0.1")
    for _ in range(2):
        with ShapedLink(("127.0.0.1", 1), [1 * MBIT, 1 * MBIT], first_port=first) as link:
            assert link.ports == [first, first + 1]
            with pytest.raises(InputError, match=f"ports from {first} on free"):
                ShapedLink(("127.0.0.1", 1), [1 * MBIT], first_port=first).start()
