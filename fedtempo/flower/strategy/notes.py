"""What rounds of real clients add to the note of a record: who failed and why, and how uploads went."""

from collections.abc import Mapping, Sequence
from typing import TypeVar

import msgspec

from fedtempo.checks import InputError
from fedtempo.engine.records import RoundRecord
from fedtempo.flower.link.shaping import Upload
from fedtempo.flower.strategy.assignment import ClientReport
from fedtempo.flower.strategy.failures import Failure, read_text

T = TypeVar("T")
FAILURES, UPLOADS, STALENESS_NOTE = "failures", "uploads", "staleness"


class UploadNote(msgspec.Struct, frozen=True):
    """One client's upload."""

    share: float  # of the bandwidth
    seconds: float
    end: float  # seconds since the round began
    size: int = msgspec.field(name="bytes")


def round_note(
    own: Mapping[str, object] | None, reports: Sequence[ClientReport], uploads: Mapping[int, Upload], began: float
) -> dict[str, object] | None:
    """Return the note of a round: the policy's own, and what a simulated run has no use for.

    ``began``: when the round began, on the clock of uploads, in seconds.
    """
    note = dict(own or {})
    if failures := {str(one.client): msgspec.to_builtins(one.failure) for one in reports if one.failure is not None}:
        note[FAILURES] = failures
    if uploads:
        note[UPLOADS] = {
            str(one.client): msgspec.to_builtins(
                UploadNote(one.assignment.bandwidth, upload.end - upload.start, upload.end - began, upload.size)
            )
            for one in reports
            if (upload := uploads.get(one.client)) is not None
        }
    return note or None


def failures_in(record: RoundRecord) -> dict[int, Failure]:
    """Return who failed in a round and why; records of format 1 hold the reasons as text."""
    found = _read(record, FAILURES, dict[int, Failure | str])
    return {client: read_text(one) if isinstance(one, str) else one for client, one in found.items()}


def uploads_in(record: RoundRecord) -> dict[int, UploadNote]:
    """Return the uploads of a round."""
    return _read(record, UPLOADS, dict[int, UploadNote])


def is_asynchronous(record: RoundRecord) -> bool:
    """Return whether a record is of one step while clients were in flight."""
    return STALENESS_NOTE in record.notes


def _read(record: RoundRecord, name: str, kind: type[T]) -> T:
    try:
        return msgspec.convert(record.notes.get(name, {}), kind, str_keys=True)
    except msgspec.ValidationError as error:
        place = f"round {record.round}"
        raise InputError(f"{name} in the note of {place}", "be as fedtempo writes them", f"others ({error})") from None
