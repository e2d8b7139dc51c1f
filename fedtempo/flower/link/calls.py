"""What goes over the wire between a link and another process: a line of JSON to it and a line back for each call."""

from typing import Any, TypeAlias

import msgspec

LINE_BYTES = 1_048_576  # the longest line, enough for tens of thousands of clients
UploadRows: TypeAlias = list[tuple[int, float, float, int]]  # client, start, end, size of each upload


class AllotCall(msgspec.Struct, frozen=True, tag_field="call", tag="allot"):
    """A call of ``Link.allot``."""

    token: str
    members: list[Any]  # the link itself checks them, and says what is wrong
    mode: str
    shares: list[Any] | None


class MeasuredCall(msgspec.Struct, frozen=True, tag_field="call", tag="measured"):
    """A call of ``Link.measured``."""

    token: str
    clients: list[Any]


Call: TypeAlias = AllotCall | MeasuredCall


class Token(msgspec.Struct, frozen=True):
    """What every call must have."""

    token: str


class Answer(msgspec.Struct, frozen=True, omit_defaults=True):
    """What comes back: a result, unless it is an error."""

    result: UploadRows | None = None
    input_error: tuple[str, str, Any, str] | None = None  # name, rule, got, remedy
    error: str | None = None
