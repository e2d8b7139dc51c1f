"""A server that takes uploads, and clients that send them through a link."""

import socket
import struct
import threading
import time
from contextlib import contextmanager

from fedtempo.flower.link.shaping import Upload

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
