"""What a server remembers of its clients: the last direction of each, whole or in eight bits a number."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from fedtempo.checks import InputError
from fedtempo.learning.trainer import Parameters
from fedtempo.state import Rows

Bits = Literal[8, 32]
BITS: tuple[Bits, ...] = (8, 32)
BLOCK = 256  # numbers that share one scale
LARGEST = 127


@dataclass(slots=True)
class MemoryState:
    """One direction for each client that has reported; of eight bits, numbers and a scale for each block of them."""

    size: int = 0  # of a direction
    numbers: Rows = field(default_factory=Rows)
    scale: Rows = field(default_factory=Rows)


class Memory:
    """Directions by client; of eight bits, blocks are rounded to 1/127 of their largest number."""

    def __init__(self, bits: Bits = 32) -> None:
        """Start with nothing."""
        if bits not in BITS:
            raise InputError(name="memory_bits", rule=f"be one of {', '.join(map(str, BITS))}", got=repr(bits))
        self.bits, self.state = bits, MemoryState()

    def __iter__(self) -> Iterator[int]:
        """Go through those who have reported."""
        return iter(self.state.numbers.by_client)

    def __len__(self) -> int:
        """Return how many have."""
        return len(self.state.numbers.by_client)

    @property
    def nbytes(self) -> int:
        """How large it is."""
        parts = (self.state.numbers, self.state.scale)
        return sum(row.nbytes for part in parts for row in part.by_client.values())

    def direction(self, client: int) -> Parameters | None:
        """Return what is remembered of one."""
        numbers = self.state.numbers.by_client.get(client)
        if numbers is None or self.bits == 32:
            return numbers
        flat: Parameters = (numbers * self.state.scale.by_client[client][:, np.newaxis]).ravel()[: self.state.size]
        return flat

    def keep(self, client: int, direction: Parameters) -> Parameters:
        """Remember a direction; return it as it is remembered."""
        state = self.state
        state.size = direction.size
        if self.bits == 32:
            state.numbers.by_client[client] = kept = direction.copy()
            return kept
        blocks = np.zeros((-(-state.size // BLOCK), BLOCK), np.float32)
        blocks.ravel()[: state.size] = direction
        scale = np.abs(blocks).max(axis=1) / np.float32(LARGEST)
        scale[scale == 0] = 1
        with np.errstate(invalid="ignore"):  # what is no number has a scale that is none
            rounded = np.rint(blocks / scale[:, np.newaxis]).astype(np.int8)
        state.numbers.by_client[client], state.scale.by_client[client] = rounded, scale
        flat: Parameters = (rounded * scale[:, np.newaxis]).ravel()[: state.size]
        return flat

    def drop(self, client: int) -> None:
        """Forget one."""
        del self.state.numbers.by_client[client]
        self.state.scale.by_client.pop(client, None)
