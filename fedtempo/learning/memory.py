"""What a server remembers of its clients: the last direction of each, whole or in eight bits a number."""

from collections.abc import Iterator
from typing import Literal

import numpy as np
import numpy.typing as npt

from fedtempo.checks import InputError
from fedtempo.learning.trainer import Parameters

Bits = Literal[8, 32]
BITS: tuple[Bits, ...] = (8, 32)
BLOCK = 256  # numbers that share one scale
LARGEST = 127


class Memory:
    """One direction for each client that has told; of eight bits, blocks are rounded to 1/127 of their largest."""

    def __init__(self, bits: Bits = 32) -> None:
        """Start with nothing."""
        if bits not in BITS:
            raise InputError(name="memory_bits", rule=f"be one of {', '.join(map(str, BITS))}", got=repr(bits))
        self.bits = bits
        self.kept: dict[int, tuple[npt.NDArray[np.generic], Parameters]] = {}  # numbers and, of eight bits, scales
        self.size = 0

    def __iter__(self) -> Iterator[int]:
        """Go through those who have told."""
        return iter(self.kept)

    @property
    def nbytes(self) -> int:
        """How large it is."""
        return sum(part.nbytes for parts in self.kept.values() for part in parts)

    def get(self, client: int) -> Parameters | None:
        """Return what is remembered of one."""
        if client not in self.kept:
            return None
        numbers, scale = self.kept[client]
        if self.bits == 32:
            return numbers  # type: ignore[return-value]
        return (numbers * scale[:, np.newaxis]).ravel()[: self.size]  # type: ignore[operator]

    def keep(self, client: int, direction: Parameters) -> Parameters:
        """Remember a direction; return it as it is remembered."""
        self.size = direction.size
        if self.bits == 32:
            self.kept[client] = direction.copy(), np.empty(0, np.float32)
        else:
            blocks = np.zeros((-(-self.size // BLOCK), BLOCK), np.float32)
            blocks.ravel()[: self.size] = direction
            scale = np.abs(blocks).max(axis=1) / np.float32(LARGEST)
            scale[scale == 0] = 1
            with np.errstate(invalid="ignore"):  # what is no number has a scale that is none
                self.kept[client] = np.rint(blocks / scale[:, np.newaxis]).astype(np.int8), scale
        return self.get(client)  # type: ignore[return-value]

    def drop(self, client: int) -> None:
        """Forget one."""
        del self.kept[client]

    def clear(self) -> None:
        """Forget all."""
        self.kept.clear()

    def state(self) -> dict[str, npt.NDArray[np.generic]]:
        """Return all of it as arrays."""
        if not self.kept:
            return {}
        numbers, scale = (np.array(part) for part in zip(*self.kept.values(), strict=True))
        clients = np.array(list(self.kept), dtype=np.int64)
        return {"clients": clients, "numbers": numbers, "scale": scale, "size": np.array(self.size)}

    def restore(self, arrays: dict[str, npt.NDArray[np.generic]]) -> None:
        """Take it up."""
        self.clear()
        if arrays:
            self.size = int(arrays["size"])
            parts = zip(arrays["numbers"], arrays["scale"], strict=True)
            self.kept = dict(zip(arrays["clients"].tolist(), parts, strict=True))
