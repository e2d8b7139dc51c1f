"""Arrays from files: what a file holds of samples, and .npz files."""

import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedtempo.checks import InputError, near_miss
from fedtempo.data.array_types import AnyArray, owner_numbers
from fedtempo.data.arrays import HELD_OUT_SHARE
from fedtempo.data.federation import FederatedData
from fedtempo.files import read_errors

NPZ, PARQUET = ".npz", ".parquet"
MEMBERS = ("inputs", "labels", "test_inputs", "test_labels", "owner")


@dataclass(frozen=True, eq=False, slots=True)
class ArrayFile:
    """What a file holds of samples, labels, test data and owners."""

    path: Path
    inputs: AnyArray
    labels: AnyArray
    test: tuple[AnyArray, AnyArray] | None = None
    owner: AnyArray | None = None

    def federated(self, split: object, test: object, settings: Mapping[str, Any]) -> FederatedData:
        """Return the data of a federation; the split and the test data, where they are None, are the file's own."""
        if self.test is not None and test is not None:
            raise InputError("test", "be left out where the file has test data", f"{test!r:.60}").within(self.path)
        if split is None:
            split = "dirichlet" if self.owner is None else self._owners(self.owner)
        held_out = HELD_OUT_SHARE if test is None else test
        named: dict[str, Any] = {"name": self.path.stem, "split": split, **settings}
        try:
            return FederatedData.from_arrays(self.inputs, self.labels, test=self.test or held_out, **named)
        except InputError as error:
            raise error.within(self.path) from None

    def _owners(self, names: AnyArray) -> AnyArray:
        """Return the owner of each sample, numbered from 0 in sorted order: names of clients may be any numbers."""
        with read_errors(self.path):
            return np.unique(owner_numbers("owner", names, len(self.inputs)), return_inverse=True)[1]


def read_arrays(path: Path | str, columns: Mapping[str, Any]) -> ArrayFile:
    """Read a file of either kind by its ending; ``columns`` name those of a Parquet file."""
    ending = Path(path).suffix.lower()
    if ending == NPZ:
        if columns:
            name = next(iter(columns))
            raise InputError(name, f"be left out for {NPZ} files", f"{columns[name]!r}", "columns are of Parquet files")
        return read_npz(path)
    if ending == PARQUET:
        from fedtempo.data.parquet import Columns, read_parquet

        if "label" not in columns:
            raise InputError("label", "name the column of labels in a Parquet file", "nothing")
        return read_parquet(path, Columns.named(columns["label"], columns.get("inputs"), columns.get("client")))
    raise InputError("file", f"end in {NPZ} or {PARQUET}", f"{path}")


def read_npz(path: Path | str) -> ArrayFile:
    """Read inputs and labels, and where the file has them test_inputs, test_labels and owner; nothing is unpickled."""
    path = Path(path)
    with read_errors(path, f"an {NPZ} file"):
        try:
            with open(path, "rb") as stream:
                members = _members(np.load(stream, allow_pickle=False))
        except (ValueError, EOFError, zipfile.BadZipFile) as error:
            if isinstance(error, InputError):
                raise
            raise InputError("it", f"be an {NPZ} file", "other bytes", _how_to_save()) from None
        test = [name for name in ("test_inputs", "test_labels") if name in members]
        if len(test) == 1:
            raise InputError(test[0], "come with its pair, test_inputs and test_labels", "one of them")
    pair = (members["test_inputs"], members["test_labels"]) if test else None
    return ArrayFile(path, members["inputs"], members["labels"], pair, members.get("owner"))


def _members(archive: object) -> dict[str, AnyArray]:
    if not isinstance(archive, np.lib.npyio.NpzFile):
        raise InputError("it", f"be an {NPZ} file", "one array alone", _how_to_save())
    for name in ("inputs", "labels"):
        if name not in archive:
            there = ", ".join(archive.files) or "none"
            raise InputError("its members", "be inputs and labels", f"{there}", _how_to_save())
    for name in archive.files:
        if name not in MEMBERS:
            raise InputError("its members", f"be among {', '.join(MEMBERS)}", repr(name), near_miss(name, MEMBERS, ""))
    found = {}
    for name in archive.files:
        try:
            found[name] = archive[name]
        except ValueError as error:
            pickled = "pickle" in str(error)
            got = "pickled objects, which are not loaded" if pickled else f"{error}"
            raise InputError(name, "be an array of numbers or text", got, "save it with a plain dtype") from None
    return found


def _how_to_save() -> str:
    return "np.savez(path, inputs=..., labels=...) writes one"
