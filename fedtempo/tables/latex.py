"""A table for LaTeX, with the rules of the package booktabs."""

from collections.abc import Iterable

from fedtempo.tables.prose import Code, Paragraph
from fedtempo.tables.table import Table

SPECIAL = {character: f"\\{character}" for character in "&%$#_{}"} | {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "[": "{[}",  # after the end of a row it would begin a length
    "]": "{]}",
    "–": "--",
    "−": "$-$",
    "…": r"\dots{}",
    "×": r"$\times$",
    "±": r"$\pm$",
    "≤": r"$\le$",
    "≥": r"$\ge$",
    "·": r"$\cdot$",
    "α": r"$\alpha$",
    "β": r"$\beta$",
    "τ": r"$\tau$",
}
ESCAPES = str.maketrans(SPECIAL)


def to_latex(table: Table) -> str:
    """Return a floating table: the title is its caption, notes stand below in small print."""
    sides = "".join(column.align[0] for column in table.columns)
    lines = [
        r"\begin{table}",
        r"\centering",
        *([rf"\caption{{{_escaped(table.title)}}}"] if table.title else []),
        rf"\begin{{tabular}}{{{sides}}}",
        r"\toprule",
        _line(column.heading for column in table.columns),
        r"\midrule",
        *(_line(cell.text for cell in row) for row in table.rows),
        r"\bottomrule",
        r"\end{tabular}",
        *(rf"\par\smallskip{{\footnotesize {_paragraph(note)}}}" for note in table.notes),
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def _line(cells: Iterable[str]) -> str:
    return " & ".join(map(_escaped, cells)) + r" \\"


def _paragraph(paragraph: Paragraph) -> str:
    spans = ((span, None) if isinstance(span, str) else (span.text, type(span)) for span in paragraph.spans)
    return "".join(rf"\texttt{{{_escaped(text)}}}" if kind is Code else _escaped(text) for text, kind in spans)


def _escaped(text: str) -> str:
    return text.translate(ESCAPES)
