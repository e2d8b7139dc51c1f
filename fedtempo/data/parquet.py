"""Samples from Parquet files: columns of numbers, or of lists of one length."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fedtempo.checks import InputError, MissingDependencyError, near_miss
from fedtempo.data.array_files import ArrayFile
from fedtempo.data.array_types import AnyArray, side_by_side
from fedtempo.files import read_errors

if TYPE_CHECKING:
    import pyarrow


@dataclass(frozen=True, slots=True)
class Columns:
    """Which columns hold what."""

    label: tuple[str, ...]
    inputs: tuple[str, ...] | None = None  # None: all others
    client: str | None = None

    @classmethod
    def named(
        cls, label: str | Sequence[str], inputs: str | Sequence[str] | None = None, client: str | None = None
    ) -> "Columns":
        """Return the same from single names or lists of names."""
        return cls(_listed(label), None if inputs is None else _listed(inputs), client)


def read_parquet(path: Path | str, columns: Columns) -> ArrayFile:
    """Read the columns of one file, or of a folder of files that have the same ones."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ModuleNotFoundError:
        raise MissingDependencyError("pyarrow", "a Parquet file") from None
    path = Path(path)
    with read_errors(path, "a Parquet file"):
        if not path.exists():
            raise FileNotFoundError
        try:
            known = parquet.ParquetDataset(path).schema.names
            inputs = _inputs(columns, known)
            wanted = [*inputs, *columns.label, *([columns.client] if columns.client else [])]
            table = parquet.read_table(path, columns=wanted)
        except pyarrow.ArrowException as error:
            raise InputError("it", "be a Parquet file", f"{str(error).splitlines()[0]:.80}") from None
        if table.num_rows == 0:
            raise InputError("it", "have a row for each sample", "none")
        arrays = {name: _array(name, table.column(name)) for name in wanted}
        labels = [arrays[name] for name in columns.label]
        return ArrayFile(
            path,
            _features({name: arrays[name] for name in inputs}),
            labels[0] if len(labels) == 1 else side_by_side({name: arrays[name] for name in columns.label}),
            owner=arrays[columns.client] if columns.client else None,
        )


def _inputs(columns: Columns, known: Sequence[str]) -> tuple[str, ...]:
    """Return the columns of inputs, after a check that the file has all that are named."""
    others = (*columns.label, *([columns.client] if columns.client else []))
    for name in (*others, *(columns.inputs or ())):
        if name not in known:
            raise InputError("its columns", f"include {name!r}", f"{', '.join(known):.80}", near_miss(name, known, ""))
    found = columns.inputs or tuple(name for name in known if name not in others)
    if not found:
        raise InputError("its columns", "include inputs beside label and client", "none")
    return found


def _features(arrays: dict[str, AnyArray]) -> AnyArray:
    """Return one column of lists as it is, and columns of numbers side by side, as real numbers as they are."""
    first = next(iter(arrays.values()))
    return first if len(arrays) == 1 and first.ndim > 1 else side_by_side(arrays)


def _array(name: str, column: "pyarrow.ChunkedArray") -> AnyArray:
    """Return a column as an array: lists of one length, also of such lists, become its further axes."""
    import pyarrow

    if column.null_count:
        raise InputError(f"column {name!r}", "have a value in each row", f"{column.null_count} rows without one")
    values = column.combine_chunks()
    if isinstance(values, pyarrow.ChunkedArray):
        values = pyarrow.concat_arrays(values.chunks)
    if isinstance(values, pyarrow.FixedShapeTensorArray):
        return np.asarray(values.to_numpy_ndarray())
    if pyarrow.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    shape = [len(values)]
    while pyarrow.types.is_nested(values.type) and hasattr(values, "flatten") and hasattr(values.type, "value_type"):
        inside = values.flatten()
        length, rest = divmod(len(inside), max(1, len(values)))
        lengths = values.value_lengths().to_numpy(zero_copy_only=False)
        if rest or (lengths != length).any():
            got = f"{lengths.min()} to {lengths.max()}"
            raise InputError(f"column {name!r}", "have lists of one length", got)
        if inside.null_count:
            raise InputError(f"column {name!r}", "have no empty places in its lists", f"{inside.null_count}")
        shape.append(length)
        values = inside
    kind = values.type
    if not (pyarrow.types.is_primitive(kind) or pyarrow.types.is_string(kind) or pyarrow.types.is_large_string(kind)):
        raise InputError(f"column {name!r}", "hold numbers, text or lists of numbers", f"{kind}")
    return np.asarray(values.to_numpy(zero_copy_only=False)).reshape(shape)


def _listed(names: str | Sequence[str]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)
