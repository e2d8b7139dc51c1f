"""Random streams: one for each purpose, never a global seed."""

import zlib

import numpy as np


def stream(seed: int, *purpose: str | int) -> np.random.Generator:
    """Return the generator for one purpose, e.g. ``stream(7, "cohort", round_index)``.

    Two purposes never share a stream, so what one part of a run draws does not depend on what another part has drawn.
    """
    keys = [seed, *(zlib.crc32(part.encode()) if isinstance(part, str) else part for part in purpose)]
    # NumPy takes words of 32 bits as they are, which is faster than number by number and gives the same stream.
    return np.random.default_rng(np.array(keys, dtype=np.uint32) if 0 <= min(keys) <= max(keys) < 2**32 else keys)
