"""Uploads of fewer bits: rounding without bias, and the bytes in which an update travels.

An update is cut into blocks of 256 numbers, the last one filled up with zeros to a power of two. Each block has signs
drawn for it, is rotated, y = H D x/√n with H the Hadamard matrix, and has a scale s, the largest |y|. Rotated numbers
are much alike, so that s is not far above them. With b bits, y becomes one of the 2^b levels from -s to s, which lie Δ
apart: the nearest to y + uΔ, with u drawn evenly from -1/2 to 1/2. Who receives the level draws the same signs and the
same u, takes uΔ off again and rotates back. The error of each y is then even between -Δ/2 and Δ/2 whatever y is
(subtractive dither; Roberts, 1962), so that the mean of what arrives is the update, and E‖Q(x) - x‖² = ω ‖x‖² with

    ω = Σ n s² / (3 (2^b - 1)² ‖x‖²)   over blocks of n numbers,

which the client knows exactly (docs/decisions/0023-rotated-uploads.md).
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
MAGIC = b"fr"
OTHER_VERSION = "clients and server need the same version of fedtempo"
LARGEST_SCALE = 1e18  # of an update that somebody may have trained: its squares are finite in single precision
STEPS = np.array([2**bits - 1 for bits in BITS[:-1]], dtype=np.float64)  # from -s to s, of each size

exact = numba.njit(cache=True, error_model="numpy")  # the same bytes on client and server, wherever it is compiled into

Noise: TypeAlias = Vector  # ω of each size in BITS, 0 for the last; as rows for several clients
Codes: TypeAlias = npt.NDArray[np.int64]  # which level each rotated number became, from 0


def upload_bytes(bits: int, numbers: int) -> int:
    """Return how many bytes an update of so many numbers travels in: header, scales and levels."""
    if bits == WHOLE:
        return 4 * numbers
    return HEADER + 4 * _blocks(numbers) + -(-_rotated(numbers) * bits // 8)


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

        An update that is not finite, or nearly not, stays as it is, and its ω is NaN. ``nearest``: to the nearest
        level, which is biased, and ω is then the squared error over the squared norm, with that of the numbers that
        fill up the last block.
        """
        noise, (rotated, scales) = np.zeros((len(updates), len(BITS))), _room(updates.shape[1])
        index = np.uint64(round_index)
        _round_all(updates, _steps(bits), self.key, clients, index, STEPS, noise, rotated, scales, nearest)
        return noise

    def noise(self, update: Parameters, client: int, round_index: int) -> Noise:
        """Return ω of an update at each size, as this client rounds it in this round."""
        return self.round(update[None].copy(), np.array([WHOLE]), np.array([client]), round_index)[0]

    def pack(self, update: Parameters, bits: int, client: int, round_index: int) -> bytes:
        """Return a finite update as it travels."""
        if bits == WHOLE:
            return update.astype("<f4").tobytes()
        rotated, scales = _room(update.size)
        codes, u = np.empty(rotated.size, dtype=np.int64), np.empty(rotated.size)
        words = _words(self.key, client, np.uint64(round_index))
        _rotate(update, words, rotated, scales)
        _draw(words, u)
        _encode(rotated, scales, float(_steps(bits)), u, codes)
        packed = np.zeros(-(-codes.size * bits // 8), dtype=np.uint8)
        _pack(codes, bits, packed)
        header = MAGIC + bytes([bits, 0]) + update.size.to_bytes(4, "little")
        return header + scales.astype("<f4").tobytes() + packed.tobytes()

    def unpack(self, data: bytes, bits: int, numbers: int, client: int, round_index: int) -> Parameters:
        """Return the update that travelled; refuse bytes that no client has packed so."""
        expected = upload_bytes(bits, numbers)
        if len(data) != expected:
            raise InputError("an upload", f"have {expected} bytes with {bits} bits a number", f"{len(data)}")
        if bits == WHOLE:
            return np.frombuffer(data, dtype="<f4").astype(np.float32)
        if data[:HEADER] != MAGIC + bytes([bits, 0]) + numbers.to_bytes(4, "little"):
            raise InputError(
                "an upload", f"begin with the header of {numbers} numbers of {bits} bits", "another", OTHER_VERSION
            )
        rotated, scales = _room(numbers)
        scales[:] = np.frombuffer(data, dtype="<f4", count=scales.size, offset=HEADER)
        if not ((scales >= 0) & (scales <= LARGEST_SCALE)).all():
            got = f"{scales.min():g} to {scales.max():g}"
            raise InputError("the scales of an upload", f"be from 0 to {LARGEST_SCALE:g}", got)
        codes = np.empty(rotated.size, dtype=np.int64)
        _unpack(np.frombuffer(data, dtype=np.uint8, offset=HEADER + 4 * scales.size), bits, codes)
        words, u = _words(self.key, client, np.uint64(round_index)), np.empty(rotated.size)
        update = np.empty(numbers, dtype=np.float32)
        _draw(words, u)
        _decode(codes, scales, float(_steps(bits)), u, rotated)
        _rotate_back(rotated, words, update)
        return update


def _blocks(numbers: int) -> int:
    """Return into how many blocks an update is cut."""
    return -(-numbers // BLOCK)


def _rotated(numbers: int) -> int:
    """Return how many numbers there are once the last block is filled up."""
    rest = numbers % BLOCK
    return numbers - rest + (1 << (rest - 1).bit_length() if rest else 0)


def _room(numbers: int) -> tuple[Parameters, Parameters]:
    """Return room for rotated numbers, and for scales."""
    return np.empty(_rotated(numbers), dtype=np.float32), np.empty(_blocks(numbers), dtype=np.float32)


def _steps(bits: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Return 2^b - 1, how many Δ there are from -s to s."""
    return np.exp2(np.asarray(bits, dtype=np.float64)) - 1.0


@exact
def _round_all(
    updates: Parameters,
    steps: Vector,
    key: Words,
    clients: Integers,
    round_index: np.uint64,
    sizes: Vector,
    noise: Vector,
    rotated: Parameters,
    scales: Parameters,
    nearest: bool,
) -> None:
    """Round each row to its levels, unless they are those of 32 bits, and fill in its ω; there is room for a row."""
    codes, u = np.empty(len(rotated), dtype=np.int64), np.zeros(len(rotated))
    for k in range(len(updates)):
        words = _words(key, clients[k], round_index)
        _rotate(updates[k], words, rotated, scales)
        _measure(updates[k], rotated, scales, sizes, noise[k], nearest)
        if steps[k] < 2.0**31 and np.isfinite(noise[k, 0]):
            if not nearest:
                _draw(words, u)
            _encode(rotated, scales, steps[k], u, codes)
            _decode(codes, scales, steps[k], u, rotated)
            _rotate_back(rotated, words, updates[k])


@exact
def _words(key: Words, client: int, round_index: np.uint64) -> npt.NDArray[np.uint32]:
    """Return two words from which all that one client draws in one round follows."""
    words = np.empty(4, dtype=np.uint64)
    words[0], words[1] = 0, round_index
    words[2], words[3] = np.uint64(client) & WORD, np.uint64(client) >> np.uint64(32)
    philox(words, key)
    return words[:2].astype(np.uint32)


@numba.njit(inline="always")
def _word(words: npt.NDArray[np.uint32], place: int) -> np.uint32:
    """Return 32 bits drawn for a place of the update: the lowest is its sign, the others are its u."""
    return _mixed(np.uint32(_mixed(np.uint32(np.uint32(place) + words[0])) + words[1]))


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


@exact
def _signed(words: npt.NDArray[np.uint32], first: int, block: Parameters) -> None:
    """Give each number of a block the sign that is drawn for its place."""
    bits = block.view(np.uint32)
    for i in range(len(bits)):
        bits[i] ^= np.uint32(_word(words, first + i) << np.uint32(31))


@exact
def _turn(block: Parameters) -> None:
    """Multiply a block of n numbers with H/√n, in its place; n is a power of two."""
    half = 1
    while half < len(block):
        for first in range(0, len(block), 2 * half):
            for i in range(first, first + half):
                one, other = block[i], block[i + half]
                block[i], block[i + half] = one + other, one - other
        half *= 2
    block *= np.float32(1 / np.sqrt(len(block)))


@exact
def _rotate(update: Parameters, words: npt.NDArray[np.uint32], rotated: Parameters, scales: Parameters) -> None:
    """Fill in the rotated numbers, and the scale of each block."""
    rotated[: len(update)], rotated[len(update) :] = update, np.float32(0)
    for first in range(0, len(rotated), BLOCK):
        block = rotated[first : first + BLOCK]
        _signed(words, first, block)
        _turn(block)
        scales[first // BLOCK] = _scale(block)


@exact
def _rotate_back(rotated: Parameters, words: npt.NDArray[np.uint32], update: Parameters) -> None:
    """Fill in the update whose rotated numbers these are, and spoil them."""
    for first in range(0, len(rotated), BLOCK):
        block = rotated[first : first + BLOCK]
        _turn(block)
        _signed(words, first, block)
    update[:] = rotated[: len(update)]


@exact
def _scale(block: Parameters) -> np.float32:
    """Return the largest absolute value, or something not finite where there is such: by bits, in vector code."""
    bits, largest = block.view(np.int32), np.int32(0)
    for i in range(len(bits)):
        largest = max(largest, bits[i] & np.int32(0x7FFFFFFF))
    return np.int32(largest).view(np.float32)


@exact
def _measure(
    update: Parameters, rotated: Parameters, scales: Parameters, sizes: Vector, noise: Vector, nearest: bool
) -> None:
    """Fill in ω for each number of steps from -s to s; NaN where a number or a scale is not finite."""
    square, spread = 0.0, 0.0
    for first in range(0, len(update), BLOCK):
        numbers = update[first : first + BLOCK]
        own, scale = 0.0, np.float64(scales[first // BLOCK])
        for i in range(len(numbers)):
            own += np.float64(numbers[i]) ** 2
        square += own
        spread += len(numbers) * scale**2
        if nearest and scale > 0:
            for size in range(len(sizes)):
                step = 2 * scale / sizes[size]
                for y in rotated[first : first + BLOCK]:
                    place = (np.float64(y) + scale) / step
                    noise[size] += ((place - np.floor(place + 0.5)) * step) ** 2
    if not np.isfinite(square + spread):
        noise[:] = np.nan
    elif square > 0:
        noise[: len(sizes)] = noise[: len(sizes)] / square if nearest else spread / (3 * sizes**2 * square)


@exact
def _draw(words: npt.NDArray[np.uint32], u: Vector) -> None:
    """Fill in u of each place, from -1/2 to 1/2: of signed numbers, which vector code can convert."""
    for i in range(len(u)):
        u[i] = np.float64(np.int32(_word(words, i) >> np.uint32(1))) * 2.0**-31 - 0.5


@exact
def _encode(rotated: Parameters, scales: Parameters, steps: float, u: Vector, codes: Codes) -> None:
    """Fill in the level that each rotated number becomes."""
    for first in range(0, len(rotated), BLOCK):
        scale = np.float64(scales[first // BLOCK])
        per_step = steps / (2 * scale) if scale > 0 else 0.0
        for i in range(first, min(first + BLOCK, len(rotated))):
            place = np.floor((np.float64(rotated[i]) + scale) * per_step + u[i] + 0.5)
            codes[i] = np.int64(min(max(place, 0.0), steps))


@exact
def _decode(codes: Codes, scales: Parameters, steps: float, u: Vector, rotated: Parameters) -> None:
    """Fill in the rotated numbers that levels stand for."""
    for first in range(0, len(rotated), BLOCK):
        step = 2 * np.float64(scales[first // BLOCK]) / steps
        for i in range(first, min(first + BLOCK, len(rotated))):
            rotated[i] = (codes[i] - steps / 2 - u[i]) * step


@numba.njit(cache=True)
def _pack(codes: Codes, bits: int, packed: npt.NDArray[np.uint8]) -> None:
    """Put levels side by side, the lowest bits first."""
    held, count, place = np.uint64(0), 0, 0
    for i in range(len(codes)):
        held |= np.uint64(codes[i]) << np.uint64(count)
        count += bits
        while count >= 8:
            packed[place] = held & np.uint64(0xFF)
            held >>= np.uint64(8)
            count -= 8
            place += 1
    if count:
        packed[place] = held & np.uint64(0xFF)


@numba.njit(cache=True)
def _unpack(packed: npt.NDArray[np.uint8], bits: int, codes: Codes) -> None:
    """Take them apart again."""
    mask = (np.uint64(1) << np.uint64(bits)) - np.uint64(1)
    held, count, place = np.uint64(0), 0, 0
    for i in range(len(codes)):
        while count < bits:
            held |= np.uint64(packed[place]) << np.uint64(count)
            count += 8
            place += 1
        codes[i] = np.int64(held & mask)
        held >>= np.uint64(bits)
        count -= bits
