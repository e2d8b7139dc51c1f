"""Running text as a value: words, code and links in them."""

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Code:
    """A few words of code, such as a command or the name of a policy."""

    text: str


@dataclass(frozen=True, slots=True)
class Hyperlink:
    """Words that lead to a file or an address."""

    text: str
    target: str


Span: TypeAlias = str | Code | Hyperlink


@dataclass(frozen=True, slots=True, init=False)
class Paragraph:
    """A paragraph, as in ``Paragraph("Made by ", Code("fedtempo compare"), ".")``."""

    spans: tuple[Span, ...]

    def __init__(self, *spans: Span) -> None:
        """Take the spans as arguments."""
        object.__setattr__(self, "spans", spans)

    def __str__(self) -> str:
        """Return the words alone."""
        return "".join(span if isinstance(span, str) else span.text for span in self.spans)


def as_paragraph(text: str | Paragraph) -> Paragraph:
    """Return text as a paragraph."""
    return text if isinstance(text, Paragraph) else Paragraph(text)
