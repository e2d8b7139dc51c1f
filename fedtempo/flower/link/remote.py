"""A link that another process holds."""

import socket
from collections.abc import Sequence

import msgspec

from fedtempo.checks import InputError, as_integers, as_numbers, check_positive
from fedtempo.flower.link.calls import LINE_BYTES, AllotCall, Answer, Call, MeasuredCall, UploadRows
from fedtempo.flower.link.shaping import Upload
from fedtempo.theory.bandwidth import LinkMode


class RemoteLink:
    """A link that a ``LinkServer`` holds in another process."""

    def __init__(self, address: tuple[str, int], token: str, *, timeout: float = 30.0) -> None:
        """Take where that server is, what it asks for, and how many seconds a call may take."""
        self._address, self._token = address, token
        self._timeout = check_positive("timeout", timeout)

    def allot(self, members: Sequence[int], mode: LinkMode, shares: Sequence[float] | None = None) -> None:
        """Say how these clients upload next: see ``Link.allot``."""
        numbers = as_integers("members", members).tolist()
        checked = None if shares is None else as_numbers("shares", shares).tolist()
        self._call(AllotCall(self._token, numbers, mode, checked))

    def measured(self, clients: Sequence[int]) -> dict[int, Upload]:
        """Return what these clients have uploaded since they were allotted: see ``Link.measured``."""
        uploads = self._call(MeasuredCall(self._token, as_integers("clients", clients).tolist())) or []
        return {client: Upload(start, end, size) for client, start, end, size in uploads}

    @property
    def _where(self) -> str:
        return f"the link at {self._address[0]}:{self._address[1]}"

    def _call(self, call: Call) -> UploadRows | None:
        try:
            with socket.create_connection(self._address, timeout=self._timeout) as connection:
                connection.sendall(msgspec.json.encode(call) + b"\n")
                with connection.makefile("rb") as answers:
                    answer = msgspec.json.decode(answers.readline(LINE_BYTES), type=Answer)
        except TimeoutError as error:
            raise ConnectionError(f"{self._where} must answer within {self._timeout:g} s, but did not") from error
        except OSError as error:
            raise ConnectionError(f"{self._where} cannot be reached: {error}; is it running?") from error
        except msgspec.DecodeError as error:
            raise ConnectionError(f"{self._where} hung up or does not speak this protocol") from error
        if answer.input_error is not None:
            raise InputError(*answer.input_error)
        if answer.error is not None:
            raise ConnectionError(f"{self._where} failed: {answer.error}")
        return answer.result
