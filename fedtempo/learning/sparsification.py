"""Uploads of the largest numbers alone: biased, so meant to go with error feedback, and the bytes that they travel in.

Of n numbers, k = share n (rounded, at least one) of the largest absolute values travel as they are, and with them
where they stand: each place in as many bits as n - 1 has, or a bit for each of the n numbers, whichever is shorter.
"""

import numpy as np
import numpy.typing as npt

from fedtempo.checks import InputError
from fedtempo.learning.trainer import Parameters

MAGIC = b"fk"
HEADER = 12  # bytes: two that say what this is, how places are given, one that is 0, k, and n


def count_sent(share: float, numbers: int) -> int:
    """Return k, at least one number."""
    return max(1, round(share * numbers))


def sparse_bytes(count: int, numbers: int) -> int:
    """Return how many bytes so many of so many numbers travel in: header, places and values."""
    return HEADER + min(_bytes_of_list(count, numbers), -(-numbers // 8)) + 4 * count


def sparse_share(share: float, numbers: int, buffers: int = 0) -> float:
    """Return the size of an upload over that with all numbers; buffers, which always travel whole, count in both."""
    return (sparse_bytes(count_sent(share, numbers), numbers) + 4 * buffers) / (4 * (numbers + buffers))


def keep_largest(updates: Parameters, share: float) -> None:
    """Put 0 in the place of all but the largest numbers of each row; what is not finite counts as largest."""
    drop = updates.shape[1] - count_sent(share, updates.shape[1])
    for update in updates:
        update[np.argpartition(np.abs(update), drop)[:drop]] = 0


def pack_largest(update: Parameters, share: float) -> bytes:
    """Return an update of which the largest numbers travel."""
    numbers, count = update.size, count_sent(share, update.size)
    places = np.sort(np.argpartition(np.abs(update), numbers - count)[numbers - count :])
    as_list = _bytes_of_list(count, numbers) <= -(-numbers // 8)
    listed: npt.NDArray[np.int64] = (places[:, np.newaxis] >> np.arange(_width(numbers))) & 1
    bits = listed.astype(bool) if as_list else np.isin(np.arange(numbers), places)
    header = MAGIC + bytes([as_list, 0]) + count.to_bytes(4, "little") + numbers.to_bytes(4, "little")
    where = np.packbits(bits, bitorder="little").tobytes()
    return header + where + update[places].astype("<f4").tobytes()


def unpack_largest(data: bytes, share: float, numbers: int) -> Parameters:
    """Return the update that travelled; refuse bytes that no client has packed so."""
    count = count_sent(share, numbers)
    expected, listed = sparse_bytes(count, numbers), _bytes_of_list(count, numbers)
    as_list = listed <= -(-numbers // 8)
    if len(data) != expected:
        raise InputError("an upload", f"have {expected} bytes with {count} of {numbers} numbers", f"{len(data)}")
    if data[:HEADER] != MAGIC + bytes([as_list, 0]) + count.to_bytes(4, "little") + numbers.to_bytes(4, "little"):
        raise InputError("an upload", f"begin with the header of {count} of {numbers} numbers", "another")
    where = np.frombuffer(data, dtype=np.uint8, offset=HEADER, count=expected - HEADER - 4 * count)
    update = np.zeros(numbers, dtype=np.float32)
    places = _listed_places(where, count, numbers) if as_list else _marked_places(where, numbers)
    if places.size != count or places.max() >= numbers or (np.diff(places) <= 0).any():
        raise InputError("the places of an upload", f"be {count} of {numbers}, in their order", "others")
    update[places] = np.frombuffer(data, dtype="<f4", offset=expected - 4 * count)
    return update


def _width(numbers: int) -> int:
    """Return how many bits a place has."""
    return max((numbers - 1).bit_length(), 1)


def _bytes_of_list(count: int, numbers: int) -> int:
    return -(-count * _width(numbers) // 8)


def _listed_places(where: npt.NDArray[np.uint8], count: int, numbers: int) -> npt.NDArray[np.int64]:
    width = _width(numbers)
    bits = np.unpackbits(where, count=count * width, bitorder="little").reshape(count, width).astype(np.int64)
    return bits @ (np.int64(1) << np.arange(width))


def _marked_places(where: npt.NDArray[np.uint8], numbers: int) -> npt.NDArray[np.int64]:
    return np.flatnonzero(np.unpackbits(where, count=numbers, bitorder="little"))
