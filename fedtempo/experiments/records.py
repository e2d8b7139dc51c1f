"""Records of a run: JSON lines, written as they come, and a checkpoint from which a killed run resumes to the byte."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from fedtempo.checks import InputError
from fedtempo.files import whole_file

RECORDS, CHECKPOINT = "records.jsonl", "checkpoint.npz"
Arrays = dict[str, npt.NDArray[np.generic]]


class RunFiles:
    """The folder of one run: a header line, a line for each round, a last line with the summary.

    Lines hold nothing that differs between equal runs, so that equal runs have equal bytes. A checkpoint remembers how
    many bytes had been written; what a killed run wrote after it is cut off and written again.
    """

    def __init__(self, folder: Path | str, header: dict[str, Any]) -> None:
        """Name the folder and the run; a folder that holds another run is refused. Nothing is written yet."""
        self.folder, self.header = Path(folder), _line({"header": header})
        self.records, self.checkpoint = self.folder / RECORDS, self.folder / CHECKPOINT
        self.stream: IO[bytes] | None = None
        begun = b""
        if self.records.exists():
            with open(self.records, "rb") as stream:
                begun = stream.readline()
        if begun.endswith(b"\n") and begun != self.header:
            raise InputError(f"{self.folder} must be a new folder or hold the same run, got another run's records")

    def finished(self) -> dict[str, Any] | None:
        """Return the summary if the run has ended."""
        last: dict[str, Any] = {}
        if self.records.exists():
            for last in read_lines(self.records):  # noqa: B007
                pass
        return last if "end" in last else None

    def open(self) -> tuple[dict[str, Any], Arrays] | None:
        """Open for writing; return the state to go on from if the run was begun before."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for left_by_a_kill in self.folder.glob(".fedtempo-*.part"):
            left_by_a_kill.unlink()
        state = self._load() if self.records.exists() else None
        kept = len(self.header) if state is None else int(state[0]["bytes"])
        self.stream = open(self.records, "r+b" if self.records.exists() else "w+b")  # noqa: SIM115
        if state is None:
            self.stream.write(self.header)
            self.stream.flush()
        self.stream.truncate(kept)
        self.stream.seek(kept)
        return state

    def write(self, record: dict[str, Any]) -> None:
        """Append a line; it has left the process when this returns."""
        if self.stream is None:
            raise ValueError("open the files before writing records")
        self.stream.write(_line(record))
        self.stream.flush()

    def save(self, values: dict[str, Any], arrays: Arrays) -> None:
        """Write the checkpoint, whole or not at all, after the records that it counts on."""
        if self.stream is None:
            raise ValueError("open the files before saving a checkpoint")
        os.fsync(self.stream.fileno())
        packed = np.frombuffer(json.dumps(values | {"bytes": self.stream.tell()}).encode(), dtype=np.uint8)
        with whole_file(self.checkpoint, "wb") as stream:
            np.savez(stream, values=packed, **arrays)  # type: ignore[arg-type]

    def close(self, *, done: bool) -> None:
        """Close the records; a finished run needs no checkpoint."""
        if self.stream is not None:
            self.stream.close()
            self.stream = None
        if done:
            self.checkpoint.unlink(missing_ok=True)

    def _load(self) -> tuple[dict[str, Any], Arrays] | None:
        if not self.checkpoint.exists():
            return None
        with np.load(self.checkpoint) as saved:
            arrays = {name: saved[name] for name in saved.files}
        values = json.loads(arrays.pop("values").tobytes())
        return (values, arrays) if values["bytes"] <= self.records.stat().st_size else None


def read_lines(path: Path | str) -> Iterator[dict[str, Any]]:
    """Yield the lines of a records file; a last line that a killed run left half-written is passed over."""
    with open(path, "rb") as stream:
        for line in stream:
            if line.endswith(b"\n"):
                yield json.loads(line)


def find_runs(folders: list[Path]) -> list[Path]:
    """Return the records files in some folders and below, in order of their names."""
    found = []
    for folder in folders:
        if not folder.exists():
            raise InputError(f"{folder} must be a folder of runs, got no such folder")
        found += [folder] if folder.is_file() else sorted(folder.rglob(RECORDS))
    if not found:
        raise InputError(f"{', '.join(map(str, folders))} must hold records of runs ({RECORDS}), got none")
    return found


def _line(record: dict[str, Any]) -> bytes:
    return json.dumps(record, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"
