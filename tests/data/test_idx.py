"""The idx format: what is written is read, compressed or not, and damaged files are refused."""

import gzip

import numpy as np
import pytest

from fedtempo.checks import InputError
from fedtempo.data.images import read_idx
from support.idx_files import idx_content, write_idx

IMAGES = np.random.default_rng(0).integers(0, 256, (7, 4, 3))


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("array", [IMAGES, IMAGES[:, 0, 0]], ids=["images", "labels"])
def test_files_come_back(tmp_path, array, compressed):
    path = write_idx(tmp_path / "some-idx-ubyte", array, compressed=compressed)
    np.testing.assert_array_equal(read_idx(path), array)
    assert read_idx(str(path)).dtype == np.uint8


WHOLE = idx_content(IMAGES)
GZIP = gzip.compress(WHOLE, mtime=0)  # the same bytes in each process that runs the tests


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "idx file of unsigned bytes, got one that starts with ''"),
        (b"PK\x03\x04", "starts with '504b0304'"),
        (bytes([0, 0, 13, 3]) + WHOLE[4:], "starts with '00000d03'"),
        (bytes([0, 0, 8, 0]), "starts with '00000800'"),
        (WHOLE[:3], "starts with '000008'"),
        (WHOLE[:10], "a header of 16 bytes, got 10"),
        (WHOLE[:-1], r"must have 100 bytes for shape \(7, 4, 3\), got 99; fetch it again"),
        (WHOLE + b"x", "must have 100 bytes .* got 101"),
        (WHOLE[:4] + b"\xff" * 12, "bytes for shape .4294967295"),
        (GZIP[:-9], "whole gzip file"),
        (GZIP[:12] + b"\x00\x11\x22" + GZIP[15:], "whole gzip file"),
        (GZIP[:-1] + b"\xee", "whole gzip file"),
        (gzip.compress(WHOLE[:-1], mtime=0), "must have 100 bytes"),
    ],
)
def test_damaged_files_are_refused(tmp_path, content, said):
    path = tmp_path / "some-idx-ubyte"
    path.write_bytes(content)
    with pytest.raises(InputError, match=said) as caught:
        read_idx(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_missing_files_and_folders_are_refused(tmp_path):
    for path in (tmp_path / "none", tmp_path):
        with pytest.raises(InputError, match=r"must be a readable idx file, got (No such file|Is a dir)"):
            read_idx(path)
