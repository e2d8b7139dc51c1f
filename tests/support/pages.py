"""Fenced blocks of Markdown pages."""

import re
from pathlib import Path


def fenced_blocks(page: Path) -> list[tuple[str, str]]:
    """Return the languages and texts of a page's fenced blocks, in order."""
    return re.findall(r"^```(.*)\n((?:.*\n)*?)```$", page.read_text(), re.MULTILINE)


def fenced(page: Path, language: str) -> list[str]:
    """Return a page's fenced blocks in a language, in order."""
    return [text for given, text in fenced_blocks(page) if given == language]
