"""Inputs and labels as training takes them, from whatever NumPy takes."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from fedtempo.checks import InputError, Integers, check_choice
from fedtempo.data.federation import Samples, check_finite

AnyArray = npt.NDArray[Any]
LabelsAre: TypeAlias = Literal["classes", "values"]

TEXT = "UST"  # kinds of dtypes
CHANNELS = (1, 3, 4)  # that images have: grey, colour, colour with transparency
LARGEST = np.iinfo(np.int64).max


@dataclass(frozen=True, eq=False, slots=True)
class TypedInputs:
    """Samples as rows of float32, or of int64 where they are tokens, and the shape of one."""

    rows: Samples  # (n, d)
    shape: tuple[int, ...]

    @property
    def tokens(self) -> bool:
        """Whether they are whole numbers."""
        return self.rows.dtype.kind == "i"


@dataclass(frozen=True, eq=False, slots=True)
class TypedLabels:
    """Classes numbered from 0, with what they were before; or labels that are no classes."""

    values: Samples  # (n,) int64; (n, ...) float32 or int64 where they are no classes
    classes: AnyArray | None = None  # sorted
    labels_are: Literal["values"] | None = None  # if somebody said so

    @property
    def names(self) -> tuple[str, ...]:
        """What the classes are called; empty where they are called by their numbers, or there are none."""
        if self.classes is None or np.array_equal(self.classes, np.arange(self.classes.size)):
            return ()
        return tuple(one.decode(errors="replace") if isinstance(one, bytes) else str(one) for one in self.classes)

    def numbered(self, field: str, values: object, size: int) -> Samples:
        """Return other labels of the same kind under the same numbers."""
        if self.classes is None:
            other = typed_labels(field, values, size, self.labels_are)
            if other.classes is not None:
                raise InputError(name=field, rule="be numbers of the same type as labels", got="classes")
            return other.values
        array = _one_each(_label_array(field, values, size))
        if _is_text(array) != _is_text(self.classes) or array.ndim != 1 or array.dtype.kind == "f":
            raise InputError(name=field, rule="be classes, as labels are", got=f"{array.dtype} of shape {array.shape}")
        places = np.minimum(np.searchsorted(self.classes, array), self.classes.size - 1)
        unknown = self.classes[places] != array
        if unknown.any():
            row = int(unknown.argmax())
            raise InputError(name=field, rule="be among labels", got=f"{array[row].item()!r} in row {row}")
        return places


def typed_inputs(field: str, values: object) -> TypedInputs:
    """Return inputs as rows: bytes scaled to 0..1, other whole numbers as tokens; N×H×W images have one channel."""
    array = plain_array(field, values)
    if array.ndim < 2 or array.size == 0:
        remedy = "inputs.reshape(-1, 1) has one number for each" if array.ndim == 1 and array.size else ""
        raise InputError(field, "have a row for each sample", f"shape {array.shape}", remedy)
    _check_channels(field, array.shape)
    if array.dtype == np.uint8:
        rows: Samples = array.astype(np.float32)
        rows /= 255
    elif array.dtype.kind in "iu":
        rows = _whole(field, array)
    elif array.dtype.kind in "bf":
        rows = _real(field, array)
    else:
        raise InputError(name=field, rule="hold numbers", got=f"{array.dtype}")
    shape = array.shape[1:]
    if len(shape) == 2 and rows.dtype.kind == "f":
        shape = (1, *shape)
    return TypedInputs(np.ascontiguousarray(rows.reshape(len(rows), -1)), shape)


def typed_labels(field: str, values: object, size: int, labels_are: LabelsAre | None = None) -> TypedLabels:
    """Return the labels of so many samples: classes, or values, which become real numbers and keep their shape.

    Where nobody says which, one whole number or text for each sample is its class; several whole numbers stay whole.
    """
    if labels_are is not None:
        check_choice("labels_are", labels_are, get_args(LabelsAre))
    array = _label_array(field, values, size)
    if labels_are == "values":
        if array.dtype.kind not in "biuf":
            raise InputError(name=field, rule="be numbers where they are values", got=f"{array.dtype}")
        return TypedLabels(_real(field, array), labels_are=labels_are)
    array = _one_each(array)
    if array.ndim == 1 and (array.dtype.kind in "biu" or _is_text(array)):
        classes, numbers = np.unique(array, return_inverse=True)
        return TypedLabels(numbers.astype(np.int64, copy=False), classes)
    if labels_are == "classes":
        rule = "be one whole number or text for each sample where they are classes"
        raise InputError(name=field, rule=rule, got=f"{array.dtype} of shape {array.shape}")
    if array.dtype.kind in "iu":
        return TypedLabels(_whole(field, array))
    if array.dtype.kind in "bf":
        return TypedLabels(_real(field, array))
    raise InputError(name=field, rule="be whole numbers, text or real numbers", got=f"{array.dtype}")


def owner_numbers(field: str, values: object, size: int) -> Integers:
    """Return which client each sample belongs to: the numbers given, or text numbered from 0 in sorted order."""
    array = _one_each(plain_array(field, values))
    if array.shape != (size,):
        raise InputError(field, f"have an owner for each of the {size} samples", f"shape {array.shape}")
    if _is_text(array):
        return np.unique(array, return_inverse=True)[1].astype(np.int64, copy=False)
    if array.dtype.kind not in "iu":
        raise InputError(name=field, rule="have whole numbers or text as owners", got=f"{array.dtype}")
    return _whole(field, array)


def plain_array(field: str, values: object) -> AnyArray:
    """Return what was given as an array, also from torch's tensors; an array of objects becomes what they are."""
    if hasattr(values, "detach"):  # a tensor that has a gradient, or lies on another device
        values = values.detach().cpu()
    try:
        array = np.asarray(values)
        return _unpacked(array) if array.dtype.kind == "O" else array
    except (TypeError, ValueError) as error:
        said = str(error).splitlines()[0][:80]
        raise InputError(name=field, rule="be an array with samples of one shape and type", got=f"{said}") from None


def side_by_side(columns: Mapping[str, AnyArray]) -> AnyArray:
    """Return columns of numbers as the columns of one array of real numbers."""
    for name, column in columns.items():
        if column.ndim != 1 or column.dtype.kind not in "biuf":
            rule = "hold a number in each row, as the columns beside it do"
            raise InputError(f"column {name!r}", rule, f"{column.dtype} of shape {column.shape}", "name other columns")
    return np.stack([column.astype(np.float32) for column in columns.values()], axis=1)


def _unpacked(array: AnyArray) -> AnyArray:
    """Return an array of objects as one of text, numbers, or the arrays that they are."""
    items = array.ravel().tolist()
    if items and all(isinstance(one, str) for one in items):
        return array.astype(np.str_)
    if items and array.ndim == 1 and np.ndim(items[0]) > 0:
        return np.stack([np.asarray(one) for one in items])
    if any(one is None or isinstance(one, str) for one in items):
        raise ValueError("text among numbers, or nothing")
    found = np.array(items).reshape(array.shape)
    if found.dtype.kind == "O":
        raise ValueError(f"objects such as {type(items[0]).__name__}")
    return found


def _check_channels(field: str, shape: tuple[int, ...]) -> None:
    """Refuse images with their channels last: nobody should train on them as if each line of pixels were a channel."""
    if len(shape) == 4 and shape[3] in CHANNELS and shape[1] > max(CHANNELS) and shape[2] > max(CHANNELS):
        remedy = "np.moveaxis(inputs, -1, 1) puts channels first"
        raise InputError(field, "have the shape samples × channels × height × width", f"{shape}", remedy)


def _label_array(field: str, values: object, size: int) -> AnyArray:
    array = plain_array(field, values)
    if array.shape[:1] != (size,):
        raise InputError(name=field, rule=f"have one entry for each of the {size} samples", got=f"shape {array.shape}")
    return array


def _one_each(array: AnyArray) -> AnyArray:
    """Return a column of classes as a vector; real numbers keep their shape, which a loss may want."""
    column = array.ndim == 2 and array.shape[1] == 1
    return array[:, 0] if column and array.dtype.kind != "f" else array


def _is_text(array: AnyArray) -> bool:
    return array.dtype.kind in TEXT


def _whole(field: str, array: AnyArray) -> Samples:
    if array.dtype.kind == "u" and array.size and array.max() > LARGEST:
        raise InputError(name=field, rule=f"be at most {LARGEST}", got=f"{array.max()}")
    return array.astype(np.int64)


def _real(field: str, array: AnyArray) -> Samples:
    with np.errstate(over="ignore", invalid="ignore"):
        found: Samples = array.astype(np.float32)
    check_finite(field, found)
    return found
