"""The idx format of MNIST and EMNIST: a magic number, the length of each dimension, and the bytes."""

import gzip
import math
import zlib
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from fedtempo.checks import InputError

Bytes: TypeAlias = npt.NDArray[np.uint8]

GZIP_MAGIC = b"\x1f\x8b"
IDX_MAGIC = bytes([0, 0, 8])  # 8 stands for unsigned bytes; the number of dimensions follows


def read_idx(path: Path | str) -> Bytes:
    """Read an idx file of unsigned bytes, compressed or not: labels, or images as (n, height, width)."""
    return parse_idx(path, read_content(path))


def read_content(path: Path | str) -> bytes:
    """Return the bytes of a file, decompressed if they are gzip's, whatever the file's name."""
    try:
        content = Path(path).read_bytes()
        return gzip.decompress(content) if content.startswith(GZIP_MAGIC) else content
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(
            name=path, rule="be a whole gzip file", got=f"a damaged one ({error})", remedy="fetch it again"
        ) from None
    except OSError as error:
        raise InputError(name=path, rule="be a readable idx file", got=f"{error.strerror}") from None


def parse_idx(path: Path | str, content: bytes) -> Bytes:
    """Return the array that the content of an idx file stands for, as a read-only view; the path is for messages."""
    if content[:3] != IDX_MAGIC or len(content) < 4 or content[3] == 0:
        raise InputError(
            name=path, rule="be an idx file of unsigned bytes", got=f"one that starts with '{content[:4].hex()}'"
        )
    header = 4 + 4 * content[3]
    if len(content) < header:
        raise InputError(
            name=path, rule=f"have a header of {header} bytes", got=f"{len(content)}", remedy="fetch it again"
        )
    shape = tuple(int.from_bytes(content[start : start + 4]) for start in range(4, header, 4))
    expected = header + math.prod(shape)
    if len(content) != expected:
        raise InputError(
            name=path, rule=f"have {expected} bytes for shape {shape}", got=f"{len(content)}", remedy="fetch it again"
        )
    return np.frombuffer(content, dtype=np.uint8, offset=header).reshape(shape)
