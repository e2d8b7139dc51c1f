"""Records of a run: JSON lines, written as they come, and a checkpoint from which a killed run resumes to the byte."""

import hashlib
import json
import os
import reprlib
import time
import warnings
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from fedtempo.checks import InputError
from fedtempo.files import lock, whole_file
from fedtempo.simulator.loop import DivergedError

RECORDS, CHECKPOINT = "records.jsonl", "checkpoint.npz"
ORIGIN = ("preset", "versions", "commit")  # of a header: with what a run was made, not what was asked for
HEADER_NAMES = ("experiment", "policy", "seed", "config", "data_checksum", "samples")
ROUND_NAMES = (
    "round", "phase", "round_time", "loss", "accuracy", "members", "counts", "compute_time", "upload_time",
    "largest_gradient_norm",
)  # fmt: skip
DIFFERENCES_SHOWN = 3
LOCK_PATIENCE, LOCK_POLL = 20.0, 0.1  # seconds
Arrays = dict[str, npt.NDArray[np.generic]]


class RunNotice(UserWarning):
    """Something that whoever goes on with a run should know."""


class RunFiles:
    """The folder of one run: a header line, a line for each round, a last line with the summary.

    Lines hold nothing that differs between equal runs, so that equal runs have equal bytes. A checkpoint remembers how
    many bytes had been written; what a killed run wrote after it is cut off and written again.
    """

    def __init__(self, folder: Path | str, header: dict[str, Any]) -> None:
        """Name the folder and the run; a folder that holds another run is refused. Nothing is written yet.

        A run begun with another version or commit keeps its header and goes on, with a ``RunNotice``.
        """
        self.folder, self.header = Path(folder), _line({"header": header})
        self.records, self.checkpoint = self.folder / RECORDS, self.folder / CHECKPOINT
        self.stream: IO[bytes] | None = None
        if self.folder.exists() and not self.folder.is_dir():
            raise InputError(f"{self.folder} must be a folder, got a file; choose another folder with -o")
        if self.records.exists():
            self._take_up(json.loads(self.header)["header"])

    def finished(self) -> dict[str, Any] | None:
        """Return the summary if the run has ended; if it diverged, raise what was raised then."""
        last: dict[str, Any] = {}
        if self.records.exists():
            for last in read_lines(self.records):  # noqa: B007
                pass
        if last.get("end") == "diverged":
            raise DivergedError(last.get("error", f"training diverged, as the records in {self.folder} say"))
        return last if "end" in last else None

    def lock(self) -> None:
        """Keep other processes from writing this run until ``close``."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.stream = self._opened()

    def open(self) -> tuple[dict[str, Any], Arrays] | None:
        """Open for writing; return the state to go on from if the run was begun before."""
        if self.stream is None:
            self.lock()
        assert self.stream is not None
        for left_by_a_kill in self.folder.glob(".fedtempo-*.part"):
            left_by_a_kill.unlink()
        state = self._load()
        kept = len(self.header) if state is None else int(state[0]["bytes"])
        if state is None:
            self.checkpoint.unlink(missing_ok=True)  # another run's, or a damaged one
            self.stream.write(self.header)
            self.stream.flush()
        self.stream.truncate(kept)
        self.stream.seek(kept)
        return state

    def _opened(self) -> IO[bytes]:
        """Open the records for this process alone; wait a little for one that may be about to end."""
        stream = open(os.open(self.records, os.O_RDWR | os.O_CREAT, 0o666), "r+b")  # noqa: SIM115
        waited = 0.0
        while not lock(stream):
            if waited >= LOCK_PATIENCE:
                stream.close()
                raise InputError(f"{self.folder} must be written by one process, got another that is writing it")
            time.sleep(LOCK_POLL)
            waited += LOCK_POLL
        return stream

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
        values = values | {"bytes": self.stream.tell(), "header": self._header_hash()}
        packed = np.frombuffer(json.dumps(values).encode(), dtype=np.uint8)
        with whole_file(self.checkpoint, "wb") as stream:
            np.savez(stream, values=packed, **arrays)  # type: ignore[arg-type]

    def close(self, *, done: bool) -> None:
        """Close the records; a finished run needs no checkpoint."""
        if self.stream is not None:
            self.stream.close()
            self.stream = None
        if done:
            self.checkpoint.unlink(missing_ok=True)

    def _take_up(self, here: dict[str, Any]) -> None:
        """Keep the header of a run that was begun by other code; refuse another run's."""
        with open(self.records, "rb") as stream:
            begun = stream.readline()
        if not begun.endswith(b"\n") or begun == self.header:
            return
        there = next(read_lines(self.records)).get("header", {})
        names = [name for name in {**there, **here} if name not in ORIGIN]
        if differing := _differences(there, here, names):
            raise InputError(
                f"{self.folder} must be a new folder or hold the same run, got another run's records "
                f"({differing}); choose another folder with -o, or delete this one"
            )
        self.header = begun
        if differing := _differences(there, here, ORIGIN):
            warnings.warn(
                f"{self.folder} was begun by other code and keeps its header ({differing}); "
                "its numbers may differ from those of a run by this code alone",
                RunNotice,
                stacklevel=4,
            )

    def _load(self) -> tuple[dict[str, Any], Arrays] | None:
        """Return what the checkpoint holds, None if there is none, or a damaged one, or another run's."""
        try:
            with open(self.checkpoint, "rb") as stream, np.load(stream) as saved:
                arrays = {name: saved[name] for name in saved.files}
            values = json.loads(arrays.pop("values").tobytes())
        except (OSError, EOFError, ValueError, KeyError, TypeError, zipfile.BadZipFile):
            return None
        usable = values.get("header") == self._header_hash() and values["bytes"] <= self.records.stat().st_size
        return (values, arrays) if usable else None

    def _header_hash(self) -> str:
        return hashlib.sha256(self.header).hexdigest()


def read_lines(path: Path | str) -> Iterator[dict[str, Any]]:
    """Yield the lines of a records file; a last line that a killed run left half-written is passed over."""
    with open(path, "rb") as stream:
        for number, line in enumerate(stream, 1):
            if line.endswith(b"\n"):
                try:
                    record = json.loads(line)
                except ValueError:
                    record = None
                if not isinstance(record, dict):
                    raise InputError(
                        f"{path} must hold the records of a run, got something else in line {number}; name another"
                    )
                yield record


def read_records(path: Path) -> tuple[dict[str, Any], list[dict[str, Any]], dict[str, Any]]:
    """Return the header, the rounds and the summary of a records file, {} where the run has not ended."""
    lines = list(read_lines(path))
    header = lines[0].get("header", {}) if lines else {}
    rounds = [record for record in lines if "members" in record]
    summary = lines[-1] if lines and "end" in lines[-1] else {}
    for record, names in ((header, HEADER_NAMES), *((record, ROUND_NAMES) for record in rounds)):
        missing = [name for name in names if name not in record]
        if missing:
            raise InputError(f"{path} must hold the whole records of a run, got none of {', '.join(missing)}")
    return header, rounds, summary


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


def _differences(there: dict[str, Any], here: dict[str, Any], names: Iterable[str]) -> str:
    """Return in words what differs between two headers under some names, "" if nothing does."""
    found = [text for name in names for text in _each_difference(name, there.get(name), here.get(name))]
    more = [f"and {len(found) - DIFFERENCES_SHOWN} more"] if len(found) > DIFFERENCES_SHOWN else []
    return "; ".join(found[:DIFFERENCES_SHOWN] + more)


def _each_difference(name: str, there: object, here: object) -> Iterator[str]:
    if isinstance(there, Mapping) and isinstance(here, Mapping):
        for key in {**there, **here}:
            yield from _each_difference(f"{name}.{key}", there.get(key), here.get(key))
    elif there != here:
        was, now = ("nothing" if value is None else reprlib.repr(value) for value in (there, here))
        yield f"{name}: {was} there, {now} here"


def _line(record: dict[str, Any]) -> bytes:
    return json.dumps(record, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"
