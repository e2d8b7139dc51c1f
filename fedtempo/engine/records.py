"""Records of a run: JSON lines, written as they come, and a checkpoint from which a killed run resumes to the byte."""

import json
import math
import os
import reprlib
import time
import warnings
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from fedtempo.checks import InputError
from fedtempo.engine.loop import DivergedError
from fedtempo.files import lock, whole_file

RECORDS, CHECKPOINT, LOCK = "records.jsonl", "checkpoint.npz", ".lock"
CODE = ("versions", "commit")  # of a header: with what a run was made
ORIGIN = ("experiment", "preset", *CODE)  # and what it was called then: nothing of what was asked for
LIMITS = ("max_rounds", "max_time")  # of [stop], and the ends of runs that may go on to later ones
HEADER_NAMES = ("experiment", "policy", "seed", "config", "data_checksum", "samples")
ROUND_NAMES = (
    "round", "phase", "round_time", "loss", "accuracy", "members", "counts", "compute_time", "upload_time",
    "largest_gradient_norm",
)  # fmt: skip
DIFFERENCES_SHOWN = 3
LOCK_PATIENCE, LOCK_POLL = 20.0, 0.1  # seconds
Arrays = dict[str, npt.NDArray[np.generic]]
Header = dict[str, Any]


class RunNotice(UserWarning):
    """Something that whoever goes on with a run should know."""


class RunFiles:
    """The folder of one run: a header line, a line for each round, a last line with the summary.

    Lines hold nothing that differs between equal runs, so that equal runs have equal bytes. A checkpoint remembers how
    many bytes of rounds had been written; what a run wrote after it is cut off and written again if the run goes on,
    because it was killed, or had ended at a limit and is now asked for with a later one. A new header takes its place
    together with the rounds that are kept, and the checkpoint fits both headers, so that a kill costs nothing.
    """

    def __init__(
        self, folder: Path | str, header: Header, canonical: Callable[[Header], Header] = lambda header: header
    ) -> None:
        """Name the folder and the run; a folder that holds another run is refused. Nothing is written yet.

        A run begun with another version or commit keeps its header and goes on, with a ``RunNotice``. Headers are
        compared in the form that ``canonical`` gives them, or as they are where it refuses one of them.
        """
        self.folder, self.header, self.canonical = Path(folder), _plain(header), canonical
        self.records, self.checkpoint = self.folder / RECORDS, self.folder / CHECKPOINT
        self.stream: IO[bytes] | None = None
        self.locked: IO[bytes] | None = None
        self.done = False  # and cannot go on to a later limit
        if self.folder.exists() and not self.folder.is_dir():
            raise InputError(name=self.folder, rule="be a folder", got="a file", remedy="choose another folder")
        self._take_up()

    def finished(self) -> dict[str, Any] | None:
        """Return the summary if the run has ended, None if it may go on; if it diverged, raise what was raised then."""
        lines = read_lines(self.records) if self.records.exists() else iter(())
        last = first = next(lines, {})
        for last in lines:  # noqa: B007
            pass
        end = last.get("end")
        if end == "diverged":
            raise DivergedError(last.get("error", f"training diverged, as the records in {self.folder} say"))
        if end in LIMITS and _limits(first["header"]) != _limits(self.header):
            return None
        return last if end is not None else None

    def lock(self) -> None:
        """Keep other processes from writing this run until ``close``; wait a little for one that may be about to end.

        Which run the folder holds is asked again: that process may have written another.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        self.locked = open(self.folder / LOCK, "ab")  # noqa: SIM115
        waited = 0.0
        try:
            while not lock(self.locked):
                if waited >= LOCK_PATIENCE:
                    raise InputError(
                        name=self.folder, rule="be written by one process", got="another that is writing it"
                    )
                time.sleep(LOCK_POLL)
                waited += LOCK_POLL
            self._take_up()
        except BaseException:
            self.close()
            raise

    def open(self) -> tuple[dict[str, Any], Arrays] | None:
        """Open for writing; return the state to go on from if the run was begun before."""
        if self.locked is None:
            self.lock()
        for left_by_a_kill in self.folder.glob(".fedtempo-*.part"):
            left_by_a_kill.unlink()
        begun, header, state = self._begun(), self._header_line(), self._load()
        kept = 0 if state is None else state[0]["bytes"]
        if state is None:
            self.checkpoint.unlink(missing_ok=True)  # another run's, or a damaged one
        if state is None or begun != header:
            rounds = self.records.read_bytes()[len(begun) :][:kept] if kept else b""
            with whole_file(self.records, "wb") as stream:
                stream.write(header + rounds)
        self.stream = open(self.records, "r+b")  # noqa: SIM115
        self.stream.seek(len(header) + kept)
        self.stream.truncate()
        return state

    def write(self, record: dict[str, Any]) -> None:
        """Append a line; it has left the process when this returns."""
        if self.stream is None:
            raise ValueError("open the files before writing records")
        self.stream.write(_line(record))
        self.stream.flush()
        self.done = record.get("end") not in (None, *LIMITS)

    def save(self, values: dict[str, Any], arrays: Arrays) -> None:
        """Write the checkpoint, whole or not at all, after the records that it counts on."""
        if self.stream is None:
            raise ValueError("open the files before saving a checkpoint")
        os.fsync(self.stream.fileno())
        values = values | {
            "bytes": self.stream.tell() - len(self._header_line()),
            "header": _but_for_limits(self.header),
        }
        packed = np.frombuffer(json.dumps(values).encode(), dtype=np.uint8)
        with whole_file(self.checkpoint, "wb") as stream:
            np.savez(stream, values=packed, **arrays)  # type: ignore[arg-type]

    def close(self) -> None:
        """Close the records and let others write them; a run that is done needs no checkpoint."""
        if self.stream is not None:
            self.stream.close()
            self.stream = None
            if self.done:
                self.checkpoint.unlink(missing_ok=True)
        if self.locked is not None:
            self.locked.close()
            self.locked = None

    def _header_line(self) -> bytes:
        return _line({"header": self.header})

    def _begun(self) -> bytes:
        """Return the header that is there, b"" if none is, or half of one."""
        if not self.records.exists():
            return b""
        with open(self.records, "rb") as stream:
            line = stream.readline()
        return line if line.endswith(b"\n") else b""

    def _take_up(self) -> None:
        """Keep the header of a run that was begun by other code, but for its limits; refuse another run's."""
        begun = self._begun()
        if begun in (b"", self._header_line()):
            return
        there, here = next(read_lines(self.records)).get("header", {}), self.header
        differing = self._other_than(there)
        if differing and (self._other_than(there, limits=False) or not self._may_go_on()):
            same = "" if self._other_than(there, limits=False) else "ask for as many rounds as it has or more, "
            raise InputError(
                name=self.folder,
                rule="be a new folder or hold the same run",
                got=f"another run's records ({differing})",
                remedy=f"{same}choose another folder, or delete this one",
            )
        self.header = there | {"config": here["config"]}
        if differing := other_code(there, here):
            warnings.warn(
                f"{self.folder} was begun by other code and keeps its header ({differing}); "
                "its numbers may differ from those of a run by this code alone",
                RunNotice,
                stacklevel=4,
            )

    def _other_than(self, header: Header, *, limits: bool = True) -> str:
        """Say in what another header asks for another run, with or without its limits; "" if it asks for this one."""
        both = [header, self.header] if limits else [_with_limits(one, self.header) for one in (header, self.header)]
        with suppress(InputError, KeyError):  # of code that knew other settings
            both = [_plain(self.canonical(one)) for one in both]
        there, here = both
        return _differences(there, here, (name for name in {**there, **here} if name not in ORIGIN))

    def _may_go_on(self) -> bool:
        """Return whether the limits end the run with its last round so far or later, and going on loses no round."""
        lines = list(read_lines(self.records))
        times = [line["round_time"] for line in lines if line.get("phase") == "train"]
        max_rounds, max_time = (math.inf if limit is None else limit for limit in _limits(self.header))
        lost = lines[-1].get("end") in LIMITS and self._load() is None
        return not lost and len(times) <= max_rounds and sum(times[:-1]) < max_time

    def _load(self) -> tuple[dict[str, Any], Arrays] | None:
        """Return what the checkpoint holds, None if there is none, or a damaged one, or another run's."""
        try:
            with open(self.checkpoint, "rb") as stream, np.load(stream) as saved:
                arrays = {name: saved[name] for name in saved.files}
            values = json.loads(arrays.pop("values").tobytes())
            rounds = self.records.stat().st_size - len(self._begun())
            same = not self._other_than(values["header"], limits=False)
            usable = same and values["bytes"] <= rounds
        except (OSError, EOFError, ValueError, KeyError, TypeError, zipfile.BadZipFile):
            return None
        return (values, arrays) if usable else None


def read_lines(path: Path | str) -> Iterator[dict[str, Any]]:
    """Yield the lines of a records file; a last line that a killed run left half-written is passed over."""
    with open(path, "rb") as stream:
        for number, line in enumerate(stream, 1):
            if line.endswith(b"\n"):
                yield parsed(line, path, f"line {number}; name another")


def parsed(line: bytes, path: Path | str, place: str) -> dict[str, Any]:
    """Return a line of a records file; ``place`` says where it stands, and what to do if it is none."""
    try:
        record = json.loads(line)
    except ValueError:
        record = None
    if not isinstance(record, dict):
        raise InputError(name=path, rule="hold the records of a run", got=f"something else in {place}")
    return record


def read_records(path: Path) -> tuple[dict[str, Any], list[dict[str, Any]], dict[str, Any]]:
    """Return the header, the rounds and the summary of a records file, {} where the run has not ended."""
    lines = list(read_lines(path))
    header = lines[0].get("header", {}) if lines else {}
    rounds = [record for record in lines if "members" in record]
    summary = lines[-1] if lines and "end" in lines[-1] else {}
    for record, names in ((header, HEADER_NAMES), *((record, ROUND_NAMES) for record in rounds)):
        missing = [name for name in names if name not in record]
        if missing:
            raise InputError(name=path, rule="hold the whole records of a run", got=f"none of {', '.join(missing)}")
    return header, rounds, summary


def read_header(path: Path) -> Header:
    """Return the header of a records file, {} where there is none, or half of one."""
    return next(read_lines(path), {}).get("header", {}) if path.exists() else {}


def other_code(there: Header, here: Header) -> str:
    """Say in what the code and its packages differ that two runs were made with, "" if in nothing."""
    return _differences(there, here, CODE)


def find_runs(folders: list[Path]) -> list[Path]:
    """Return the records files in some folders and below, in order of their names.

    Those of runs that were killed before they had a header are passed over, with a ``RunNotice``.
    """
    found = []
    for folder in folders:
        if not folder.exists():
            raise InputError(name=folder, rule="be a folder of runs", got="no such folder")
        there = [folder] if folder.is_file() else sorted(folder.rglob(RECORDS))
        empty = [path for path in there if path != folder and not _has_a_line(path)]
        if empty:
            warnings.warn(
                f"{_listed(empty)} without a line passed over: killed at their start", RunNotice, stacklevel=2
            )
        found += [path for path in there if path not in empty]
    if not found:
        raise InputError(name=", ".join(map(str, folders)), rule=f"hold records of runs ({RECORDS})", got="none")
    return found


def _has_a_line(path: Path) -> bool:
    with open(path, "rb") as stream:
        return stream.readline().endswith(b"\n")


def _listed(paths: list[Path]) -> str:
    more = f" and {len(paths) - DIFFERENCES_SHOWN} more" if len(paths) > DIFFERENCES_SHOWN else ""
    return ", ".join(map(str, paths[:DIFFERENCES_SHOWN])) + more


def _limits(header: Header) -> list[float | None]:
    return [header.get("config", {}).get("stop", {}).get(name) for name in LIMITS]


def _but_for_limits(header: Header) -> Header:
    """Return what a run is, whatever its limits and whatever it was made with."""
    return {name: value for name, value in _with_limits(header, {}).items() if name not in ORIGIN}


def _with_limits(header: Header, of: Header) -> Header:
    """Return a header with the limits of another."""
    config, limits = header.get("config", {}), zip(LIMITS, _limits(of), strict=True)
    stop = {name: value for name, value in config.get("stop", {}).items() if name not in LIMITS}
    given = {name: value for name, value in limits if value is not None}
    return header | {"config": config | {"stop": stop | given}}


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


def _plain(values: Header) -> Header:
    """Return values as a JSON file gives them back."""
    return json.loads(_line(values))  # type: ignore[no-any-return]


def _line(record: dict[str, Any]) -> bytes:
    return json.dumps(record, separators=(",", ":"), ensure_ascii=False, default=_plain_value).encode() + b"\n"


def _plain_value(value: object) -> object:
    """Return numbers and arrays of NumPy as Python's own."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    raise TypeError(f"records hold JSON values, got {type(value).__name__}")
