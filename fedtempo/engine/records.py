"""What records.jsonl holds: a header, a line for each round, a summary; and how they are written and read.

Lines hold nothing that differs between equal runs, so that equal runs have equal bytes. They are encoded and decoded
strictly: a line of another shape is refused with one sentence. Records of format 1, which named no format, have the
same fields but for what ``failures`` of a note hold; they are read as they are. A setting may be infinite, so headers
hold Infinity where it is; in rounds and summaries null stands for whatever is no finite number.
"""

import json
import math
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar

import msgspec
import numpy as np

from fedtempo.checks import InputError, Vector
from fedtempo.policies.policy import RoundReport

FORMAT = 2
RECORDS = "records.jsonl"
FOLDERS_SHOWN = 3
HEADER_START, SUMMARY_START = b'{"header"', b'{"end"'  # their first fields, in every format

Table: TypeAlias = Mapping[str, object]  # settings as TOML has them: tables of values and tables
End = Literal["target", "max_rounds", "max_time", "diverged"]
D = TypeVar("D")


class RunNotice(UserWarning):
    """Something that whoever goes on with a run, or reads it, should know."""


class Line(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A line of the records; its fields can be read by name too, as in ``summary["time"]``."""

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401
        """Return a field; one that is not written counts as missing."""
        value = getattr(self, name, msgspec.UNSET) if name in self.__struct_fields__ else msgspec.UNSET
        if value is msgspec.UNSET:
            raise KeyError(name)
        return value

    def __contains__(self, name: object) -> bool:
        """Return whether a field is written."""
        return name in self.keys()

    def __iter__(self) -> Iterator[str]:
        """Go through the names of the fields, as a mapping does."""
        return iter(self.keys())

    def __len__(self) -> int:
        """Return how many fields are written."""
        return len(self.keys())

    def items(self) -> list[tuple[str, Any]]:
        """Return the fields with their values."""
        return [(name, getattr(self, name)) for name in self.keys()]

    def values(self) -> list[Any]:
        """Return the values of the fields."""
        return [value for _, value in self.items()]

    def keys(self) -> list[str]:
        """Return the names of the fields, so that ``dict(line)`` holds them all."""
        return [name for name in self.__struct_fields__ if getattr(self, name) is not msgspec.UNSET]

    def get(self, name: str, default: object = None) -> Any:  # noqa: ANN401
        """Return a field, or the default where it is missing."""
        return self[name] if name in self else default  # noqa: SIM401


Mapping.register(Line)  # which is how pandas makes a row of it


class Header(Line, frozen=True, kw_only=True, omit_defaults=True):
    """What a reader must know of a run to make it again."""

    format: int = 1
    experiment: str
    preset: str | None
    policy: str
    kind: str = ""  # the policy that its name stands for, where somebody named it otherwise
    seed: int
    config: dict[str, Any]  # the whole configuration, preset and options in it
    files: dict[str, Any] = {}  # in its shape: digests of the files that it names
    data: str = ""
    data_checksum: str
    samples: list[int]  # of each client
    versions: dict[str, str | None] = {}
    commit: str | None = None
    clock: Literal["simulated", "wall"] = "simulated"  # what measured its seconds


class RoundRecord(Line, frozen=True, kw_only=True):
    """What one round was; lists have an entry for each member, None where it is not known of one that failed."""

    round: int  # r, since training (last) started from w₀
    phase: str  # "train", or the name of a pilot
    time: float  # seconds since the run started, at the end of the round
    round_time: float
    loss: float | None  # F(w) after the round, where it was evaluated
    accuracy: float | None
    members: list[int]
    counts: list[int]  # how often each was drawn
    weights: list[float]
    step_size: list[float]  # that each trained with
    local_steps: list[int]
    compute_time: list[float | None]  # τ, measured
    upload_time: list[float | None]  # t, brought to one unit of bandwidth
    largest_gradient_norm: list[float | None]
    mean_gradient_norm: list[float | None]
    update_norm: list[float | None]
    mean_loss: list[float | None]
    failed: list[int]  # members of whom no update came
    aggregate_norm: float
    upload_bits: list[int] | msgspec.UnsetType = msgspec.UNSET  # of a number in each upload, where not all have 32
    quantisation_noise: list[float | None] | msgspec.UnsetType = msgspec.UNSET  # ω of each upload, likewise
    note: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET  # of the policy, and of an engine

    @property
    def notes(self) -> dict[str, Any]:
        """The note, {} where there is none."""
        return {} if self.note is msgspec.UNSET else self.note

    @property
    def trained(self) -> bool:
        """Whether this is a round of training, and none of a pilot."""
        return self.phase == "train"


class Summary(Line, frozen=True, kw_only=True):
    """What a run came to; pilots are counted apart."""

    end: End
    rounds: int
    time: float
    pilot_rounds: int
    pilot_time: float
    loss: float | None
    accuracy: float | None
    time_to_loss: float | None  # seconds of training to each target
    time_to_accuracy: float | None
    error: str | msgspec.UnsetType = msgspec.UNSET  # why it diverged
    slow_loss: float | msgspec.UnsetType | None = msgspec.UNSET  # of the clients that upload slowest, where asked for


class HeaderLine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The first line."""

    header: Header


class _AnyHeader(msgspec.Struct, frozen=True):
    """Of any format, later ones too."""

    format: int = 1


class _AnyHeaderLine(msgspec.Struct, frozen=True):
    header: _AnyHeader


class Records(msgspec.Struct, frozen=True):
    """A whole records file, as far as it was written."""

    header: Header | None  # None: not even that
    rounds: list[RoundRecord]
    summary: Summary | None  # None: the run has not ended


_ENCODER = msgspec.json.Encoder(enc_hook=lambda value: _plain(value))
_ROUND, _SUMMARY = msgspec.json.Decoder(RoundRecord), msgspec.json.Decoder(Summary)
_HEADER, _ANY_HEADER = msgspec.json.Decoder(HeaderLine), msgspec.json.Decoder(_AnyHeaderLine)


def encode(line: Line | HeaderLine) -> bytes:
    """Return a line as it is written."""
    return (_with_infinity(line) if isinstance(line, HeaderLine) else _ENCODER.encode(line)) + b"\n"


def plain(header: Header) -> Header:
    """Return a header as its reader gets it: numbers of NumPy as Python's own, tuples as lists."""
    return msgspec.convert(json.loads(_with_infinity(header)), Header)


def read_records(path: Path | str) -> Records:
    """Return what a records file holds; a last line that a killed run left half-written is passed over."""
    lines = list(whole_lines(path))
    header = _header_line(lines[0], path, "line 1").header if lines else None
    ended = len(lines) > 1 and lines[-1].startswith(SUMMARY_START)
    rounds = lines[1:-1] if ended else lines[1:]
    decoded = [_decoded(_ROUND, line, path, f"line {number}") for number, line in enumerate(rounds, 2)]
    return Records(header, decoded, _decoded(_SUMMARY, lines[-1], path, f"line {len(lines)}") if ended else None)


def whole_lines(path: Path | str) -> Iterator[bytes]:
    """Yield the lines of a file that have an end."""
    with open(path, "rb") as stream:
        for line in stream:
            if line.endswith(b"\n"):
                yield line


def decode_line(line: bytes, path: Path | str, place: str) -> HeaderLine | RoundRecord | Summary:
    """Return a line of a records file, whichever it is; ``place`` says where it stands."""
    if line.startswith(SUMMARY_START):
        return _decoded(_SUMMARY, line, path, place)
    if line.startswith(HEADER_START):
        return _header_line(line, path, place)
    return _decoded(_ROUND, line, path, place)


def read_header(path: Path) -> Header | None:
    """Return the header of a records file, None where there is none, or half of one."""
    first = next(whole_lines(path), None) if path.exists() else None
    return None if first is None else _header_line(first, path, "line 1").header


def find_runs(folders: list[Path]) -> list[Path]:
    """Return the records files in some folders and below, in order of their names.

    Those of runs that were killed before they had a header are passed over, with a ``RunNotice``.
    """
    found: list[Path] = []
    for folder in folders:
        if not folder.exists():
            raise InputError(name=folder, rule="be a folder of runs", got="no such folder")
        there = [folder] if folder.is_file() else sorted(folder.rglob(RECORDS))
        empty = [path for path in there if path != folder and next(whole_lines(path), None) is None]
        if empty:
            more = f" and {len(empty) - FOLDERS_SHOWN} more" if len(empty) > FOLDERS_SHOWN else ""
            shown = ", ".join(map(str, empty[:FOLDERS_SHOWN])) + more
            warnings.warn(f"{shown} without a line passed over: killed at their start", RunNotice, stacklevel=2)
        found += [path for path in there if path not in empty]
    if not found:
        raise InputError(name=", ".join(map(str, folders)), rule=f"hold records of runs ({RECORDS})", got="none")
    return found


def _header_line(line: bytes, path: Path | str, place: str) -> HeaderLine:
    """Return the first line; one of a later format, which may have other fields, is refused as such."""
    found = _decoded(_ANY_HEADER, line, path, place).header.format
    if found > FORMAT:
        raise InputError(path, f"be of format {FORMAT} or before", found, "read it with the code that wrote it")
    return _decoded(_HEADER, line, path, place)


def _decoded(decoder: msgspec.json.Decoder[D], line: bytes, path: Path | str, place: str) -> D:
    try:
        return _decode(decoder, line)
    except (ValueError, RecursionError) as error:
        raise InputError(path, "hold the records of a run", f"something else in {place}: {error}") from None


def _decode(decoder: msgspec.json.Decoder[D], line: bytes) -> D:
    try:
        return decoder.decode(line)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:  # of Infinity or NaN, perhaps, which are no JSON
        try:
            values = json.loads(line)
        except ValueError:
            values = None
        if values is None:
            raise
        return msgspec.convert(values, decoder.type)


def _with_infinity(line: Header | HeaderLine) -> bytes:
    """Return JSON in which infinite numbers are Infinity, as Python has them: null would be another setting."""
    values = msgspec.to_builtins(line, enc_hook=_plain)
    return json.dumps(values, separators=(",", ":"), ensure_ascii=False).encode()


def _plain(value: object) -> object:
    """Return numbers and arrays of NumPy as Python's own."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    raise TypeError(f"records hold JSON values, got {type(value).__name__}")


def round_record(time: float, report: RoundReport, step_size: Vector) -> RoundRecord:
    """Return plain values alone, nothing that differs between equal runs; members trained with ``step_size``."""
    plan = report.plan
    bits, noise = report.upload_bits, report.noise_of_uploads
    return RoundRecord(
        round=report.round_index,
        phase=plan.phase,
        time=time,
        round_time=report.round_time,
        loss=report.loss,
        accuracy=report.accuracy,
        members=plan.members.tolist(),
        counts=[1] * len(plan.members) if plan.counts is None else plan.counts.tolist(),
        weights=plan.weights.tolist(),
        step_size=step_size.tolist(),
        local_steps=report.local_steps.tolist(),
        compute_time=_known(report.compute_time),
        upload_time=_known(report.upload_time),
        largest_gradient_norm=_known(report.largest_gradient_norm),
        mean_gradient_norm=_known(report.mean_gradient_norm),
        update_norm=_known(report.update_norm),
        mean_loss=_known(report.mean_loss),
        failed=plan.members[report.failed].tolist(),
        aggregate_norm=report.aggregate_norm,
        upload_bits=msgspec.UNSET if bits is None else bits.tolist(),
        quantisation_noise=msgspec.UNSET if noise is None else _known(noise),
        note=msgspec.UNSET if plan.note is None else dict(plan.note),
    )


def pilot_record(phase: str, time: float, seconds: float, note: dict[str, Any]) -> RoundRecord:
    """Return the record of a pilot in which nobody sent an update."""
    nobody: list[Any] = []
    return RoundRecord(
        round=0, phase=phase, time=time, round_time=seconds, loss=None, accuracy=None, members=nobody, counts=nobody,
        weights=nobody, step_size=nobody, local_steps=nobody, compute_time=nobody, upload_time=nobody,
        largest_gradient_norm=nobody, mean_gradient_norm=nobody, update_norm=nobody, mean_loss=nobody, failed=nobody,
        aggregate_norm=0.0, note=note,
    )  # fmt: skip


def _known(numbers: Vector) -> list[float | None]:
    """Return numbers as records hold them, None for NaN."""
    plain = numbers.tolist()
    return [None if math.isnan(x) else x for x in plain] if np.isnan(numbers).any() else plain
