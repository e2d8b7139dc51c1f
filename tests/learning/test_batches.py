"""Batches: published answers of the generator, and batches of each client's own."""

import numpy as np
import pytest

from fedtempo.learning.batches import Batches, philox


@pytest.mark.parametrize(
    ("counter", "key", "words"),
    [
        ([0] * 4, [0] * 2, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
        ([0xFFFFFFFF] * 4, [0xFFFFFFFF] * 2, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
        (
            [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
            [0xA4093822, 0x299F31D0],
            [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
        ),
    ],
)
def test_the_generator_gives_the_published_answers(counter, key, words):
    counter = np.array(counter, dtype=np.uint64)
    philox(counter, np.array(key, dtype=np.uint64))
    assert counter.tolist() == words


def test_batches_depend_on_seed_round_and_client_alone(data):
    batches = Batches(data.offsets, batch_size=24, seed=5)
    rows = batches.draw(np.array([2, 6]), 3, 4)
    np.testing.assert_array_equal(rows[1], batches.draw(np.array([6]), 3, 4)[0])
    assert np.any(rows[1] != batches.draw(np.array([6]), 4, 4)[0])
    assert np.any(rows[1] != Batches(data.offsets, batch_size=24, seed=6).draw(np.array([6]), 3, 4)[0])
    for client, drawn in zip((2, 6), rows, strict=True):
        assert data.offsets[client] <= drawn.min()
        assert drawn.max() < data.offsets[client + 1]
    counts = np.bincount(batches.draw(np.array([0]), 0, 2000).ravel())[: data.sizes[0]]
    expected = 2000 * 24 / data.sizes[0]
    assert np.sum((counts - expected) ** 2 / expected) < data.sizes[0] + 5 * np.sqrt(2 * data.sizes[0])
