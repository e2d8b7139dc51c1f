"""Of an update the largest numbers travel, in the bytes that are counted."""

import numpy as np
import pytest

from fedtempo.checks import InputError
from fedtempo.learning.sparsification import (
    HEADER,
    count_sent,
    keep_largest,
    pack_largest,
    sparse_bytes,
    sparse_share,
    unpack_largest,
)


def update_of(size, seed=0):
    return np.random.default_rng(seed).standard_normal(size).astype(np.float32)


def cut(update, share):
    rows = update.copy()[None]
    keep_largest(rows, share)
    return rows[0]


@pytest.mark.parametrize("share", [1e-6, 0.01, 0.1, 0.5, 1.0])
@pytest.mark.parametrize("size", [1, 2, 7, 256, 1000])
def test_what_travels_is_what_is_kept(size, share):
    update = update_of(size)
    packed = pack_largest(update, share)
    assert len(packed) == sparse_bytes(count_sent(share, size), size)
    np.testing.assert_array_equal(unpack_largest(packed, share, size), cut(update, share))


@pytest.mark.parametrize("share", [0.001, 0.03, 0.4, 1.0])
def test_no_number_that_is_dropped_is_larger_than_one_that_is_kept(share):
    update = update_of(777, seed=3)
    kept = cut(update, share)
    sent = kept != 0
    assert sent.sum() == count_sent(share, 777) == max(1, round(share * 777))
    np.testing.assert_array_equal(kept[sent], update[sent])
    assert np.abs(update[~sent]).max(initial=0.0) <= np.abs(update[sent]).min()


def test_equal_numbers_are_as_many_as_are_counted():
    assert np.count_nonzero(cut(np.ones(100, np.float32), 0.07)) == 7


def test_places_are_a_list_where_few_travel_and_marks_where_many_do():
    assert sparse_bytes(10, 1000) == HEADER + 13 + 40, "ten places of ten bits"
    assert sparse_bytes(500, 1000) == HEADER + 125 + 2000, "a thousand marks"
    assert sparse_share(0.01, 1000, buffers=100) == (HEADER + 13 + 40 + 400) / 4400
    assert sparse_share(1.0, 1000) > 1, "all of them travel in more than they are"


@pytest.mark.parametrize("share", [0.05, 0.6])
@pytest.mark.parametrize("place", [0, 2, 4, 8, HEADER])
def test_bytes_that_nobody_packed_are_refused(place, share):
    packed = bytearray(pack_largest(update_of(100), share))
    for wrong in (packed[:-1], bytes(packed) + b"0"):
        with pytest.raises(InputError, match="an upload must have"):
            unpack_largest(bytes(wrong), share, 100)
    packed[place] ^= 0xFF
    with pytest.raises(InputError, match=r"of an upload must be|an upload must begin"):
        unpack_largest(bytes(packed), share, 100)
