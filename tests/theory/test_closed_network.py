"""Clients in flight as a closed queueing network: limits, Euler's theorem, and a simulated link."""

import heapq

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedtempo import InputError
from fedtempo.theory.closed_network import fewest_that_fill, seconds_between, update_time

SECONDS = st.floats(1e-6, 1e6)


@given(SECONDS, SECONDS)
def test_one_in_flight_waits_for_nobody(compute, upload):
    found = update_time(1, compute, upload)
    assert found.seconds == pytest.approx(compute + upload)
    assert (found.upload, found.compute) == (1, 1)


@given(st.integers(1, 60), SECONDS, SECONDS)
def test_a_second_of_each_costs_its_derivative(in_flight, compute, upload):
    found = update_time(in_flight, compute, upload)
    assert found.seconds == pytest.approx(found.upload * upload + found.compute * compute)
    for step in ((1e-5 * compute, 0.0), (0.0, 1e-5 * upload)):
        more, less = (update_time(in_flight, compute + s * step[0], upload + s * step[1]).seconds for s in (1, -1))
        slope = found.compute if step[0] else found.upload
        assert (more - less) / 2 == pytest.approx(slope * sum(step), rel=1e-4, abs=1e-9 * found.seconds)


@given(st.integers(1, 60), SECONDS, SECONDS)
def test_more_in_flight_are_faster_up_to_the_bottleneck(in_flight, compute, upload):
    some, more = (update_time(m, compute, upload).seconds for m in (in_flight, in_flight + 1))
    assert more <= some * (1 + 1e-12)
    assert some >= max(upload, (compute + upload) / in_flight) * (1 - 1e-12)


@given(st.integers(1, 60), SECONDS, SECONDS)
def test_all_numbers_in_flight_are_found_in_one_pass(most, compute, upload):
    expected = [update_time(m, compute, upload).seconds for m in range(1, most + 1)]
    np.testing.assert_allclose(seconds_between(most, compute, upload), expected, rtol=1e-12)


def test_a_busy_link_is_all_that_counts_and_an_idle_one_is_shared_by_all():
    busy = update_time(1000, 1.0, 1.0)
    assert (busy.seconds, busy.upload) == pytest.approx((1.0, 1.0), abs=1e-6)
    assert busy.compute == pytest.approx(0.0, abs=1e-6)
    idle = update_time(10, 1e6, 1.0)
    assert (idle.seconds * 10, idle.upload * 10, idle.compute * 10) == pytest.approx((1e6 + 1, 1, 1), rel=1e-3)


def test_a_link_that_is_simulated_takes_as_long():
    """Uploads in exponential times, first come, first served; how long clients compute may have any distribution."""
    rng, in_flight, compute, upload, updates = np.random.default_rng(1), 5, 2.0, 0.7, 40_000
    ready = list(rng.uniform(0, 2 * compute, in_flight))
    heapq.heapify(ready)
    free = 0.0
    for _ in range(updates):
        free = max(free, heapq.heappop(ready)) + rng.exponential(upload)
        heapq.heappush(ready, free + rng.uniform(0, 2 * compute))
    assert free / updates == pytest.approx(update_time(in_flight, compute, upload).seconds, rel=0.02)


@given(SECONDS, SECONDS, st.integers(1, 40), st.floats(0.01, 0.99))
def test_the_fewest_that_fill_the_link_do_and_one_less_does_not(compute, upload, most, busy):
    found = fewest_that_fill(compute, upload, most, busy)
    assert 1 <= found <= most
    shares = [upload / update_time(m, compute, upload).seconds for m in (found - 1, found) if m]
    assert found == most or shares[-1] >= busy * (1 - 1e-12)
    assert found == 1 or shares[0] < busy


def test_as_many_are_in_flight_as_compute_while_one_uploads():
    assert fewest_that_fill(0.0, 1.0, 100, 0.99) == 1
    found = [fewest_that_fill(ratio, 1.0, 1000, 0.9) / (1 + ratio) for ratio in (1.0, 3.0, 10.0, 30.0)]
    assert found == sorted(found, reverse=True), "a wide pipe is filled more evenly"
    assert 1 <= found[-1] <= found[0] <= 2


@pytest.mark.parametrize("wrong", [(0, 1.0, 1.0), (1, -1.0, 1.0), (1, 1.0, 0.0), (1, 1.0, np.nan)])
def test_what_is_no_network_is_refused(wrong):
    with pytest.raises(InputError):
        update_time(*wrong)
