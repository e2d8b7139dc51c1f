"""Models as Flower sends them, named arrays, and as the loop knows them, one flat vector."""

from collections import OrderedDict
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from flwr.app import Array, ArrayRecord

from fedtempo.checks import InputError, Vector
from fedtempo.learning.trainer import Parameters

Buffers = dict[str, npt.NDArray[np.float64]]
VARIANCE_ENDING = "running_var"
BUFFER_ENDINGS = ("running_mean", VARIANCE_ENDING)


def is_trained(name: str, dtype: npt.DTypeLike) -> bool:
    """Return whether an array of this name and type holds parameters, rather than what a layer keeps count of."""
    return np.issubdtype(np.dtype(dtype), np.floating) and not name.endswith(BUFFER_ENDINGS)


class Layout:
    """The names, shapes and types of a model's arrays.

    Statistics that batch normalisation keeps are no parameters: where weights of updates add up to more than 1, sums
    of them could become negative variances. They are averaged instead. Arrays of whole numbers, its counters, stay as
    they were at the start.
    """

    def __init__(self, record: ArrayRecord) -> None:
        """Take the layout of a model."""
        self.first = {name: array.numpy() for name, array in record.items()}
        self.trained = [name for name, array in self.first.items() if is_trained(name, array.dtype)]
        real = [name for name, array in self.first.items() if np.issubdtype(array.dtype, np.floating)]
        self._averaged = [name for name in real if name not in self.trained]
        self.start_again()
        if not self.trained:
            raise InputError(name="initial_arrays", rule="hold at least one array of real numbers", got="none")
        self.size = sum(self.first[name].size for name in self.trained)

    def flatten(self, record: ArrayRecord) -> Parameters:
        """Return a model as one vector; refuse one of another layout."""
        if set(record) != set(self.first):
            raise InputError(name="a model", rule=f"have the arrays {list(self.first)}", got=f"{list(record)}")
        return np.concatenate([self._real(record, name).ravel().astype(np.float32) for name in self.trained])

    def _real(self, record: ArrayRecord, name: str) -> npt.NDArray[np.floating]:
        array, first = record[name].numpy(), self.first[name]
        if (
            not isinstance(array, np.ndarray)
            or array.shape != first.shape
            or not np.issubdtype(array.dtype, np.floating)
        ):
            got = f"{array.dtype} of {array.shape}" if isinstance(array, np.ndarray) else type(array).__name__
            raise InputError(name=f"array {name!r}", rule=f"be real numbers of shape {first.shape}", got=f"{got}")
        return array

    def start_again(self) -> None:
        """Take the buffers of the start."""
        self.buffers: Buffers = {name: self.first[name].astype(np.float64) for name in self._averaged}

    def buffers_of(self, record: ArrayRecord) -> Buffers:
        """Return the buffers of a model; refuse those of another layout."""
        return {name: self._real(record, name).astype(np.float64) for name in self._averaged}

    def blend(self, weights: Vector, found: Sequence[Buffers]) -> None:
        """Move the buffers towards those of updates, by their weights, and never beyond."""
        shares = np.maximum(weights, 0.0) / max(np.maximum(weights, 0.0).sum(), 1.0)
        for name, now in self.buffers.items():
            self.buffers[name] = now + sum(
                share * (one[name] - now) for share, one in zip(shares.tolist(), found, strict=True)
            )

    def pack(self, model: Parameters) -> ArrayRecord:
        """Return the named arrays of a model."""
        arrays, start = OrderedDict(), 0
        for name, first in self.first.items():
            values = first
            if name in self.trained:
                values = model[start : start + first.size].reshape(first.shape).astype(first.dtype)
                start += first.size
            elif name in self.buffers:
                values = self.buffers[name].astype(first.dtype)
            arrays[name] = Array(values)
        return ArrayRecord(arrays)
