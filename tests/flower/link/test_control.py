"""A link that is called from afar: what arrives, what is refused, and how it stops."""

import json
import socket
import threading
import time

import pytest

from fedtempo.checks import InputError
from fedtempo.flower.link import control
from fedtempo.flower.link.control import LinkServer
from fedtempo.flower.link.remote import RemoteLink
from fedtempo.flower.link.shaped import ShapedLink
from fedtempo.flower.link.shaping import Upload
from support.uplink import MBIT, eventually, seconds, upload

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
            json.dumps({"token": server.token, "call": "stop"}).encode(): "be allot or measured",
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
    monkeypatch.setattr(control, "REQUEST_TIMEOUT", 0.2)
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
        assert time.monotonic() - began < 0.8 * control.REQUEST_TIMEOUT
        assert mute.recv(1) == b""
    assert threading.active_count() == threads


def test_the_server_of_a_link_stops_before_a_callers_thread_has_begun(monkeypatch):
    serve = control._Server.serve

    def late(server, caller):
        time.sleep(0.5)
        serve(server, caller)

    monkeypatch.setattr(control._Server, "serve", late)
    threads, server = threading.active_count(), LinkServer(Notes())
    server.start()
    with socket.create_connection(server.address, timeout=5.0):
        eventually(lambda: threading.active_count() == threads + 2)
        began = time.monotonic()
        server.stop()
        assert time.monotonic() - began < 0.8 * control.REQUEST_TIMEOUT
