"""The model at the end of a run, beside its records."""

from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord

from fedtempo.checks import InputError
from fedtempo.files import whole_file

MODEL_FILE = "model.npz"


def write_model(folder: Path, arrays: ArrayRecord) -> None:
    """Write named arrays, whole or not at all."""
    with whole_file(folder / MODEL_FILE, "wb") as stream:
        np.savez(stream, **{name: array.numpy() for name, array in arrays.items()})  # type: ignore[arg-type]


def read_model(folder: Path) -> ArrayRecord:
    """Return the arrays of a run that has ended."""
    path = folder / MODEL_FILE
    if not path.exists():
        rule = "hold the model of the run that has ended there"
        raise InputError(name=folder, rule=rule, got="none", remedy="delete it")
    with np.load(path) as saved:
        return ArrayRecord({name: Array(saved[name]) for name in saved.files})
