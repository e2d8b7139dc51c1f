"""Splits that are given: the rows of each client, or the owner of each sample."""

from collections.abc import Mapping, Sequence

import numpy as np

from fedtempo.checks import InputError, Integers
from fedtempo.data.array_types import owner_numbers, plain_array

NOBODY = -1


def given_owners(split: object, size: int, clients: int | None) -> Integers:
    """Return the client of each sample, NOBODY where none has it; each client has at least one.

    ``split``: a list, or a dict, with the rows of each client as numbers or as a mask; or an array with the owner of
    each sample. ``clients``: how many there must be, if it is known.
    """
    if isinstance(split, Mapping):
        return _of_rows(list(split.values()), size, clients)
    if _is_list_of_rows(split):
        return _of_rows(list(split), size, clients)  # type: ignore[call-overload]
    owner = owner_numbers("split", split, size)
    last = int(owner.max()) if clients is None else clients - 1
    outside = (owner < 0) | (owner > last)
    if outside.any():
        row = int(outside.argmax())
        raise InputError("split", f"name clients from 0 to {last}", f"{owner[row]} for sample {row}")
    held = np.unique(owner)
    if held.size <= last:
        _refuse_empty(int(np.argmax(np.append(held, -1) != np.arange(held.size + 1))))
    return owner


def _is_list_of_rows(split: object) -> bool:
    if isinstance(split, Sequence) and not isinstance(split, str):
        return any(np.ndim(one) > 0 for one in split[:1])
    return np.ndim(plain_array("split", split)) == 2


def _of_rows(rows: list[object], size: int, clients: int | None) -> Integers:
    if clients is not None and len(rows) != clients:
        raise InputError("split", f"have rows for each of the {clients} clients", f"{len(rows)} lists")
    owner: Integers = np.full(size, NOBODY, dtype=np.int64)
    for client, given in enumerate(rows):
        own = plain_array("split", given)
        if own.dtype.kind == "b" and own.shape == (size,):
            own = np.flatnonzero(own)
        if own.size == 0:
            _refuse_empty(client)
        if own.ndim != 1 or own.dtype.kind not in "iu":
            raise InputError("split", "hold the numbers of rows", f"{own.dtype} of shape {own.shape} for {client}")
        outside = (own < 0) | (own >= size)
        if outside.any():
            wrong = own[outside][0]
            raise InputError("split", f"hold rows from 0 to {size - 1}", f"{wrong} for client {client}")
        values, times = np.unique(own, return_counts=True)
        taken = (owner[values] != NOBODY) | (times > 1)
        if taken.any():
            row = int(values[taken.argmax()])
            twice = f"twice for client {client}" if owner[row] == NOBODY else f"for clients {owner[row]} and {client}"
            raise InputError("split", "give each sample once", f"sample {row} {twice}")
        owner[own] = client
    return owner


def _refuse_empty(client: int) -> None:
    raise InputError("each client", "hold at least one sample", f"none for client {client}", "leave the client out")
