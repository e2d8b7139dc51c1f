"""Which samples each client's SGD steps take."""

import numpy as np
import numpy.typing as npt

from fedtempo.checks import Integers
from fedtempo.randomness import stream


class Batches:
    """Mini-batches drawn with replacement, the same for every policy and engine that has the same seed.

    A counter-based generator is keyed by the seed and set to (round, client), so one client's batches in one round
    depend on nothing else: not on who else was drawn, nor on what was drawn before.
    """

    def __init__(self, offsets: Integers, *, batch_size: int, seed: int) -> None:
        """Prepare batches of clients that hold the rows offsets[i] to offsets[i+1]."""
        self.offsets, self.batch_size = offsets, batch_size
        self.bits = np.random.Philox(key=stream(seed, "batches").integers(2**63, size=2, dtype=np.uint64))
        self.start = self.bits.state
        self.generator = np.random.Generator(self.bits)

    def draw(self, clients: Integers, round_index: int, local_steps: int) -> npt.NDArray[np.int64]:
        """Return the rows of the training data, (client, step, sample)."""
        rows = np.empty((len(clients), local_steps, self.batch_size), dtype=np.int64)
        for k, client in enumerate(clients.tolist()):
            first, end = int(self.offsets[client]), int(self.offsets[client + 1])
            self.start["state"]["counter"][2:] = round_index, client
            self.bits.state = self.start  # setting the counter takes half the time of a new generator
            rows[k] = self.generator.integers(end - first, size=rows.shape[1:], dtype=np.uint32)
            rows[k] += first
        return rows
