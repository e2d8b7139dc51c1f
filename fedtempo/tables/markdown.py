"""Tables and pages as Markdown, as files and pipes get them."""

from collections.abc import Iterable

from fedtempo.tables.document import Block, Document, Heading, Items, Picture
from fedtempo.tables.prose import Code, Hyperlink, Paragraph, Span
from fedtempo.tables.table import Table

SIDES = {"left": "---", "right": "---:"}


def to_markdown(content: Table | Document) -> str:
    """Return Markdown without an end of line at its end."""
    return _joined(content.blocks) if isinstance(content, Document) else _table(content)


def _joined(blocks: Iterable[Block]) -> str:
    return "\n\n".join(map(_block, blocks))


def _block(block: Block) -> str:
    if isinstance(block, Heading):
        return f"{'#' * block.level} {block.text}"
    if isinstance(block, Picture):
        return f"![{block.description}]({block.path})"
    if isinstance(block, Items):
        return "\n".join(f"- {_paragraph(item)}" for item in block.items)
    return _paragraph(block) if isinstance(block, Paragraph) else _table(block)


def _paragraph(paragraph: Paragraph) -> str:
    return "".join(map(_span, paragraph.spans))


def _span(span: Span) -> str:
    if isinstance(span, Code):
        return f"`{span.text}`"
    return f"[{span.text}]({span.target})" if isinstance(span, Hyperlink) else span


def _table(table: Table) -> str:
    lines = [
        _line(column.heading for column in table.columns),
        f"|{'|'.join(SIDES[column.align] for column in table.columns)}|",
        *(_line(cell.text for cell in row) for row in table.rows),
    ]
    title = [table.title] if table.title else []
    return "\n\n".join([*title, "\n".join(lines), *map(_paragraph, table.notes)])


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
