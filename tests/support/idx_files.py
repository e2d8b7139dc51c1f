"""Files in the idx format."""

import gzip

import numpy as np


def idx_content(array: np.ndarray) -> bytes:
    """Return an array of bytes in the idx format."""
    lengths = b"".join(length.to_bytes(4, "big") for length in array.shape)
    return bytes([0, 0, 8, array.ndim]) + lengths + array.astype(np.uint8).tobytes()


def write_idx(path, array, *, compressed=False):
    content = idx_content(array)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(content) if compressed else content)
    return path
