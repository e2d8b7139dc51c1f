"""The lines of a records file as a run writes them."""

from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

from fedtempo.engine.records import HeaderLine, RoundRecord, Summary, decode_line, whole_lines

RecordLine: TypeAlias = HeaderLine | RoundRecord | Summary


class RecordsTail:
    """What is new in a records file; all of it again where a run that goes on has cut some off."""

    def __init__(self, path: Path) -> None:
        """Start before the first line; the file need not exist yet."""
        self.path, self.seen = path, list[bytes]()

    def __iter__(self) -> Iterator[RecordLine]:
        """Yield what is new since the last time."""
        lines = list(whole_lines(self.path)) if self.path.exists() else []
        same = lines[: len(self.seen)] == self.seen
        first, self.seen = len(self.seen) if same else 0, lines
        for number, line in enumerate(lines[first:], first + 1):
            yield decode_line(line, self.path, f"line {number}")
