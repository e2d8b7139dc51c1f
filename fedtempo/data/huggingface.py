"""Hugging Face data sets, split by the partitioners of flwr-datasets."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from fedtempo.checks import InputError, MissingDependencyError, near_miss
from fedtempo.data.array_types import AnyArray, LabelsAre, plain_array, side_by_side
from fedtempo.data.arrays import HELD_OUT_SHARE
from fedtempo.data.federation import FederatedData


class Samples(Protocol):
    """What is used of a ``datasets.Dataset``."""

    column_names: Sequence[str]
    features: Mapping[str, object]

    def with_format(self, kind: str) -> Mapping[slice, Mapping[str, object]]:
        """Return the same, whose columns are arrays of a kind."""


class Partitioner(Protocol):
    """What is used of a partitioner of flwr-datasets."""

    dataset: object
    num_partitions: int

    def is_dataset_assigned(self) -> bool:
        """Return whether it has a data set already."""

    def load_partition(self, partition: int) -> Samples:
        """Return one of its parts."""


@dataclass(frozen=True, slots=True)
class HuggingFaceColumns:
    """Which columns hold what."""

    label: str
    inputs: tuple[str, ...]

    def read(self, part: "Samples") -> tuple[AnyArray, AnyArray]:
        """Return the inputs and labels of some samples."""
        known = list(part.column_names)
        for name in (self.label, *self.inputs):
            if name not in known:
                raise InputError("dataset", f"have a column {name!r}", ", ".join(known), near_miss(name, known, ""))
        found = {name: _array(part, name) for name in self.inputs}
        inputs = side_by_side(found) if len(found) > 1 else found[self.inputs[0]]
        return inputs, _array(part, self.label)


def read_huggingface(
    dataset: object,
    partitioner: "Partitioner",
    columns: HuggingFaceColumns,
    *,
    test: object,
    seed: int,
    name: str,
    labels_are: LabelsAre | None = None,
) -> FederatedData:
    """Return the data of a federation whose clients are a partitioner's partitions, in their order."""
    train, held_out = _parts(dataset)
    for wanted in ("load_partition", "num_partitions"):
        if not hasattr(type(partitioner), wanted):
            remedy = "flwr_datasets.partitioner has such"
            raise InputError("partitioner", "be a partitioner of flwr-datasets", type(partitioner).__name__, remedy)
    if partitioner.is_dataset_assigned():  # it may be another, and is kept
        raise InputError("partitioner", "have no data set yet", "one that was used", "make a new one")
    partitioner.dataset = train
    try:
        parts = [columns.read(partitioner.load_partition(client)) for client in range(partitioner.num_partitions)]
    except InputError:
        raise
    except (ValueError, LookupError, TypeError) as error:  # what partitioners raise where their settings do not fit
        raise InputError("partitioner", "split the data set", f"{' '.join(str(error).split()):.160}") from None
    sizes = [len(labels) for _, labels in parts]
    if 0 in sizes:
        remedy = "take fewer partitions, or a larger min_partition_size"
        raise InputError("each client", "hold at least one sample", f"none for client {sizes.index(0)}", remedy)
    if test is None:
        test = HELD_OUT_SHARE if held_out is None else held_out
    return FederatedData.from_arrays(
        np.concatenate([inputs for inputs, _ in parts]),
        np.concatenate([labels for _, labels in parts]),
        split=np.repeat(np.arange(len(sizes)), sizes),
        test=columns.read(test) if hasattr(test, "column_names") else test,  # type: ignore[arg-type]
        labels_are=labels_are,
        seed=seed,
        name=name or _name(dataset, train),
    )


def _parts(dataset: object) -> tuple[Any, Any]:
    """Return the samples for training and, where a set has them apart, those for testing."""
    if isinstance(dataset, str | Path):
        dataset = _from_disk(Path(dataset))
    if isinstance(dataset, dict):  # a DatasetDict is one
        if "train" not in dataset:
            raise InputError("dataset", "have a part 'train'", f"{', '.join(dataset)}")
        return dataset["train"], dataset.get("test")
    if not hasattr(dataset, "column_names") or not hasattr(dataset, "with_format"):
        raise InputError("dataset", "be a datasets.Dataset or a folder of one", type(dataset).__name__)
    return dataset, None


def _from_disk(path: Path) -> object:
    try:
        from datasets import load_from_disk
    except ModuleNotFoundError:
        raise MissingDependencyError("flwr-datasets", "a Hugging Face data set") from None
    try:
        return load_from_disk(str(path))
    except (FileNotFoundError, NotADirectoryError):
        got = "another folder" if path.is_dir() else "no such folder"
        raise InputError(path, "be a folder that save_to_disk wrote", got) from None


def _array(part: "Samples", name: str) -> AnyArray:
    """Return a column; decoded images have their channels last, so that moving them to the front is no guess."""
    array = plain_array(f"column {name!r}", part.with_format("numpy")[:][name])
    is_image = type(part.features[name]).__name__ == "Image"
    return np.moveaxis(array, -1, 1) if is_image and array.ndim == 4 else array


def _name(dataset: object, train: object) -> str:
    if isinstance(dataset, str | Path):
        return Path(dataset).name
    return getattr(getattr(train, "info", None), "dataset_name", None) or "Hugging Face data set"
