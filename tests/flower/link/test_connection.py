"""Connections through the link: small requests, ends, resets, and nothing left behind."""

import os
import socket
import statistics
import struct
import threading
import time

import pytest

from fedtempo.flower.link.shaped import ShapedLink
from support.uplink import MBIT, PROMPT, connect, eventually, has_bulk, in_background, request, seconds, upload


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
