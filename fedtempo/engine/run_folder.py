"""The folder of one run: records as they come, and a checkpoint from which a killed run resumes to the byte."""

import os
import time
import warnings
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import msgspec
import numpy as np

from fedtempo.checks import InputError
from fedtempo.engine import headers
from fedtempo.engine.divergence import DivergedError
from fedtempo.engine.headers import LIMITS
from fedtempo.engine.records import (
    RECORDS,
    Header,
    HeaderLine,
    RoundRecord,
    RunNotice,
    Summary,
    encode,
    plain,
    read_header,
    read_records,
    whole_lines,
)
from fedtempo.files import lock, naming_full_disks, whole_file
from fedtempo.state import VALUES, Arrays, read_states, write_states

CHECKPOINT, LOCK = "checkpoint.npz", ".lock"
LOCK_PATIENCE, LOCK_POLL = 20.0, 0.1  # seconds


@dataclass(slots=True)
class Written:
    """What a checkpoint knows of the records beside it."""

    num_bytes: int = 0  # of rounds that had been written
    header: dict[str, object] = field(default_factory=dict)  # of the run, without its limits


@dataclass(slots=True)
class _Place:
    """Written as a part of the checkpoint."""

    state: Written = field(default_factory=Written)


class RunFolder:
    """The folder of one run: a header line, a line for each round, a last line with the summary.

    A checkpoint remembers how many bytes of rounds had been written; what a run wrote after it is cut off and written
    again if the run goes on, because it was killed, or had ended at a limit and is now asked for with a later one. A
    new header takes its place together with the rounds that are kept, and the checkpoint fits both headers, so that a
    kill costs nothing.
    """

    def __init__(self, folder: Path | str, header: Header, canonical: headers.Canonical = headers.as_table) -> None:
        """Name the folder and the run. Headers are compared in the form that ``canonical`` gives them."""
        self.folder, self.header, self.canonical = Path(folder), plain(header), canonical
        self.records, self.checkpoint = self.folder / RECORDS, self.folder / CHECKPOINT
        self._stream: IO[bytes] | None = None
        self._lock: IO[bytes] | None = None
        self._done = False  # and cannot go on to a later limit

    def finished(self) -> Summary | None:
        """Return the summary if the run has ended, None if it may go on; if it diverged, raise what was raised then.

        A folder that holds another run is refused. A run begun with another version or commit keeps its header and goes
        on, with a ``RunNotice``.
        """
        self._take_up()
        if not self.records.exists():
            return None
        found = read_records(self.records)
        if found.summary is None or found.header is None:
            return None
        if found.summary.end == "diverged":
            reason = f"training diverged, as the records in {self.folder} say"
            raise DivergedError(found.summary.get("error", reason))
        if found.summary.end in LIMITS and headers.limits(found.header) != headers.limits(self.header):
            return None
        return found.summary

    def lock(self) -> None:
        """Keep other processes from writing this run until ``close``; wait a little for one that may be about to end.

        Which run the folder holds is asked again: that process may have written another.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        self._lock = open(self.folder / LOCK, "ab")  # noqa: SIM115
        waited = 0.0
        try:
            while not lock(self._lock):
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

    def open(self) -> Arrays | None:
        """Open for writing; return the states to go on from if the run was begun before."""
        if self._lock is None:
            self.lock()
        for left_by_a_kill in self.folder.glob(".fedtempo-*.part"):
            left_by_a_kill.unlink()
        begun, header, found = self._begun(), self._header_line(), self._load()
        if found is None:
            self.checkpoint.unlink(missing_ok=True)  # another run's, or a damaged one
        kept = 0 if found is None else found[0]
        if found is None or begun != header:
            rounds = self.records.read_bytes()[len(begun) :][:kept] if kept else b""
            with whole_file(self.records, "wb") as stream:
                stream.write(header + rounds)
        self._stream = open(self.records, "r+b")  # noqa: SIM115
        self._stream.seek(len(header) + kept)
        self._stream.truncate()
        return None if found is None else found[1]

    def write(self, record: RoundRecord | Summary) -> None:
        """Append a line; it has left the process when this returns."""
        stream = self._opened()
        with naming_full_disks(self.records):
            stream.write(encode(record))
            stream.flush()
        self._done = isinstance(record, Summary) and record.end not in LIMITS

    def save(self, arrays: Arrays) -> None:
        """Write the checkpoint, whole or not at all, after the records that it counts on."""
        stream = self._opened()
        with naming_full_disks(self.records):
            os.fsync(stream.fileno())
        written = Written(
            stream.tell() - len(self._header_line()), headers.as_table(headers.with_limits(self.header, None))
        )
        parts = write_states({"files": _Place(written)})
        with whole_file(self.checkpoint, "wb") as target:
            np.savez(target, **parts, **arrays)  # type: ignore[arg-type]

    def close(self) -> None:
        """Close the records and let others write them; a run that is done needs no checkpoint."""
        stream, locked, self._stream, self._lock = self._stream, self._lock, None, None
        try:
            if stream is not None:
                with naming_full_disks(self.records):
                    stream.close()
                if self._done:
                    self.checkpoint.unlink(missing_ok=True)
        finally:
            if locked is not None:
                locked.close()

    def _opened(self) -> IO[bytes]:
        if self._stream is None:
            raise ValueError("open the files before writing to them")
        return self._stream

    def _header_line(self) -> bytes:
        return encode(HeaderLine(self.header))

    def _begun(self) -> bytes:
        """Return the header line that is there, b"" if none is, or half of one."""
        return next(whole_lines(self.records), b"") if self.records.exists() else b""

    def _take_up(self) -> None:
        """Keep the header of a run that was begun by other code, but for its limits; refuse another run's."""
        if self.folder.exists() and not self.folder.is_dir():
            raise InputError(name=self.folder, rule="be a folder", got="a file", remedy="choose another folder")
        if self._begun() in (b"", self._header_line()) or (there := read_header(self.records)) is None:
            return
        differing = self._other_than(there)
        other_run = self._other_than(headers.with_limits(there, self.header))
        if differing and (other_run or not self._may_go_on()):
            same = "" if other_run else "ask for as many rounds as it has or more, "
            raise InputError(
                name=self.folder,
                rule="be a new folder or hold the same run",
                got=f"another run's records ({differing})",
                remedy=f"{same}choose another folder, or delete this one",
            )
        before, self.header = self.header, headers.with_config(there, self.header.config)
        if differing := headers.other_code(there, before):
            warnings.warn(
                f"{self.folder} was begun by other code and keeps its header ({differing}); "
                "its numbers may differ from those of a run by this code alone",
                RunNotice,
                stacklevel=4,
            )

    def _other_than(self, header: Header) -> str:
        """Say in what another header asks for another run; "" if it asks for this one."""
        return headers.other_run(header, self.header, self.canonical)

    def _may_go_on(self) -> bool:
        """Return whether the limits end the run with its last round so far or later, and going on loses no round."""
        found = read_records(self.records)
        times = [record.round_time for record in found.rounds if record.trained]
        max_rounds, max_time = headers.limits(self.header)
        lost = found.summary is not None and found.summary.end in LIMITS and self._load() is None
        return not lost and len(times) <= max_rounds and sum(times[:-1]) < max_time

    def _load(self) -> tuple[int, Arrays] | None:
        """Return what the checkpoint holds: the bytes of rounds that it counts on, and states.

        None if there is none, or a damaged one, or another run's. One of another version is refused: a run that starts
        again would lose its rounds.
        """
        try:
            with open(self.checkpoint, "rb") as stream, np.load(stream) as saved:
                arrays = {name: saved[name] for name in saved.files}
        except (OSError, EOFError, TypeError, ValueError, zipfile.BadZipFile):
            return None
        if f"files.{VALUES}" not in arrays:
            raise other_version(self, "one of another version")
        place = _Place()
        try:
            read_states({"files": place}, arrays)
            rounds = self.records.stat().st_size - len(self._begun())
            there = msgspec.convert(place.state.header, Header)
            same = not self._other_than(headers.with_limits(there, self.header))
        except OSError:
            return None
        except (ValueError, TypeError) as error:
            raise other_version(self, f"another: {error}") from error
        return (place.state.num_bytes, arrays) if same and place.state.num_bytes <= rounds else None


def other_version(files: RunFolder, what: str) -> InputError:
    """Return the error of a checkpoint that this version of fedtempo cannot go on from."""
    return InputError(
        name=files.checkpoint,
        rule="be a checkpoint of this version of fedtempo",
        got=what,
        remedy=f"go on with the version that wrote it, or delete {files.folder} to start again",
    )
