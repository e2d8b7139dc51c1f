"""The memory of eight bits: how far it is off, and what it takes."""

import numpy as np
import pytest

from fedtempo.checks import InputError
from fedtempo.learning.memory import Memory
from support.rounds import carry_over


@pytest.mark.parametrize("size", [1, 255, 256, 257, 1000])
def test_a_memory_of_eight_bits_is_off_by_half_a_step_of_its_block_and_takes_a_quarter(size):
    rng = np.random.default_rng(size)
    direction = (rng.standard_normal(size) * np.repeat(10.0 ** np.arange(-3, 1), 256)[:size]).astype(np.float32)
    memory, whole = Memory(8), Memory(32)
    assert memory.direction(3) is None
    kept = memory.keep(3, direction)
    np.testing.assert_array_equal(memory.direction(3), kept)
    np.testing.assert_array_equal(whole.keep(3, direction), direction)
    for start in range(0, size, 256):
        part = direction[start : start + 256]
        assert np.abs(kept[start : start + 256] - part).max() <= np.abs(part).max() / 254 * (1 + 1e-5)
    if size == 1000:
        assert memory.nbytes < 0.27 * whole.nbytes
    other = carry_over(memory, Memory(8))
    np.testing.assert_array_equal(other.direction(3), kept)
    assert list(other) == [3]


def test_a_memory_of_eight_bits_keeps_what_is_zero_and_says_what_is_no_number():
    memory = Memory(8)
    np.testing.assert_array_equal(memory.keep(0, np.zeros(300, np.float32)), np.zeros(300))
    assert np.isnan(memory.keep(0, np.full(3, np.nan, np.float32))).all()
    with pytest.raises(InputError, match="memory_bits must be one of 8, 32, got 4"):
        Memory(4)
