"""When a round ends: the theory's round times, for members with multiplicities, deadlines and policies' own shares."""

from dataclasses import replace

import numpy as np
import pytest

from fedtempo import cohort_round_time
from fedtempo.engine.clock import Uploads, time_round


@pytest.mark.parametrize("capped", [False, True])
@pytest.mark.parametrize("link", ["paper", "equal", "shared"])
def test_the_clock_agrees_with_the_theory(link, capped):
    rng = np.random.default_rng(0)
    for _ in range(50):
        size = int(rng.integers(1, 7))
        tau, t, counts = rng.exponential(size=size), rng.exponential(size=size), rng.integers(1, 4, size)
        cap = rng.uniform(0.2, 3.0, size) if capped else None
        uploads = Uploads(ready_time=tau, upload_time=t, counts=counts, bandwidth_cap=cap)
        settings = {"total_bandwidth": 1.3, "link": link}
        once = time_round(uploads, duplicates="physical", **settings).round_time
        assert once == pytest.approx(cohort_round_time(tau, t, 1.3, link=link, bandwidth_cap=cap))
        if not capped:
            draws = np.repeat(np.arange(size), counts)
            twice = time_round(uploads, duplicates="paper", **settings).round_time
            assert twice == pytest.approx(cohort_round_time(tau[draws], t[draws], 1.3, link=link))


@pytest.mark.parametrize("link", ["paper", "equal", "shared"])
def test_a_deadline_ends_the_round_without_the_late(link):
    uploads = Uploads(ready_time=np.array([0.0, 1.0, 5.0]), upload_time=np.ones(3))
    settings = {"total_bandwidth": 1.0, "link": link, "duplicates": "physical"}
    free = time_round(uploads, **settings)
    assert not free.late.any()
    cut = time_round(uploads, **settings, deadline=4.0)
    assert cut.round_time == 4.0
    assert cut.late[2]
    if link == "shared":
        np.testing.assert_array_equal(cut.late, [False, False, True])
    assert not time_round(uploads, **settings, deadline=100.0).late.any()


def test_shares_of_the_policy_come_first():
    settings = {"total_bandwidth": 1.0, "link": "shared", "duplicates": "physical"}
    uploads = Uploads(ready_time=np.array([1.0, 0.0]), upload_time=np.ones(2), bandwidth=np.array([0.5, 0.1]))
    timing = time_round(uploads, **settings)
    assert timing.round_time == pytest.approx(10.0)


def test_nobody_takes_no_time():
    nobody = Uploads(ready_time=np.empty(0), upload_time=np.empty(0))
    assert time_round(nobody, total_bandwidth=1.0, link="paper", duplicates="paper").round_time == 0.0


def test_a_deadline_on_a_shared_link_with_caps_fails_only_the_late():
    plain = Uploads(ready_time=np.array([0.0, 1.0, 2.0]), upload_time=np.ones(3))
    settings = {"total_bandwidth": 1.0, "link": "shared", "duplicates": "paper"}
    loose = time_round(replace(plain, bandwidth_cap=np.full(3, 9.0)), **settings, deadline=2.5)
    free = time_round(plain, **settings, deadline=2.5)
    assert loose.late.tolist() == free.late.tolist() == [False, False, True]
    assert loose.round_time == 2.5
    tight = time_round(replace(plain, bandwidth_cap=np.array([0.5, 0.25, 9.0])), **settings, deadline=3.9)
    assert tight.late.tolist() == [False, True, False]  # at 2; at 5; at 2 + 1/0.75 = 3.3


def test_in_turn_nothing_is_lost_and_nobody_exceeds_a_cap():
    from fedtempo.engine.clock import _in_turn

    rng = np.random.default_rng(2)
    for _ in range(200):
        size = int(rng.integers(1, 7))
        tau, work, cap = rng.exponential(size=size), rng.exponential(size=size), rng.uniform(0.1, 2.0, size)
        finish = _in_turn(tau, work, 1.3, cap)
        assert np.all(finish >= tau + work / np.minimum(cap, 1.3) - 1e-9)
        best = cohort_round_time(tau, work, 1.3, link="shared", bandwidth_cap=cap)
        assert best - 1e-9 <= finish.max() <= tau.max() + work.sum() / 1.3 + (work / cap).max()
