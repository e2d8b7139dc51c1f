"""Lets other processes call a link, over TCP.

The token is what lets a caller in. It goes over the wire as it is: keep to the loopback address or to a network that
nobody else listens to.
"""

import contextlib
import hmac
import secrets
import socket
import socketserver
import threading

import msgspec

from fedtempo.checks import InputError
from fedtempo.flower.link.allotment import Link
from fedtempo.flower.link.calls import LINE_BYTES, AllotCall, Answer, Call, MeasuredCall, Token, UploadRows
from fedtempo.flower.startable import Startable

REQUEST_TIMEOUT = 5.0  # s for a caller to say what it wants, once connected


class LinkServer(Startable):
    """Lets other processes call a link, if they know the token."""

    def __init__(self, link: Link, *, host: str = "127.0.0.1", port: int = 0) -> None:
        """Set up a server for ``link``; port 0 stands for any that is free."""
        self.token = secrets.token_hex(32)
        self.address = (host, port)  # with the real port, once started
        self._link = link
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to answer calls."""
        if self._server is not None:
            raise RuntimeError("the link's server has been started already")
        try:
            self._server = _Server(self.address, self._link, self.token)
        except OSError as error:
            raise InputError(
                name="address", rule="be free and of this machine", got=f"{self.address}: {error}"
            ) from error
        self.address = (self.address[0], self._server.server_address[1])
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, name="fedtempo-link-server", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Answer no more calls, and leave no thread or socket behind; calls under way are cut off."""
        if self._server is None or self._thread is None:
            return
        self._server.shutdown()
        self._thread.join()
        self._server.cut_off()
        self._server.server_close()
        self._server = self._thread = None


class _Server(socketserver.ThreadingTCPServer):
    """Answers each call in a thread of its own, so that a caller who says nothing holds nobody up."""

    allow_reuse_address = True
    daemon_threads = False  # so that server_close() waits for them

    def __init__(self, address: tuple[str, int], link: Link, token: str) -> None:
        self.address_family = socket.getaddrinfo(*address, type=socket.SOCK_STREAM)[0][0]
        self._link, self._token = link, token
        self._callers: set[socket.socket | tuple[bytes, socket.socket]] = set()
        self._lock = threading.Lock()
        super().__init__(address, _Handler)

    def process_request(self, request: socket.socket | tuple[bytes, socket.socket], client_address: object) -> None:
        """Note a caller before its thread begins, which ``cut_off`` may come before."""
        with self._lock:
            self._callers.add(request)
        super().process_request(request, client_address)

    def cut_off(self) -> None:
        """Wake up whoever waits for a caller."""
        with self._lock:
            for caller in self._callers:
                if isinstance(caller, socket.socket):
                    with contextlib.suppress(OSError):  # who has left
                        caller.shutdown(socket.SHUT_RDWR)

    def serve(self, caller: socket.socket) -> None:
        """Answer one call."""
        caller.settimeout(REQUEST_TIMEOUT)
        try:
            with caller.makefile("rb") as lines:
                answer = self._answer(lines.readline(LINE_BYTES))
            caller.sendall(msgspec.json.encode(answer) + b"\n")
        except OSError:
            pass  # a caller who left, or never said anything
        finally:
            with self._lock:
                self._callers.discard(caller)

    def _answer(self, line: bytes) -> Answer:
        try:
            token = msgspec.json.decode(line, type=Token).token
        except msgspec.ValidationError:
            token = ""
        except msgspec.DecodeError:
            return Answer(error="a call must be one line of JSON")
        if not hmac.compare_digest(token.encode(), self._token.encode()):
            return _refused(InputError("token", "be the one that the link's server was started with", "another"))
        try:
            return Answer(result=self._result(msgspec.json.decode(line, type=Call)))
        except msgspec.ValidationError as error:
            return _refused(InputError("call", "be allot or measured with what they need", f"another ({error})"))
        except InputError as error:
            return _refused(error)
        except Exception as error:  # the caller has to know, whatever it is
            return Answer(error=f"{type(error).__name__}: {error}")

    def _result(self, call: Call) -> UploadRows | None:
        match call:
            case AllotCall(members=members, mode=mode, shares=shares):
                self._link.allot(members, mode, shares)  # type: ignore[arg-type]
                return None
            case MeasuredCall(clients=clients):
                return [(client, *upload) for client, upload in self._link.measured(clients).items()]


def _refused(error: InputError) -> Answer:
    return Answer(input_error=(error.name, error.rule, error.got, error.remedy))


class _Handler(socketserver.BaseRequestHandler):
    server: _Server

    def handle(self) -> None:
        self.server.serve(self.request)
