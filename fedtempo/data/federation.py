"""The data of a federation: the samples of all clients in one array, and held-out test samples."""

import hashlib
import math
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from fedtempo.checks import InputError, Integers, Vector, check_count

Inputs: TypeAlias = npt.NDArray[np.float32]
Samples: TypeAlias = npt.NDArray[Any]  # float32, or int64


@dataclass(frozen=True, eq=False, slots=True)
class FederatedData:
    """Training data of all clients, one client after another, and held-out test data.

    Client i holds the rows ``offsets[i]`` to ``offsets[i + 1]``. Arrays are kept as read-only views, and copied only
    where they have another type.
    """

    inputs: Samples  # (n, d), rows sorted by client: float32, or int64 where they are tokens
    labels: Integers  # (n,), from 0 to num_classes - 1
    offsets: Integers  # (N + 1,)
    test_inputs: Samples  # (m, d)
    test_labels: Integers  # (m,)
    num_classes: int
    input_shape: tuple[int, ...]  # of one sample, such as (60,) or (1, 28, 28)
    name: str  # said next to every figure
    complete: bool = True  # false: only a part of the set that was asked for, or another in its place
    tokens: bool = False  # inputs are whole numbers, such as of characters, and stay so

    def __post_init__(self) -> None:
        """Check every rule at the door; training relies on them."""
        self._keep("num_classes", check_count("num_classes", self.num_classes))
        self._keep("input_shape", tuple(check_count("input_shape", length) for length in self.input_shape))
        for field in ("inputs", "test_inputs"):
            self._keep(field, _checked_inputs(field, getattr(self, field), self.input_shape, tokens=self.tokens))
        for field, inputs in (("labels", self.inputs), ("test_labels", self.test_inputs)):
            self._keep(field, _checked_labels(field, getattr(self, field), len(inputs), self.num_classes))
        self._keep("offsets", _checked_offsets(self.offsets, len(self.inputs)))
        held = np.bincount(self.labels, minlength=self.num_classes)
        if held.min() == 0:
            raise InputError(
                name=f"each of the {self.num_classes} classes",
                rule="be held by a client",
                got=f"no sample of class {held.argmin()}",
                remedy="take more samples, more clients or another seed",
            )

    def __repr__(self) -> str:
        """Name the sizes, not the arrays."""
        return f"FederatedData({self.name}: {len(self.inputs)} samples of {self.num_clients} clients)"

    @property
    def num_clients(self) -> int:
        """N."""
        return self.offsets.size - 1

    @property
    def sizes(self) -> Integers:
        """How many samples each client holds."""
        return np.diff(self.offsets)

    @property
    def data_share(self) -> Vector:
        """p_i: which share of all samples each client holds."""
        return self.sizes / len(self.inputs)

    def client(self, client: int) -> tuple[Samples, Integers]:
        """Return the inputs and labels of one client, as views."""
        if not 0 <= client < self.num_clients:
            raise IndexError(f"client must lie between 0 and {self.num_clients - 1}, got {client}")
        rows = slice(self.offsets[client], self.offsets[client + 1])
        return self.inputs[rows], self.labels[rows]

    def checksum(self) -> str:
        """Return the SHA-256 of everything that training and testing see, as hexadecimal digits."""
        digest = hashlib.sha256(repr((self.num_classes, self.input_shape)).encode())
        for array in (self.inputs, self.labels, self.offsets, self.test_inputs, self.test_labels):
            digest.update(repr((array.dtype.str, array.shape)).encode())
            digest.update(array.data)
        return digest.hexdigest()

    def _keep(self, field: str, value: object) -> None:
        object.__setattr__(self, field, value)


def _checked_inputs(field: str, values: npt.ArrayLike, input_shape: tuple[int, ...], *, tokens: bool) -> Samples:
    array: Samples
    try:
        array = _whole_numbers(field, values) if tokens else np.ascontiguousarray(values, dtype=np.float32).view()
    except InputError:
        raise
    except (TypeError, ValueError) as error:
        raise InputError(name=field, rule="hold numbers", got=f"{error}") from None
    if np.ndim(values) != 2 or len(array) == 0 or array.shape[1] != math.prod(input_shape):
        raise InputError(
            name=field,
            rule=f"have a row for each sample and, for input_shape {input_shape}, {math.prod(input_shape)} columns",
            got=f"shape {np.shape(values)}",
        )
    # NaN is an extreme of any array that holds it: two passes decide, without a temporary array.
    if not (np.isfinite(array.min()) and np.isfinite(array.max())):
        row = int(np.argmin(np.isfinite(array).all(axis=1)))
        raise InputError(name=field, rule="be finite", got=f"another value in row {row}")
    array.flags.writeable = False
    return array


def _checked_labels(field: str, values: npt.ArrayLike, size: int, num_classes: int) -> Integers:
    array = _whole_numbers(field, values)
    if array.shape != (size,):
        raise InputError(name=field, rule=f"have one entry for each of the {size} samples", got=f"shape {array.shape}")
    outside = (array < 0) | (array >= num_classes)
    if outside.any():
        row = int(outside.argmax())
        raise InputError(name=field, rule=f"lie between 0 and {num_classes - 1}", got=f"{array[row]} in row {row}")
    return array


def _checked_offsets(values: npt.ArrayLike, size: int) -> Integers:
    array = _whole_numbers("offsets", values)
    if array.ndim != 1 or array.size < 2 or array[0] != 0 or array[-1] != size:
        raise InputError(
            name="offsets",
            rule=f"run from 0 to the {size} samples with an entry more than clients",
            got=f"shape {array.shape}",
        )
    empty = np.diff(array) < 1
    if empty.any():
        raise InputError(
            name="each client",
            rule="hold at least one sample",
            got=f"none for client {empty.argmax()}",
            remedy="leave the client out or take more samples",
        )
    return array


def _whole_numbers(field: str, values: npt.ArrayLike) -> Integers:
    given = np.asarray(values)
    if given.dtype.kind not in "iu":
        raise InputError(name=field, rule="hold whole numbers", got=f"{given.dtype}")
    array = np.asarray(given, dtype=np.int64, order="C").view()
    array.flags.writeable = False
    return array
