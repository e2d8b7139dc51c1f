"""Rounding is unbiased, has the noise that it says, and travels in the bytes that are counted."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedtempo.checks import InputError
from fedtempo.learning.quantisation import (
    BLOCK,
    HEADER,
    Quantiser,
    _decode,
    _encode,
    upload_bytes,
    upload_share,
)
from fedtempo.theory.bits import BITS, USUAL_NOISE

ROUNDED = BITS[:-1]
TURN = np.array([[1, 1, 1, 1], [1, -1, 1, -1], [1, 1, -1, -1], [1, -1, -1, 1]]) / 2  # H/√n of four numbers


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
    np.testing.assert_array_equal(Quantiser(0).unpack(packed, bits, size, 7, 3), rounded(update, bits)[0])


def test_thirty_two_bits_travel_as_they_are():
    update = update_of(300)
    packed = Quantiser(0).pack(update, 32, 7, 3)
    np.testing.assert_array_equal(Quantiser(0).unpack(packed, 32, 300, 7, 3), update)
    np.testing.assert_array_equal(rounded(update, 32)[0], update)
    assert upload_bytes(32, 300) == 1200
    assert upload_share(32, 300, buffers=7) == 1.0


def test_bytes_count_header_scales_and_levels():
    assert upload_bytes(3, 1000) == HEADER + 4 * 4 + 384, "the last block of 232 is filled up to 256"
    assert upload_bytes(3, 256 + 33) == HEADER + 4 * 2 + 3 * (256 + 64) // 8
    assert upload_share(8, 1000, buffers=100) == (HEADER + 16 + 1024 + 400) / 4400


@pytest.mark.parametrize("bits", ROUNDED)
def test_rounding_has_no_bias_and_the_noise_that_it_says(bits):
    update = update_of(700, seed=1)
    draws = [rounded(update, bits, round_index=r) for r in range(2000)]
    errors = np.array([value for value, _ in draws], dtype=np.float64) - update
    omega = np.mean([noise[BITS.index(bits)] for _, noise in draws])
    square = float((update.astype(np.float64) ** 2).sum())
    assert np.mean((errors**2).sum(axis=1)) == pytest.approx(omega * square, rel=0.02)
    # The mean of n draws is off by √(ω ‖x‖²/n) in norm.
    assert np.linalg.norm(errors.mean(axis=0)) == pytest.approx(np.sqrt(omega * square / 2000), rel=0.15)


@pytest.mark.parametrize("bits", [2, 3])
def test_the_mean_over_all_outcomes_is_the_update(bits):
    """Enumeration: all signs of a block of four, and for each number all of u, at a thousand even places."""
    update, places, mean, steps = np.array([0.3, -1.0, 0.77, 0.0], np.float32), 1000, np.zeros(4), 2.0**bits - 1
    rotated, scales, codes = np.empty(4, np.float32), np.empty(1, np.float32), np.empty(4, np.int64)
    for signs in product((0, 1), repeat=4):
        turned = (TURN @ (update * (1 - 2 * np.array(signs)))).astype(np.float32)
        scales[0] = np.abs(turned).max()
        total = np.zeros(4)
        for u in (np.arange(places) + 0.5) / places - 0.5:
            _encode(turned, scales, steps, np.full(4, u), codes)
            _decode(codes, scales, steps, np.full(4, u), rotated)
            assert (np.abs(rotated - turned) <= scales[0] / steps * (1 + 1e-6)).all()
            total += rotated
        mean += (1 - 2 * np.array(signs)) * (TURN.T @ (total / places)) / 16
    np.testing.assert_allclose(mean, update, atol=2 / (steps * places))


def test_each_outcome_is_one_of_those_of_the_definition():
    update = np.array([0.3, -1.0, 0.77, 0.0], dtype=np.float32)
    all_signs = [np.array(signs) for signs in product((-1.0, 1.0), repeat=4)]
    seen = set()
    for r in range(300):
        value, noise = rounded(update, 2, round_index=r)
        fits = []
        for place, signs in enumerate(all_signs):
            turned, sent = TURN @ (signs * update), TURN @ (signs * value)
            step = 2 * np.abs(turned).max() / 3
            omega = 4 * step**2 / 12 / float(update @ update)
            near = np.abs(sent - turned).max() <= step / 2 * (1 + 1e-5)
            if near and noise[0] == pytest.approx(omega, rel=1e-5):
                fits.append(place)
        assert fits
        seen.update(fits)
    assert len(seen) == 16, "all signs are drawn"


def test_draws_depend_on_seed_client_and_round_alone():
    update = update_of(500)
    same, other = rounded(update, 4)[0], update_of(500, seed=5)
    together = np.array([other, update])
    Quantiser(0).round(together, np.array([2, 4]), np.array([1, 7]), 3)
    np.testing.assert_array_equal(together[1], same)
    for change in ({"seed": 1}, {"client": 8}, {"round_index": 4}):
        assert not np.array_equal(rounded(update, 4, **change)[0], same)


def test_more_bits_are_less_noise():
    noise = Quantiser(0).noise(update_of(4000), 7, 3)
    assert (np.diff(noise) < 0).all()
    assert noise[-1] == 0
    assert noise[BITS.index(8)] < 2e-4


@pytest.mark.parametrize("bits", ROUNDED)
def test_zeros_and_extreme_numbers(bits):
    value, noise = rounded(np.zeros(300, np.float32), bits)
    np.testing.assert_array_equal(value, 0)
    np.testing.assert_array_equal(noise, 0)
    for size in (1e-40, 1e17, 1e30):
        update = update_of(300, scale=size)
        value, noise = rounded(update, bits)
        assert 0 < noise[BITS.index(bits)] < 0.5
        assert np.abs(value - update).max() < 3 * size
    broken = update_of(300)
    broken[9] = np.nan
    for update in (broken, np.full(300, 3e38, np.float32)):
        value, noise = rounded(update, bits)
        np.testing.assert_array_equal(value, update)
        assert np.isnan(noise[0]), "nothing is known of the noise of numbers that leave single precision"


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=40),
    st.sampled_from(ROUNDED),
    st.integers(0, 2**40),
)
def test_no_outcome_is_farther_than_half_a_step_in_each_rotated_number(numbers, bits, client):
    update = np.array(numbers, dtype=np.float32)
    value, noise = rounded(update, bits, client=client)
    size, norm = 1 << (update.size - 1).bit_length(), np.linalg.norm(update.astype(np.float64))
    assert noise[BITS.index(bits)] <= update.size / (3 * (2**bits - 1) ** 2) * (1 + 1e-5), (
        "no rotated number exceeds the norm"
    )
    error = np.linalg.norm(value.astype(np.float64) - update)
    assert error <= np.sqrt(size) * norm / (2**bits - 1) + 1e-5 * norm + 1e-30


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
    ],
)
def test_bytes_that_nobody_packed_are_refused(change, words):
    data = Quantiser(0).pack(update_of(100), 4, 7, 3)
    with pytest.raises(InputError, match=words):
        Quantiser(0).unpack(change(data), 4, 100, 7, 3)


@pytest.mark.parametrize("bits", ROUNDED)
def test_whatever_levels_arrive_are_numbers_within_the_scales(bits):
    data = Quantiser(0).pack(update_of(300), bits, 7, 3)
    head = HEADER + 4 * 2
    garbage = data[:head] + np.random.default_rng(0).bytes(len(data) - head)
    update = Quantiser(0).unpack(garbage, bits, 300, 7, 3)
    largest = np.frombuffer(data, "<f4", 2, HEADER).max()
    assert np.linalg.norm(update) <= 1.5 * largest * np.sqrt(300)


def test_usual_noise_is_that_of_normal_numbers():
    numbers = update_of(1 << 16)
    np.testing.assert_allclose(Quantiser(0).noise(numbers, 7, 3), USUAL_NOISE, rtol=0.02)


def test_numbers_much_larger_than_others_cost_no_more_noise():
    """Without rotation the scale of a block is its largest number, beside which all others are rounded away."""
    update = update_of(BLOCK)
    update[3] = 100.0
    even = Quantiser(0).noise(update_of(BLOCK), 7, 3)
    assert Quantiser(0).noise(update, 7, 3)[0] < 1.5 * even[0]
