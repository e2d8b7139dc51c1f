"""The data of a federation: the samples of all clients in one array, and held-out test samples."""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from fedtempo.checks import InputError, Integers, Vector, check_count
from fedtempo.data.partition import CLASSES, CONCENTRATION

if TYPE_CHECKING:
    from fedtempo.data.array_types import LabelsAre
    from fedtempo.data.arrays import GivenSplit
    from fedtempo.data.huggingface import Partitioner
    from fedtempo.data.split_summary import SplitSummary

Inputs: TypeAlias = npt.NDArray[np.float32]
Samples: TypeAlias = npt.NDArray[Any]  # float32, or int64

_checksums: "WeakKeyDictionary[FederatedData, str]" = WeakKeyDictionary()  # arrays are read-only here


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class FederatedData:
    """Training data of all clients, one client after another, and held-out test data.

    Client i holds the rows ``offsets[i]`` to ``offsets[i + 1]``. Arrays are kept as read-only views, and copied only
    where they have another type.
    """

    inputs: Samples  # (n, d), rows sorted by client: float32, or int64 where they are tokens
    labels: Samples  # (n,), int64 from 0 to num_classes - 1; where these are 0, (n, ...) of float32 or int64
    offsets: Integers  # (N + 1,)
    test_inputs: Samples  # (m, d)
    test_labels: Samples  # (m,), or (m, ...)
    num_classes: int  # 0: labels are no classes, and the problem has a loss of its own
    input_shape: tuple[int, ...]  # of one sample, such as (60,) or (1, 28, 28)
    name: str  # said next to every figure
    complete: bool = True  # false: only a part of the set that was asked for, or another in its place
    tokens: bool = False  # inputs are whole numbers, such as of characters, and stay so
    class_names: tuple[str, ...] = ()  # what the classes are called; empty: by their numbers

    def __post_init__(self) -> None:
        """Check every rule at the door; training relies on them."""
        if self.num_classes != 0 or isinstance(self.num_classes, bool) or _could_be_classes(self.labels):
            self._keep("num_classes", check_count("num_classes", self.num_classes))
        self._keep("input_shape", tuple(check_count("input_shape", length) for length in self.input_shape))
        for field in ("inputs", "test_inputs"):
            self._keep(field, _checked_inputs(field, getattr(self, field), self.input_shape, tokens=self.tokens))
        for field, inputs in (("labels", self.inputs), ("test_labels", self.test_inputs)):
            self._keep(field, _checked_labels(field, getattr(self, field), len(inputs), self.num_classes))
        self._keep("offsets", _checked_offsets(self.offsets, len(self.inputs)))
        if self.num_classes:
            self._check_classes()
        elif self.labels.shape[1:] != self.test_labels.shape[1:]:
            raise InputError(
                name="test_labels",
                rule=f"have the shape {self.labels.shape[1:]} for each sample, as labels have",
                got=f"{self.test_labels.shape[1:]}",
            )

    def _check_classes(self) -> None:
        if self.tokens:
            return  # where the next token is the label, classes are a vocabulary, and rare tokens may not come up
        held = np.bincount(self.labels, minlength=self.num_classes)
        if held.min() == 0:
            raise InputError(
                name=f"each of the {self.num_classes} classes",
                rule="be held by a client",
                got=f"no sample of class {held.argmin()}",
                remedy="take more samples, more clients or another seed",
            )

    @classmethod
    def from_arrays(
        cls,
        inputs: object,
        labels: object,
        *,
        clients: int | None = None,
        split: "str | GivenSplit" = "dirichlet",
        concentration: float = CONCENTRATION,
        classes: tuple[int, int] = CLASSES,
        labels_are: "LabelsAre | None" = None,
        seed: int = 0,
        test: object = 0.1,
        name: str = "arrays",
    ) -> "FederatedData":
        """Split samples among clients.

        - ``inputs``: N×H×W or N×C×H×W images, N×d vectors or N×L tokens, as anything that NumPy takes, torch's tensors
          too. Bytes (uint8) are scaled to 0..1, other whole numbers are tokens and stay so. Channels come first.
        - ``labels``: classes, by whole numbers or text; they are numbered from 0 in sorted order, and ``class_names``
          keeps what they were. Or real numbers, or several of a sample, where the problem has a loss of its own.
        - ``labels_are``: "values" keeps whole numbers as the real numbers that they are, as regression wants them;
          "classes" refuses labels that are none. Left out, their type decides.
        - ``clients``: how many. Where ``split`` gives the samples of each, it may be left out.
        - ``split``: "dirichlet", "classes", "iid" or "quantity"; or a list or dict with the rows of each client, by
          number or as masks; or an array with the owner of each sample.
        - ``concentration``: of dirichlet, for each class, and of quantity, for the sizes. ``classes``: of one client,
          at least and at most, in the split "classes".
        - ``seed``: of the split and of the test samples.
        - ``test``: which share is held out for testing, of each class alike (of each client, where the split is given);
          or a pair (inputs, labels).
        - ``name``: what is said next to every figure.
        """
        from fedtempo.data.arrays import SplitSettings, federated

        settings = SplitSettings(clients, split, concentration, classes, seed)
        return federated(inputs, labels, settings, test=test, name=name, labels_are=labels_are)

    @classmethod
    def from_npz(
        cls,
        path: Path | str,
        *,
        split: "str | GivenSplit | None" = None,
        test: object = None,
        **settings: object,
    ) -> "FederatedData":
        """Read arrays from an .npz file and split them; nothing in it is unpickled.

        Its members are ``inputs`` and ``labels``. If it has ``test_inputs`` and ``test_labels``, they are the test
        data; if it has ``owner``, the client of each sample, that is the split where ``split`` is left out.
        ``settings`` are those of ``from_arrays``.
        """
        from fedtempo.data.array_files import read_npz

        return read_npz(path).federated(split, test, settings)

    @classmethod
    def from_parquet(
        cls,
        path: Path | str,
        *,
        label: str | Sequence[str],
        inputs: str | Sequence[str] | None = None,
        client: str | None = None,
        split: "str | GivenSplit | None" = None,
        test: object = None,
        **settings: object,
    ) -> "FederatedData":
        """Read columns of a Parquet file, or of a folder of them, and split them.

        - ``label``: the column of classes or numbers, or several columns of numbers.
        - ``inputs``: columns of numbers, or one column of lists of one length (lists of lists for images); all others
          where it is left out.
        - ``client``: the column that says whose a sample is, which is the split where ``split`` is left out.
        - ``settings``: those of ``from_arrays``.
        """
        from fedtempo.data.parquet import Columns, read_parquet

        return read_parquet(path, Columns.named(label, inputs, client)).federated(split, test, settings)

    @classmethod
    def from_huggingface(
        cls,
        dataset: object,
        partitioner: "Partitioner",
        *,
        label: str,
        inputs: str | Sequence[str],
        labels_are: "LabelsAre | None" = None,
        test: object = None,
        seed: int = 0,
        name: str = "",
    ) -> "FederatedData":
        """Take a Hugging Face data set, split by a partitioner of flwr-datasets.

        - ``dataset``: a ``datasets.Dataset``, a ``DatasetDict`` with a part ``train``, or a folder that
          ``save_to_disk`` wrote.
        - ``partitioner``: such as ``DirichletPartitioner(num_partitions=100, partition_by="label", alpha=0.3)``.
        - ``label``, ``inputs``: names of columns; images are decoded, and their channels put first.
        - ``labels_are``: "classes" or "values", as in ``from_arrays``.
        - ``test``: another ``Dataset``, or a share of each client's samples; left out, the part ``test``, or 0.1.
        - ``seed``: of the test samples. ``name``: what is said next to every figure.
        """
        from fedtempo.data.huggingface import HuggingFaceColumns, read_huggingface

        columns = HuggingFaceColumns(label, (inputs,) if isinstance(inputs, str) else tuple(inputs))
        return read_huggingface(
            dataset, partitioner, columns, test=test, seed=seed, name=name, labels_are=labels_are
        )  # fmt: skip

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

    def client(self, client: int) -> tuple[Samples, Samples]:
        """Return the inputs and labels of one client, as views."""
        if not 0 <= client < self.num_clients:
            raise IndexError(f"client must lie between 0 and {self.num_clients - 1}, got {client}")
        rows = slice(self.offsets[client], self.offsets[client + 1])
        return self.inputs[rows], self.labels[rows]

    def describe(self) -> "SplitSummary":
        """Return what the split looks like: sizes, classes of each client, how unlike clients are."""
        from fedtempo.data.split_summary import summarise

        return summarise(self)

    def checksum(self) -> str:
        """Return the SHA-256 of everything that training and testing see, as hexadecimal digits; computed once."""
        if self in _checksums:
            return _checksums[self]
        digest = hashlib.sha256(repr((self.num_classes, self.input_shape)).encode())
        for array in (self.inputs, self.labels, self.offsets, self.test_inputs, self.test_labels):
            digest.update(repr((array.dtype.str, array.shape)).encode())
            digest.update(array.data)
        return _checksums.setdefault(self, digest.hexdigest())

    def _keep(self, field: str, value: object) -> None:
        object.__setattr__(self, field, value)


def check_finite(field: str, array: Samples) -> None:
    """Refuse samples with a value that is not finite."""
    # NaN is an extreme of any array that holds it: two passes decide, without a temporary array.
    if array.size and not (np.isfinite(array.min()) and np.isfinite(array.max())):
        place = tuple(axis[0] for axis in np.nonzero(~np.isfinite(array)))
        raise InputError(name=field, rule="be finite", got=f"{array[place]} in row {place[0]}")


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
    check_finite(field, array)
    array.flags.writeable = False
    return array


def _checked_labels(field: str, values: npt.ArrayLike, size: int, num_classes: int) -> Samples:
    if not num_classes:
        return _checked_targets(field, values, size)
    array = _whole_numbers(field, values)
    if array.shape != (size,):
        raise InputError(name=field, rule=f"have one entry for each of the {size} samples", got=f"shape {array.shape}")
    outside = (array < 0) | (array >= num_classes)
    if outside.any():
        row = int(outside.argmax())
        raise InputError(name=field, rule=f"lie between 0 and {num_classes - 1}", got=f"{array[row]} in row {row}")
    return array


def _could_be_classes(labels: npt.ArrayLike) -> bool:
    return np.ndim(labels) == 1 and np.asarray(labels).dtype.kind in "iu"


def _checked_targets(field: str, values: npt.ArrayLike, size: int) -> Samples:
    """Return labels that are no classes: whatever a loss of one's own takes, as float32 or int64."""
    array: Samples = np.asarray(values)
    if array.dtype.kind not in "biuf":
        raise InputError(name=field, rule="hold numbers", got=f"{array.dtype}")
    if array.shape[:1] != (size,):
        raise InputError(name=field, rule=f"have one entry for each of the {size} samples", got=f"shape {array.shape}")
    array = np.ascontiguousarray(array, dtype=np.int64 if array.dtype.kind in "iu" else np.float32).view()
    check_finite(field, array)
    array.flags.writeable = False
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
