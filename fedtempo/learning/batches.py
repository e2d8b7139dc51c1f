"""Which samples each client's SGD steps take."""

from typing import TypeAlias

import numba
import numpy as np
import numpy.typing as npt

from fedtempo.checks import Integers
from fedtempo.randomness import stream

Words: TypeAlias = npt.NDArray[np.uint64]
WORD = np.uint64(0xFFFFFFFF)


class Batches:
    """Mini-batches drawn with replacement, the same for every policy and engine that has the same seed.

    A counter-based generator is keyed by the seed and counts from (round, client), so one client's batches in one round
    depend on nothing else: not on who else was drawn, nor on what was drawn before.
    """

    def __init__(self, offsets: Integers, *, batch_size: int, seed: int) -> None:
        """Prepare batches of clients that hold the rows offsets[i] to offsets[i+1]."""
        self.offsets, self.batch_size = offsets, batch_size
        self.key = stream(seed, "batches").integers(2**32, size=2, dtype=np.uint64)

    def draw(self, clients: Integers, round_index: int, local_steps: int) -> npt.NDArray[np.int64]:
        """Return the rows of the training data, (client, step, sample)."""
        rows = np.empty((len(clients), local_steps, self.batch_size), dtype=np.int64)
        _draw(self.key, np.uint64(round_index), clients, self.offsets, rows.reshape(len(clients), -1))
        return rows


@numba.njit(cache=True)
def _draw(key: Words, round_index: np.uint64, clients: Integers, offsets: Integers, rows: Integers) -> None:
    """Fill each client's line with its rows, uniform without bias (Lemire's method)."""
    words = np.empty(4, dtype=np.uint64)
    for k in range(len(clients)):
        client, first = np.uint64(clients[k]), offsets[clients[k]]
        size = np.uint64(offsets[clients[k] + 1] - first)
        rejected = (WORD + np.uint64(1) - size) % size
        block, used = np.uint64(0), 4
        for i in range(rows.shape[1]):
            while True:
                if used == 4:
                    words[0], words[1] = block, round_index
                    words[2], words[3] = client & WORD, client >> np.uint64(32)
                    philox(words, key)
                    block, used = block + np.uint64(1), 0
                scaled = words[used] * size
                used += 1
                if scaled & WORD >= rejected:
                    break
            rows[k, i] = first + np.int64(scaled >> np.uint64(32))


@numba.njit(cache=True)
def philox(counter: Words, key: Words) -> None:
    """Replace four words of 32 bits by random ones: Philox4x32 with ten rounds (Salmon et al., 2011)."""
    first, second = key[0], key[1]
    for _ in range(10):
        left, right = counter[0] * np.uint64(0xD2511F53), counter[2] * np.uint64(0xCD9E8D57)
        counter[0] = (right >> np.uint64(32)) ^ counter[1] ^ first
        counter[1] = right & WORD
        counter[2] = (left >> np.uint64(32)) ^ counter[3] ^ second
        counter[3] = left & WORD
        first, second = (first + np.uint64(0x9E3779B9)) & WORD, (second + np.uint64(0xBB67AE85)) & WORD
