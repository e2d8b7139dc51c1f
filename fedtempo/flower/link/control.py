"""A link for another process: its two calls as JSON lines over TCP, one line there and one line back for each call.

The token is what lets a caller in. It goes over the wire as it is: keep to the loopback address or to a network that
nobody else listens to.
"""

import contextlib
import hmac
import json
import secrets
import socket
import socketserver
import threading
from collections.abc import Sequence
from typing import Any

from fedtempo.checks import InputError, as_integers, as_numbers, check_positive
from fedtempo.flower.link.shaped import Link, Upload
from fedtempo.flower.startable import Startable
from fedtempo.theory.bandwidth import LinkMode

LINE_BYTES = 1_048_576  # the longest line, enough for tens of thousands of clients
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


class RemoteLink:
    """A link that a ``LinkServer`` holds in another process."""

    def __init__(self, address: tuple[str, int], token: str, *, timeout: float = 30.0) -> None:
        """Take where that server is, what it asks for, and how many seconds a call may take."""
        self._address, self._token = address, token
        self._timeout = check_positive("timeout", timeout)

    def allot(self, members: Sequence[int], mode: LinkMode, shares: Sequence[float] | None = None) -> None:
        """Say how these clients upload next: see ``Link.allot``."""
        numbers = as_integers("members", members).tolist()
        given = None if shares is None else as_numbers("shares", shares).tolist()
        self._call({"call": "allot", "members": numbers, "mode": mode, "shares": given})

    def measured(self, clients: Sequence[int]) -> dict[int, Upload]:
        """Return what these clients have uploaded since they were allotted: see ``Link.measured``."""
        result = self._call({"call": "measured", "clients": as_integers("clients", clients).tolist()})
        try:
            return {
                int(client): Upload(float(start), float(end), int(size)) for client, start, end, size in result or ()
            }
        except (TypeError, ValueError) as error:
            raise ConnectionError(f"{self._where} gave no list of uploads, but {str(result)[:60]!r}") from error

    @property
    def _where(self) -> str:
        return f"the link at {self._address[0]}:{self._address[1]}"

    def _call(self, request: dict[str, Any]) -> list[tuple[int, float, float, int]] | None:
        line = json.dumps({"token": self._token, **request}).encode() + b"\n"
        try:
            with socket.create_connection(self._address, timeout=self._timeout) as connection:
                connection.sendall(line)
                with connection.makefile("rb") as answers:
                    answer = json.loads(answers.readline(LINE_BYTES))
        except TimeoutError as error:
            raise ConnectionError(f"{self._where} must answer within {self._timeout:g} s, but did not") from error
        except OSError as error:
            raise ConnectionError(f"{self._where} cannot be reached: {error}; is it running?") from error
        except ValueError as error:
            raise ConnectionError(f"{self._where} hung up or does not speak this protocol") from error
        match answer:
            case {"result": result}:
                return result  # type: ignore[no-any-return]
            case {"input_error": [str(name), str(rule), got, str(remedy)]}:
                raise InputError(name, rule, got, remedy)
            case {"error": str(message)}:
                raise ConnectionError(f"{self._where} failed: {message}")
        raise ConnectionError(f"{self._where} does not speak this protocol")


class _Server(socketserver.ThreadingTCPServer):
    """Answers each call in a thread of its own, so that a caller who says nothing holds nobody up."""

    allow_reuse_address = True
    daemon_threads = False  # so that server_close() waits for them

    def __init__(self, address: tuple[str, int], link: Link, token: str) -> None:
        self.address_family = socket.getaddrinfo(*address, type=socket.SOCK_STREAM)[0][0]
        self._link, self._token = link, token
        self._callers: set[socket.socket] = set()
        self._lock = threading.Lock()
        super().__init__(address, _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401
        """Note a caller before its thread begins, which ``cut_off`` may come before."""
        with self._lock:
            self._callers.add(request)
        super().process_request(request, client_address)

    def cut_off(self) -> None:
        """Wake up whoever waits for a caller."""
        with self._lock:
            for caller in self._callers:
                with contextlib.suppress(OSError):  # who has left
                    caller.shutdown(socket.SHUT_RDWR)

    def serve(self, caller: socket.socket) -> None:
        """Answer one call."""
        caller.settimeout(REQUEST_TIMEOUT)
        try:
            with caller.makefile("rb") as lines:
                answer = self._answer(lines.readline(LINE_BYTES))
            caller.sendall(json.dumps(answer).encode() + b"\n")
        except OSError:
            pass  # a caller who left, or never said anything
        finally:
            with self._lock:
                self._callers.discard(caller)

    def _answer(self, line: bytes) -> dict[str, Any]:
        try:
            request = json.loads(line)
        except ValueError:
            return {"error": "a call must be one line of JSON"}
        token = request.get("token") if isinstance(request, dict) else None
        if not isinstance(token, str) or not hmac.compare_digest(token.encode(), self._token.encode()):
            return _refused(InputError("token", "be the one that the link's server was started with", "another"))
        try:
            match request:
                case {"call": "allot", "members": list(members), "mode": str(mode), "shares": shares}:
                    self._link.allot(members, mode, shares)  # type: ignore[arg-type]
                    return {"result": None}
                case {"call": "measured", "clients": list(clients)}:
                    return {"result": [(client, *upload) for client, upload in self._link.measured(clients).items()]}
            return _refused(InputError("call", "be allot or measured with what they need", repr(request.get("call"))))
        except InputError as error:
            return _refused(error)
        except Exception as error:  # the caller has to know, whatever it is
            return {"error": f"{type(error).__name__}: {error}"}


def _refused(error: InputError) -> dict[str, Any]:
    return {"input_error": [error.name, error.rule, error.got, error.remedy]}


class _Handler(socketserver.BaseRequestHandler):
    server: _Server

    def handle(self) -> None:
        self.server.serve(self.request)
