"""Uploads of fewer bits: stochastic rounding without bias, and the bytes in which an update travels.

An update is cut into blocks of 256 numbers, each with a scale s, its largest absolute value. With b bits a number x
becomes one of the levels k s/L, k from -L to L with L = 2^(b-1) - 1: one of the two next to x, the nearer one more
often, so that the mean is x. With f the fractional part of L |x|/s, its noise is f (1 - f) (s/L)² in expectation, which
the client knows exactly. Their sum over ‖x‖² is ω: E‖Q(x) - x‖² = ω ‖x‖².
"""

from typing import TypeAlias

import numba
import numpy as np
import numpy.typing as npt

from fedtempo.checks import InputError, Integers, Vector
from fedtempo.learning.batches import WORD, Words, philox
from fedtempo.learning.trainer import Parameters
from fedtempo.randomness import stream
from fedtempo.theory.bits import BITS, WHOLE

BLOCK = 256  # numbers that share a scale
HEADER = 8  # bytes: two that say what this is, bits, one that is 0, and how many numbers
MAGIC = b"ft"
LARGEST_SCALE = 1e18  # of an update that somebody may have trained: its squares are finite in single precision
NORMAL_NUMBERS = 1 << 14  # drawn to find the noise of such
LEVELS = np.array([2 ** (bits - 1) - 1 for bits in BITS[:-1]], dtype=np.float64)  # L of each size

vectors = numba.njit(cache=True, error_model="numpy", fastmath={"reassoc", "contract", "nsz"})

Noise: TypeAlias = Vector  # ω of each size in BITS, 0 for the last; as rows for several clients


def upload_bytes(bits: int, numbers: int) -> int:
    """Return how many bytes an update of so many numbers travels in: header, scales and levels."""
    if bits == WHOLE:
        return 4 * numbers
    return HEADER + 4 * -(-numbers // BLOCK) + -(-numbers * bits // 8)


def upload_share(bits: int, numbers: int, buffers: int = 0) -> float:
    """Return the size of an upload over that with 32 bits a number; buffers, which nobody rounds, count in both."""
    return (upload_bytes(bits, numbers) + 4 * buffers) / (4 * (numbers + buffers))


class Quantiser:
    """Rounds and packs updates; what it draws for one client in one round depends on the seed and on nothing else."""

    def __init__(self, seed: int) -> None:
        """Take the seed of the run."""
        self.key: Words = stream(seed, "uploads").integers(2**32, size=2, dtype=np.uint64)

    @classmethod
    def with_key(cls, key: npt.ArrayLike) -> "Quantiser":
        """Return one that draws as another with this key."""
        made = cls.__new__(cls)
        made.key = np.asarray(key, dtype=np.uint64)
        return made

    def round(
        self, updates: Parameters, bits: Integers, clients: Integers, round_index: int, *, nearest: bool = False
    ) -> Noise:
        """Round each update to its bits, in its place; return ω of each, as rows.

        An update that is not finite stays as it is, and its ω is NaN. ``nearest``: to the nearest level, which is
        biased, and ω is then the squared error over the squared norm.
        """
        noise = np.zeros((len(updates), len(BITS)))
        _round_all(updates, _largest(bits), self.key, clients, np.uint64(round_index), LEVELS, noise, nearest)
        return noise

    def pack(self, update: Parameters, bits: int, client: int, round_index: int) -> bytes:
        """Return a finite update as it travels."""
        if bits == WHOLE:
            return update.astype("<f4").tobytes()
        levels = np.empty(update.size, dtype=np.float64)
        scales = np.empty(-(-update.size // BLOCK), dtype=np.float32)
        _round(update, float(_largest(bits)), self.key, client, np.uint64(round_index), levels, scales, False)
        packed = np.zeros(-(-update.size * bits // 8), dtype=np.uint8)
        _pack(levels, bits, packed)
        header = MAGIC + bytes([bits, 0]) + update.size.to_bytes(4, "little")
        return header + scales.astype("<f4").tobytes() + packed.tobytes()


def unpack(data: bytes, bits: int, numbers: int) -> Parameters:
    """Return the update that travelled; refuse bytes that no client has packed so."""
    expected = upload_bytes(bits, numbers)
    if len(data) != expected:
        raise InputError("an upload", f"have {expected} bytes with {bits} bits a number", f"{len(data)}")
    if bits == WHOLE:
        return np.frombuffer(data, dtype="<f4").astype(np.float32)
    if data[:HEADER] != MAGIC + bytes([bits, 0]) + numbers.to_bytes(4, "little"):
        raise InputError("an upload", f"begin with the header of {numbers} numbers of {bits} bits", "another")
    blocks = -(-numbers // BLOCK)
    scales = np.frombuffer(data, dtype="<f4", count=blocks, offset=HEADER).astype(np.float32)
    if not ((scales >= 0) & (scales <= LARGEST_SCALE)).all():
        got = f"{scales.min():g} to {scales.max():g}"
        raise InputError("the scales of an upload", f"be from 0 to {LARGEST_SCALE:g}", got)
    levels, largest = np.empty(numbers), float(_largest(bits))
    _unpack(np.frombuffer(data, dtype=np.uint8, offset=HEADER + 4 * blocks), bits, levels)
    if levels.max(initial=0.0) > largest:
        raise InputError("the levels of an upload", f"be at most {largest:g}", f"{levels.max():g}")
    update = np.empty(numbers, dtype=np.float32)
    _restore(levels, scales, largest, update)
    return update


def noise_of(updates: Parameters) -> Noise:
    """Return ω of each update at each size, as rows."""
    none = np.zeros(len(updates), dtype=np.int64)
    return Quantiser(0).round(updates, none + WHOLE, none, 0)


def noise_of_normal_numbers() -> Noise:
    """Return ω of each size for an update of normally distributed numbers: what to expect before any was seen."""
    return noise_of(np.random.default_rng(0).standard_normal((1, NORMAL_NUMBERS)).astype(np.float32))[0]


def _largest(bits: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Return L, the largest level."""
    return np.exp2(np.asarray(bits) - 1.0) - 1.0


@vectors
def _round_all(
    updates: Parameters,
    largest: Vector,
    key: Words,
    clients: Integers,
    round_index: np.uint64,
    sizes: Vector,
    noise: Vector,
    nearest: bool,
) -> None:
    """Round each row to its levels, unless they are those of 32 bits, and fill in its ω."""
    count = updates.shape[1]
    levels, scales = np.empty(count), np.empty(-(-count // BLOCK), dtype=np.float32)
    for k in range(len(updates)):
        _measure(updates[k], sizes, noise[k], nearest)
        if largest[k] < 2.0**30 and np.isfinite(noise[k, 0]):
            _round(updates[k], largest[k], key, clients[k], round_index, levels, scales, nearest)
            _restore(levels, scales, largest[k], updates[k])


@vectors
def _measure(update: Parameters, sizes: Vector, noise: Vector, nearest: bool) -> None:
    """Fill in ω for each number L of levels; NaN where a number is not finite."""
    square, places = 0.0, np.empty(BLOCK, dtype=np.float32)
    for first in range(0, len(update), BLOCK):
        block = update[first : first + BLOCK]
        scale, own = _scale(block), np.float32(0)
        if scale == 0:
            continue
        for i in range(len(block)):
            places[i] = abs(block[i]) / scale
            own += places[i] * places[i]
        square += np.float64(own) * np.float64(scale) ** 2
        for size in range(len(sizes)):
            largest, total = np.float32(sizes[size]), np.float32(0)
            if nearest:
                for i in range(len(block)):
                    place = places[i] * largest
                    fraction = place - np.floor(place + np.float32(0.5))
                    total += fraction * fraction
            else:
                for i in range(len(block)):
                    place = places[i] * largest
                    fraction = place - np.floor(place)
                    total += fraction * (np.float32(1) - fraction)
            noise[size] += np.float64(total) * (np.float64(scale) / sizes[size]) ** 2
    if not np.isfinite(square):
        noise[:] = np.nan
    elif square > 0:
        noise /= square


@vectors
def _scale(block: Parameters) -> np.float32:
    """Return the largest absolute value, or something not finite where there is such: by bits, in vector code."""
    bits, largest = block.view(np.int32), np.int32(0)
    for i in range(len(bits)):
        largest = max(largest, bits[i] & np.int32(0x7FFFFFFF))
    return np.int32(largest).view(np.float32)


@vectors
def _round(
    update: Parameters,
    largest: float,
    key: Words,
    client: int,
    round_index: np.uint64,
    levels: Vector,
    scales: Parameters,
    nearest: bool,
) -> None:
    """Fill in the scale of each block and the level of each number."""
    words = np.empty(4, dtype=np.uint64)
    words[0], words[1] = 0, round_index
    words[2], words[3] = np.uint64(client) & WORD, np.uint64(client) >> np.uint64(32)
    philox(words, key)
    one, two = np.uint32(words[0]), np.uint32(words[1])
    for first in range(0, len(update), BLOCK):
        last, scale = min(first + BLOCK, len(update)), _scale(update[first : first + BLOCK])
        scales[first // BLOCK] = scale
        divisor = np.float64(scale) if scale > 0 else 1.0
        if nearest:
            for i in range(first, last):
                level = np.floor(abs(np.float64(update[i])) / divisor * largest + 0.5)
                levels[i] = level if update[i] >= 0 else -level
            continue
        for i in range(first, last):
            word = _mixed(np.uint32(_mixed(np.uint32(np.uint32(i) + one)) + two))
            chance = np.float64(np.int32(word >> np.uint32(1))) * 2.0**-31  # signed, which vector code can convert
            level = np.floor(abs(np.float64(update[i])) / divisor * largest + chance)
            levels[i] = level if update[i] >= 0 else -level


@numba.njit(inline="always")
def _mixed(word: np.uint32) -> np.uint32:
    """Return 32 bits of which each depends on each that is given: a bijection of two products and three shifts.

    The constants are those that C. Wellons found by search (lowbias32), with a bias of 0.17 of a thousandth.
    """
    word ^= word >> np.uint32(16)
    word = np.uint32(word * np.uint32(0x7FEB352D))
    word ^= word >> np.uint32(15)
    word = np.uint32(word * np.uint32(0x846CA68B))
    return np.uint32(word ^ (word >> np.uint32(16)))


@vectors
def _restore(levels: Vector, scales: Parameters, largest: float, update: Parameters) -> None:
    """Fill in the numbers that levels stand for."""
    for first in range(0, len(update), BLOCK):
        step = np.float64(scales[first // BLOCK]) / largest
        for i in range(first, min(first + BLOCK, len(update))):
            update[i] = levels[i] * step


@numba.njit(cache=True)
def _pack(levels: Vector, bits: int, packed: npt.NDArray[np.uint8]) -> None:
    """Put levels, from -L on, side by side, the lowest bits first."""
    largest = np.int64(2 ** (bits - 1) - 1)
    held, count, place = np.uint64(0), 0, 0
    for i in range(len(levels)):
        held |= np.uint64(np.int64(levels[i]) + largest) << np.uint64(count)
        count += bits
        while count >= 8:
            packed[place] = held & np.uint64(0xFF)
            held >>= np.uint64(8)
            count -= 8
            place += 1
    if count:
        packed[place] = held & np.uint64(0xFF)


@numba.njit(cache=True)
def _unpack(packed: npt.NDArray[np.uint8], bits: int, levels: Vector) -> None:
    """Take them apart again."""
    largest, mask = np.int64(2 ** (bits - 1) - 1), (np.uint64(1) << np.uint64(bits)) - np.uint64(1)
    held, count, place = np.uint64(0), 0, 0
    for i in range(len(levels)):
        while count < bits:
            held |= np.uint64(packed[place]) << np.uint64(count)
            count += 8
            place += 1
        levels[i] = np.int64(held & mask) - largest
        held >>= np.uint64(bits)
        count -= bits
