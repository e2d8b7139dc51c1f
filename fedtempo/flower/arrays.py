"""Models as Flower sends them, named arrays, and as the loop knows them, one flat vector."""

from collections import OrderedDict

import numpy as np
from flwr.app import Array, ArrayRecord

from fedtempo.checks import InputError
from fedtempo.learning.trainer import Parameters


class Layout:
    """The names, shapes and types of a model's arrays.

    Arrays of whole numbers (counters of batch normalisation) are not trained: they stay as they were at the start.
    """

    def __init__(self, record: ArrayRecord) -> None:
        """Take the layout of a model."""
        self.first = {name: array.numpy() for name, array in record.items()}
        self.trained = [name for name, array in self.first.items() if np.issubdtype(array.dtype, np.floating)]
        if not self.trained:
            raise InputError("initial_arrays must hold at least one array of real numbers, got none")
        self.size = sum(self.first[name].size for name in self.trained)

    def flatten(self, record: ArrayRecord) -> Parameters:
        """Return a model as one vector; refuse one of another layout."""
        if list(record) != list(self.first):
            raise InputError(f"a model must have the arrays {list(self.first)}, got {list(record)}")
        parts = []
        for name in self.trained:
            array, first = record[name].numpy(), self.first[name]
            if array.shape != first.shape or not np.issubdtype(array.dtype, np.floating):
                raise InputError(
                    f"array {name!r} must be real numbers of shape {first.shape}, got {array.dtype} of {array.shape}"
                )
            parts.append(array.ravel().astype(np.float32))
        return np.concatenate(parts)

    def pack(self, model: Parameters) -> ArrayRecord:
        """Return the named arrays of a model."""
        arrays, start = OrderedDict(), 0
        for name, first in self.first.items():
            values = first
            if name in self.trained:
                values = model[start : start + first.size].reshape(first.shape).astype(first.dtype)
                start += first.size
            arrays[name] = Array(values)
        return ArrayRecord(arrays)
