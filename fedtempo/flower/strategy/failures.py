"""Why a client's update is missing: a kind, by which programs count, and what a person reads."""

from dataclasses import dataclass
from enum import StrEnum

from fedtempo.flower.log import without_colours

LONGEST_DETAIL = 300  # characters


class FailureKind(StrEnum):
    """What went wrong; the values stand in records."""

    NO_REPLY = "no_reply"  # by the deadline
    ERROR = "error"  # of the client's app or of its node
    REFUSED = "refused"  # the reply is malformed, or absurd
    LOST = "lost"  # in flight when an earlier process of the server ended


@dataclass(frozen=True, slots=True)
class Failure:
    """One missing update."""

    kind: FailureKind
    detail: str = ""

    def __str__(self) -> str:
        """Return what a person reads."""
        match self.kind:
            case FailureKind.NO_REPLY:
                return f"no reply {self.detail}"
            case FailureKind.REFUSED:
                return f"refused: {self.detail}"
            case FailureKind.LOST:
                return "lost"
        return self.detail


def read_text(text: str) -> Failure:
    """Return the failure that records of format 1 hold as text."""
    if text == "lost":
        return Failure(FailureKind.LOST)
    for start, kind in (("refused: ", FailureKind.REFUSED), ("no reply ", FailureKind.NO_REPLY)):
        if (detail := text.removeprefix(start)) != text:
            return Failure(kind, detail)
    return Failure(FailureKind.ERROR, text)


def refused(why: str) -> Failure:
    """Return the failure of a client whose reply must not reach the model."""
    return Failure(FailureKind.REFUSED, shortened(why))


def shortened(text: str, *, keep_end: bool = False) -> str:
    """Return what a client sends as text, whatever that is, for logs and records: of a traceback, its end."""
    text = without_colours(text).strip().encode(errors="backslashreplace").decode()
    if len(text) <= LONGEST_DETAIL:
        return text
    return "… " + text[-LONGEST_DETAIL:] if keep_end else text[:LONGEST_DETAIL]
