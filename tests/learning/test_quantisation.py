"""Stochastic rounding is unbiased, has the noise that it says, and travels in the bytes that are counted."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedtempo.checks import InputError
from fedtempo.learning.memory import Memory
from fedtempo.learning.quantisation import (
    BLOCK,
    HEADER,
    Quantiser,
    noise_of,
    unpack,
    upload_bytes,
    upload_share,
)
from fedtempo.theory.bits import BITS

ROUNDED = BITS[:-1]


def update_of(size, seed=0, scale=1.0):
    return (np.random.default_rng(seed).standard_normal(size) * scale).astype(np.float32)


def rounded(update, bits, seed=0, client=7, round_index=3):
    copy = update.copy()[None]
    noise = Quantiser(seed).round(copy, np.array([bits]), np.array([client]), round_index)
    return copy[0], noise[0]


@pytest.mark.parametrize("bits", ROUNDED)
@pytest.mark.parametrize("size", [1, 5, BLOCK, BLOCK + 1, 1000])
def test_what_travels_is_what_is_rounded(bits, size):
    update = update_of(size)
    packed = Quantiser(0).pack(update, bits, 7, 3)
    assert len(packed) == upload_bytes(bits, size)
    np.testing.assert_array_equal(unpack(packed, bits, size), rounded(update, bits)[0])


def test_thirty_two_bits_travel_as_they_are():
    update = update_of(300)
    np.testing.assert_array_equal(unpack(Quantiser(0).pack(update, 32, 7, 3), 32, 300), update)
    np.testing.assert_array_equal(rounded(update, 32)[0], update)
    assert upload_bytes(32, 300) == 1200
    assert upload_share(32, 300, buffers=7) == 1.0


def test_bytes_count_header_scales_and_levels():
    assert upload_bytes(3, 1000) == HEADER + 4 * 4 + 375
    assert upload_share(8, 1000, buffers=100) == (HEADER + 16 + 1000 + 400) / 4400


@pytest.mark.parametrize("bits", ROUNDED)
def test_rounding_has_no_bias_and_the_noise_that_it_says(bits):
    update = update_of(700, seed=1)
    draws = np.array([rounded(update, bits, round_index=r)[0] for r in range(2000)], dtype=np.float64)
    omega = noise_of(update[None])[0][BITS.index(bits)]
    square = float((update.astype(np.float64) ** 2).sum())
    errors = draws - update
    assert np.mean((errors**2).sum(axis=1)) == pytest.approx(omega * square, rel=0.02)
    # The mean of n draws is off by √(ω ‖x‖²/n) in norm.
    assert np.linalg.norm(errors.mean(axis=0)) == pytest.approx(np.sqrt(omega * square / 2000), rel=0.15)


def test_the_mean_over_all_outcomes_is_the_update():
    """Enumeration: each number is one of two levels, by the fraction between them."""
    update, bits = np.array([0.3, -1.0, 0.77, 0.0], dtype=np.float32), 3
    size = np.abs(update.astype(np.float64)) * 3
    low, fraction = np.floor(size), size - np.floor(size)
    mean, square = np.zeros(4), 0.0
    for ups in product((0, 1), repeat=4):
        chance = np.prod(np.where(ups, fraction, 1 - fraction))
        value = np.sign(update) * (low + ups) / 3
        mean += chance * value
        square += chance * float(((value - update) ** 2).sum())
    np.testing.assert_allclose(mean, update, atol=1e-9)
    omega = noise_of(update[None])[0][BITS.index(bits)]
    assert omega * float((update.astype(np.float64) ** 2).sum()) == pytest.approx(square, rel=1e-5)
    seen = {tuple(np.rint(rounded(update, bits, round_index=r)[0] * 3).astype(int)) for r in range(300)}
    assert seen == {(0, -3, 2, 0), (1, -3, 2, 0), (0, -3, 3, 0), (1, -3, 3, 0)}


def test_draws_depend_on_seed_client_and_round_alone():
    update = update_of(500)
    same, other = rounded(update, 4)[0], update_of(500, seed=5)
    together = np.array([other, update])
    Quantiser(0).round(together, np.array([2, 4]), np.array([1, 7]), 3)
    np.testing.assert_array_equal(together[1], same)
    for change in ({"seed": 1}, {"client": 8}, {"round_index": 4}):
        assert not np.array_equal(rounded(update, 4, **change)[0], same)


def test_more_bits_are_less_noise():
    noise = noise_of(update_of(4000)[None])[0]
    assert (np.diff(noise) < 0).all()
    assert noise[-1] == 0
    assert noise[BITS.index(8)] < 2e-4


@pytest.mark.parametrize("bits", ROUNDED)
def test_zeros_and_extreme_numbers(bits):
    for update in (np.zeros(300, np.float32), np.full(300, 1e-44, np.float32), np.full(300, 3e38, np.float32)):
        value, noise = rounded(update, bits)
        np.testing.assert_array_equal(value, update)
        assert noise[BITS.index(bits)] == pytest.approx(0, abs=1e-6)
    broken = update_of(300)
    broken[9] = np.nan
    value, noise = rounded(broken, bits)
    np.testing.assert_array_equal(value, broken)
    assert np.isnan(noise[0])


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=40),
    st.sampled_from(ROUNDED),
    st.integers(0, 2**40),
)
def test_a_number_goes_to_one_of_the_two_levels_next_to_it(numbers, bits, client):
    update = np.array(numbers, dtype=np.float32)
    value, _ = rounded(update, bits, client=client)
    step = float(np.abs(update).max()) / (2 ** (bits - 1) - 1)
    assert (np.abs(value.astype(np.float64) - update) <= step * (1 + 1e-6) + 1e-30).all()
    assert (value * update >= 0).all()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda data: data[:-1], "bytes"),
        (lambda data: data + b"\0", "bytes"),
        (lambda data: b"xx" + data[2:], "header"),
        (lambda data: data[:2] + b"\x08" + data[3:], "header"),
        (lambda data: data[:4] + b"\0\0\0\1" + data[8:], "header"),
        (lambda data: data[:8] + np.float32(np.nan).tobytes() + data[12:], "scales"),
        (lambda data: data[:8] + np.float32(np.inf).tobytes() + data[12:], "scales"),
        (lambda data: data[:8] + np.float32(-1).tobytes() + data[12:], "scales"),
        (lambda data: data[:12] + b"\xff" + data[13:], "levels"),
    ],
)
def test_bytes_that_nobody_packed_are_refused(change, words):
    data = Quantiser(0).pack(update_of(100), 4, 7, 3)
    with pytest.raises(InputError, match=words):
        unpack(change(data), 4, 100)


def test_a_memory_of_eight_bits_holds_uploads_of_eight_bits_as_they_arrived():
    value, _ = rounded(update_of(1000), 8)
    np.testing.assert_allclose(Memory(8).keep(0, value), value, rtol=1e-6)
