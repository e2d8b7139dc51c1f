"""Models as Flower sends them, named arrays, and as the loop knows them: flat parameters and flat buffers."""

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from flwr.app import Array, ArrayRecord

from fedtempo.checks import InputError
from fedtempo.learning.trainer import NO_BUFFERS, Buffers, Parameters

VARIANCE_ENDING = "running_var"
ALL_BUFFERS = "fedtempo-buffers"  # all of a model's, in one array
BUFFER_ENDINGS = ("running_mean", VARIANCE_ENDING, ALL_BUFFERS)


def is_trained(name: str, dtype: npt.DTypeLike) -> bool:
    """Return whether an array of this name and type holds parameters, rather than what a layer keeps count of."""
    return np.issubdtype(np.dtype(dtype), np.floating) and not name.endswith(BUFFER_ENDINGS)


@dataclass(frozen=True, eq=False, slots=True)
class Layout:
    """The names, shapes and types of a model's arrays.

    Statistics that batch normalisation keeps are buffers, no parameters: they are averaged, since sums of variances by
    weights that add up to more than 1 could become negative. Arrays of whole numbers, its counters, stay as they were
    at the start.
    """

    first: Mapping[str, npt.NDArray[Any]]  # the arrays at the start
    trained: tuple[str, ...]  # the names of parameters
    averaged: tuple[str, ...]  # and of buffers

    @classmethod
    def of(cls, record: ArrayRecord) -> Self:
        """Return the layout of a model."""
        first = {name: array.numpy() for name, array in record.items()}
        real = [name for name, array in first.items() if np.issubdtype(array.dtype, np.floating)]
        trained = tuple(name for name in real if is_trained(name, first[name].dtype))
        if not trained:
            raise InputError(name="initial_arrays", rule="hold at least one array of real numbers", got="none")
        return cls(first, trained, tuple(name for name in real if name not in trained))

    @property
    def num_parameters(self) -> int:
        """The length of a model as one vector."""
        return sum(self.first[name].size for name in self.trained)

    @property
    def num_buffers(self) -> int:
        """The length of its buffers."""
        return sum(self.first[name].size for name in self.averaged)

    @property
    def initial_model(self) -> Parameters:
        """w₀."""
        return _flat(self.first, self.trained).astype(np.float32)

    @property
    def initial_buffers(self) -> Buffers:
        """The buffers at the start."""
        return _flat(self.first, self.averaged).astype(np.float64)

    def read(self, record: ArrayRecord) -> tuple[Parameters, Buffers]:
        """Return the parameters and the buffers of a model; refuse one of another layout."""
        self.check_names(record, set(self.first))
        arrays = {name: self._real(record, name) for name in self.trained}
        return _flat(arrays, self.trained).astype(np.float32), self.buffers(record)

    def buffers(self, record: ArrayRecord) -> Buffers:
        """Return the buffers of a model."""
        arrays = {name: self._real(record, name) for name in self.averaged}
        return _flat(arrays, self.averaged).astype(np.float64)

    def update(self, start: Parameters, record: ArrayRecord) -> Parameters:
        """Return how far the parameters of a model are from a start, rounded once; refuse one of another layout."""
        self.check_names(record, set(self.first))
        found = np.empty(self.num_parameters, dtype=np.float32)
        for (name, before), (_, update) in zip(
            self._parts(start, self.trained), self._parts(found, self.trained), strict=True
        ):
            update[...] = self._real(record, name).astype(np.float64) - before
        return found

    def check_names(self, record: ArrayRecord, expected: set[str]) -> None:
        """Refuse arrays of other names."""
        if set(record) != expected:
            names = [*(expected - set(self.first)), *(name for name in self.first if name in expected)]
            raise InputError(name="a model", rule=f"have the arrays {names}", got=f"{list(record)}")

    def pack_parameters(self, model: Parameters) -> ArrayRecord:
        """Return what has one number for each parameter as named arrays."""
        return ArrayRecord(OrderedDict((name, Array(part)) for name, part in self._parts(model, self.trained)))

    def pack(self, model: Parameters, buffers: Buffers) -> ArrayRecord:
        """Return the named arrays of a model."""
        parts = dict(self._parts(model, self.trained)) | dict(self._parts(buffers, self.averaged))
        arrays = OrderedDict(
            (name, Array(parts[name].astype(first.dtype) if name in parts else first))
            for name, first in self.first.items()
        )
        return ArrayRecord(arrays)

    def negative_variance(self, buffers: Buffers) -> str | None:
        """Return the name of variances of which one is negative, None where none is."""
        parts = self._parts(buffers, self.averaged)
        return next((name for name, values in parts if name.endswith(VARIANCE_ENDING) and (values < 0).any()), None)

    def _parts(self, flat: npt.NDArray[Any], names: tuple[str, ...]) -> Iterator[tuple[str, npt.NDArray[Any]]]:
        """Yield the arrays of these names, which lie one after another in a vector."""
        start = 0
        for name in names:
            first = self.first[name]
            yield name, flat[start : start + first.size].reshape(first.shape)
            start += first.size

    def _real(self, record: ArrayRecord, name: str) -> npt.NDArray[np.floating]:
        array, first = record[name].numpy(), self.first[name]
        if not isinstance(array, np.ndarray):
            got = type(array).__name__
        elif array.shape != first.shape or not np.issubdtype(array.dtype, np.floating):
            got = f"{array.dtype} of {array.shape}"
        else:
            return array
        raise InputError(name=f"array {name!r}", rule=f"be real numbers of shape {first.shape}", got=got)


def _flat(arrays: Mapping[str, npt.NDArray[Any]], names: tuple[str, ...]) -> npt.NDArray[Any]:
    return np.concatenate([arrays[name].ravel() for name in names]) if names else NO_BUFFERS
