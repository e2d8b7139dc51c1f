"""A page as a value: headings, paragraphs, pictures, lists and tables, one after the other."""

from dataclasses import dataclass
from typing import TypeAlias

from fedtempo.tables.prose import Paragraph, as_paragraph
from fedtempo.tables.table import Table


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading; 1 is the title of the page."""

    text: str
    level: int = 2


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture in a file beside the page."""

    path: str
    description: str


@dataclass(frozen=True, slots=True, init=False)
class Items:
    """A list, one paragraph to each item."""

    items: tuple[Paragraph, ...]

    def __init__(self, *items: str | Paragraph) -> None:
        """Take the items as arguments."""
        object.__setattr__(self, "items", tuple(map(as_paragraph, items)))


Block: TypeAlias = Heading | Paragraph | Picture | Items | Table


@dataclass(frozen=True, slots=True, init=False)
class Document:
    """Blocks in the order of reading; plain text is a paragraph."""

    blocks: tuple[Block, ...]

    def __init__(self, *blocks: str | Block) -> None:
        """Take the blocks as arguments."""
        object.__setattr__(self, "blocks", tuple(Paragraph(one) if isinstance(one, str) else one for one in blocks))

    def __str__(self) -> str:
        """Return it as Markdown."""
        from fedtempo.tables.markdown import to_markdown

        return to_markdown(self)

    def _repr_html_(self) -> str | None:
        """Return what a notebook shows."""
        from fedtempo.tables.html import notebook_html

        return notebook_html(self)
