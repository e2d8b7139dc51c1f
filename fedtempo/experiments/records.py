"""Records of a run: JSON lines, written as they come, and a checkpoint from which a killed run resumes to the byte."""

import hashlib
import json
import math
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
LIMITS = ("max_rounds", "max_time")  # of [stop], and the ends of runs that may go on to later ones
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
    many bytes had been written; what a run wrote after it is cut off and written again if the run goes on, because it
    was killed, or had ended at a limit and is now asked for with a later one.
    """

    def __init__(self, folder: Path | str, header: dict[str, Any]) -> None:
        """Name the folder and the run; a folder that holds another run is refused. Nothing is written yet.

        A run begun with another version or commit keeps its header and goes on, with a ``RunNotice``.
        """
        self.folder, self.limits, self.header = Path(folder), _limits(header), _line({"header": header})
        self.records, self.checkpoint = self.folder / RECORDS, self.folder / CHECKPOINT
        self.stream: IO[bytes] | None = None
        if self.folder.exists() and not self.folder.is_dir():
            raise InputError(f"{self.folder} must be a folder, got a file; choose another folder with -o")
        if self.records.exists():
            self._take_up(header)

    def finished(self) -> dict[str, Any] | None:
        """Return the summary if the run has ended, None if it may go on; if it diverged, raise what was raised then."""
        lines = read_lines(self.records) if self.records.exists() else iter(())
        last = first = next(lines, {})
        for last in lines:  # noqa: B007
            pass
        end = last.get("end")
        if end == "diverged":
            raise DivergedError(last.get("error", f"training diverged, as the records in {self.folder} say"))
        if end in LIMITS and _limits(first["header"]) != self.limits:
            return None
        return last if end is not None else None

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
        begun = self.stream.readline()
        state = self._load(begun)
        if state is not None and begun == self.header:
            self.stream.seek(state[0]["bytes"])
            self.stream.truncate()
            return state
        rounds = b"" if state is None else self.stream.read(state[0]["bytes"] - len(begun))
        self.stream.seek(0)
        self.stream.truncate()
        self.stream.write(self.header + rounds)
        self.stream.flush()
        if state is None:
            self.checkpoint.unlink(missing_ok=True)  # another run's, or a damaged one
        else:
            self.save(*state)
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
        values = values | {"bytes": self.stream.tell(), "header": _hash(self.header)}
        packed = np.frombuffer(json.dumps(values).encode(), dtype=np.uint8)
        with whole_file(self.checkpoint, "wb") as stream:
            np.savez(stream, values=packed, **arrays)  # type: ignore[arg-type]

    def close(self, *, done: bool) -> None:
        """Close the records; a run that is done, and cannot go on to a later limit, needs no checkpoint."""
        if self.stream is not None:
            self.stream.close()
            self.stream = None
        if done:
            self.checkpoint.unlink(missing_ok=True)

    def _take_up(self, here: dict[str, Any]) -> None:
        """Keep the header of a run that was begun by other code, but for its limits; refuse another run's."""
        with open(self.records, "rb") as stream:
            begun = stream.readline()
        if not begun.endswith(b"\n") or begun == self.header:
            return
        there = next(read_lines(self.records)).get("header", {})
        differing = _differences(there, here, (name for name in {**there, **here} if name not in ORIGIN))
        if differing and not (_but_for_limits(there) == _but_for_limits(here) and self._may_go_on()):
            raise InputError(
                f"{self.folder} must be a new folder or hold the same run, got another run's records "
                f"({differing}); choose another folder with -o, or delete this one"
            )
        self.header = _line({"header": there | {"config": here["config"]}})
        if differing := _differences(there, here, ORIGIN):
            warnings.warn(
                f"{self.folder} was begun by other code and keeps its header ({differing}); "
                "its numbers may differ from those of a run by this code alone",
                RunNotice,
                stacklevel=4,
            )

    def _may_go_on(self) -> bool:
        """Return whether the limits end the run with its last round so far or later, and going on loses no round."""
        lines = list(read_lines(self.records))
        times = [line["round_time"] for line in lines if line.get("phase") == "train"]
        max_rounds, max_time = (math.inf if limit is None else limit for limit in self.limits)
        lost = lines[-1].get("end") in LIMITS and not self.checkpoint.exists()
        return not lost and len(times) <= max_rounds and sum(times[:-1]) < max_time

    def _load(self, begun: bytes) -> tuple[dict[str, Any], Arrays] | None:
        """Return what the checkpoint holds, None if there is none, or a damaged one, or one under another header."""
        try:
            with open(self.checkpoint, "rb") as stream, np.load(stream) as saved:
                arrays = {name: saved[name] for name in saved.files}
            values = json.loads(arrays.pop("values").tobytes())
        except (OSError, EOFError, ValueError, KeyError, TypeError, zipfile.BadZipFile):
            return None
        usable = values.get("header") == _hash(begun) and values["bytes"] <= self.records.stat().st_size
        return (values, arrays) if usable else None


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


def _limits(header: dict[str, Any]) -> list[float | None]:
    return [header.get("config", {}).get("stop", {}).get(name) for name in LIMITS]


def _but_for_limits(header: dict[str, Any]) -> dict[str, Any]:
    """Return what a run is, whatever its limits and whatever it was made with."""
    config = header.get("config", {})
    stop = {name: value for name, value in config.get("stop", {}).items() if name not in LIMITS}
    kept = {name: value for name, value in header.items() if name not in ORIGIN}
    return kept | {"config": config | {"stop": stop}}


def _hash(header: bytes) -> str:
    return hashlib.sha256(header).hexdigest()


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
