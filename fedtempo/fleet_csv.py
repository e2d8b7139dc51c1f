"""Fleets as CSV files: the columns of ``Fleet``, and what planners hold instead of them."""

import csv
import difflib
import warnings
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from fedtempo.checks import InputError, Integers, Vector, check_positive, first_violation
from fedtempo.files import read_errors, whole_file
from fedtempo.fleet import Fleet

ROWS_AT_ONCE = 65_536
NUMBERS = ("data_share", "gradient_bound", "compute_time", "upload_time", "download_time", "bandwidth_cap")
INSTEAD = {"data_share": "samples", "upload_time": "uplink_mbps"}
KNOWN = ("name", *NUMBERS, *INSTEAD.values())
SEPARATORS = (",", ";", "\t")  # spreadsheets write one of these
# What `fedtempo plan -o` adds.
PLANNED = ("round_cost", "sampling_prob", "draws_per_round", "aggregation_weight", "upload_bits")


class FleetNotice(UserWarning):
    """Something assumed or passed over while a fleet was read."""


def read_fleet(path: Path | str, *, total_bandwidth: float = 1.0, model_megabytes: float | None = None) -> Fleet:
    """Read a fleet from a CSV file with a header line, UTF-8.

    Columns are named as the fields of ``Fleet``, with an optional ``name``. ``samples`` may stand for ``data_share``.
    ``uplink_mbps``, a client's rate when it has the whole link to itself, may stand for ``upload_time`` if the size of
    one upload is given. Without ``gradient_bound`` all bounds are 1. What is assumed or ignored is said in a
    ``FleetNotice`` warning.
    """
    with read_errors(path, "a fleet's CSV file"):
        with open(path, encoding="utf-8-sig", newline="") as stream:
            columns = _read_columns(stream)
        return _build(columns, total_bandwidth, model_megabytes)


def write_fleet(path: Path | str, fleet: Fleet, extra: Mapping[str, Vector | Integers] | None = None) -> None:
    """Write a fleet, and columns beside it, as CSV that ``read_fleet`` reads back to the last bit.

    The file appears whole or not at all. The total bandwidth is not in it.
    """
    with whole_file(path) as stream:
        dump_fleet(stream, fleet, extra)


def dump_fleet(stream: IO[str], fleet: Fleet, extra: Mapping[str, Vector | Integers] | None = None) -> None:
    """Write the lines of ``write_fleet``."""
    columns = {field: getattr(fleet, field) for field in NUMBERS if getattr(fleet, field) is not None}
    columns |= extra or {}
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(["name", *columns])
    for start in range(0, len(fleet), ROWS_AT_ONCE):
        part = slice(start, min(start + ROWS_AT_ONCE, len(fleet)))
        names = range(part.start, part.stop) if fleet.names is None else fleet.names[part].tolist()
        writer.writerows(zip(names, *(values[part].tolist() for values in columns.values()), strict=True))


def _read_columns(stream: IO[str]) -> dict[str, Any]:
    first = stream.readline()
    stream.seek(0)
    separator = max(SEPARATORS, key=first.count)
    rows = csv.reader(stream, strict=True, delimiter=separator)
    header = [_plain_name(cell) for cell in next(rows, [])]
    if not any(header):
        raise InputError(name="the file", rule="start with a line of column names", got="an empty file or line")
    _check_header(header)
    wanted = [column for column in header if column in KNOWN]
    chunks: dict[str, list[Any]] = {column: [] for column in wanted}
    for lines, cells in _chunks(rows, header):
        for column in wanted:
            text = cells[header.index(column)]
            chunks[column].append(
                np.array(text, np.dtypes.StringDType()) if column == "name" else _numbers(column, text, lines)
            )
    if not any(chunks.values()):
        raise InputError(name="the file", rule="have a line for each client", got="column names only")
    return {column: np.concatenate(parts) for column, parts in chunks.items()}


def _plain_name(cell: str) -> str:
    """Return a column's name as it is known: "Compute time" is compute_time."""
    return "_".join(cell.split()).lower()


def _check_header(header: list[str]) -> None:
    repeated = {column for column in header if column and header.count(column) > 1}
    if repeated:
        raise InputError(name="column names", rule="be distinct", got=f"{sorted(repeated)[0]!r} more than once")
    for column, instead in INSTEAD.items():
        if column in header and instead in header:
            raise InputError(
                name="columns",
                rule="not contradict each other",
                got=f"both {column} and {instead}",
                remedy="keep one of them",
            )
    for column in ("data_share", "compute_time", "upload_time"):
        if column not in header and INSTEAD.get(column) not in header:
            choices = [column, INSTEAD[column]] if column in INSTEAD else [column]
            raise InputError(
                name=f"a column {' or '.join(choices)}",
                rule="be there",
                got=", ".join(header),
                remedy=_nearest(choices, header),
            )
    ignored = [column for column in header if column and column not in (*KNOWN, *PLANNED)]
    for column in ignored:
        meant = difflib.get_close_matches(column, set(KNOWN) - set(header), n=1, cutoff=0.8)
        if meant:
            raise InputError(
                name="column names", rule="be known", got=repr(column), remedy=f"did you mean {meant[0]!r}?"
            )
    if ignored:
        warnings.warn(f"columns not used: {', '.join(ignored)}", FleetNotice, stacklevel=4)


def _nearest(choices: list[str], header: list[str]) -> str:
    """Ask whether a column that is not known was meant to be one of those that are missing."""
    unknown = [column for column in header if column not in KNOWN]
    for column in choices:
        if near := difflib.get_close_matches(column, unknown, n=1, cutoff=0.7):
            return f"is {near[0]!r} meant to be {column!r}?"
    return ""


def _chunks(rows: Iterator[list[str]], header: list[str]) -> Iterator[tuple[list[int], list[tuple[str, ...]]]]:
    """Yield the file in parts: the line numbers, and the cells of each column."""
    filled = ((rows.line_num, row) for row in rows if any(map(str.strip, row)))  # type: ignore[attr-defined]
    while part := list(islice(filled, ROWS_AT_ONCE)):
        lines, cells = zip(*part, strict=True)
        for line, row in part:
            if len(row) != len(header):
                raise InputError(
                    name="each line", rule=f"have {len(header)} cells as the first", got=f"{len(row)} in line {line}"
                )
        yield list(lines), list(zip(*cells, strict=True))


def _numbers(column: str, text: Iterable[str], lines: list[int]) -> Vector:
    try:
        return np.array(text, dtype=np.float64)
    except ValueError:
        for line, cell in zip(lines, text, strict=True):
            try:
                float(cell)
            except ValueError:
                shown = repr(cell) if cell.strip() else "an empty cell"
                advice = "write it without units or separators, as in 1150 or 0.048, or leave the client out"
                raise InputError(
                    name=column, rule="be a number", got=f"{shown} in line {line}", remedy=advice
                ) from None
        raise


def _build(columns: dict[str, Any], total_bandwidth: float, model_megabytes: float | None) -> Fleet:
    names = columns.pop("name", None)
    if model_megabytes is not None:
        check_positive("model_megabytes", model_megabytes)
        if "uplink_mbps" not in columns:
            message = "the model size is not used for upload times: the file has no uplink_mbps"
            warnings.warn(message, FleetNotice, stacklevel=3)
    if "samples" in columns:
        samples = columns.pop("samples")
        _check_column("samples", samples, names, "leave out clients that hold no data")
        if np.any(samples % 1):
            part = samples[np.flatnonzero(samples % 1)[0]]
            raise InputError(name="samples", rule="be whole numbers", got=f"{part:g}", remedy="write 1150, not 1.150")
        columns["data_share"] = samples / samples.sum()
    if "uplink_mbps" in columns:
        rate = columns.pop("uplink_mbps")
        if model_megabytes is None:
            raise InputError(
                name="uplink_mbps",
                rule="come with the size of one upload",
                got="none",
                remedy="give {model_megabytes} in megabytes",
            )
        _check_column("uplink_mbps", rate, names, "leave out clients without a link")
        # A client alone on the link has all of f_tot, and t_i is its time with one unit.
        columns["upload_time"] = 8 * model_megabytes / rate * total_bandwidth
    if "gradient_bound" not in columns:
        columns["gradient_bound"] = 1.0
        message = "no column gradient_bound: 1 assumed for each client, so importance is the data share alone"
        warnings.warn(message, FleetNotice, stacklevel=3)
    return Fleet(**columns, total_bandwidth=total_bandwidth, names=names)


def _check_column(column: str, values: Vector, names: npt.NDArray[Any] | None, remedy: str) -> None:
    bad = first_violation(values, allow_zero=False)
    if bad is not None:
        client = bad if names is None else str(names[bad])
        raise InputError(
            name=column, rule="be positive and finite", got=f"{values[bad]:g} for client {client!r}", remedy=remedy
        )
