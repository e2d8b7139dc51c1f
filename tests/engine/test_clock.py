"""When a round ends: the theory's round times, for members with multiplicities, deadlines and policies' own shares."""

import numpy as np
import pytest

from fedtempo import cohort_round_time
from fedtempo.engine.clock import time_round


@pytest.mark.parametrize("capped", [False, True])
@pytest.mark.parametrize("link", ["paper", "equal", "shared"])
def test_the_clock_agrees_with_the_theory(link, capped):
    rng = np.random.default_rng(0)
    for _ in range(50):
        size = int(rng.integers(1, 7))
        tau, t, counts = rng.exponential(size=size), rng.exponential(size=size), rng.integers(1, 4, size)
        cap = rng.uniform(0.2, 3.0, size) if capped else None
        settings = {"total_bandwidth": 1.3, "link": link, "counts": counts, "bandwidth_cap": cap}
        once = time_round(tau, t, duplicates="physical", **settings).round_time
        assert once == pytest.approx(cohort_round_time(tau, t, 1.3, link=link, bandwidth_cap=cap))
        if not capped:
            draws = np.repeat(np.arange(size), counts)
            twice = time_round(tau, t, duplicates="paper", **settings).round_time
            assert twice == pytest.approx(cohort_round_time(tau[draws], t[draws], 1.3, link=link))


@pytest.mark.parametrize("link", ["paper", "equal", "shared"])
def test_a_deadline_ends_the_round_without_the_late(link):
    tau, t = np.array([0.0, 1.0, 5.0]), np.array([1.0, 1.0, 1.0])
    settings = {"total_bandwidth": 1.0, "link": link, "duplicates": "physical"}
    free = time_round(tau, t, **settings)
    assert not free.late.any()
    cut = time_round(tau, t, **settings, deadline=4.0)
    assert cut.round_time == 4.0
    assert cut.late[2]
    if link == "shared":
        np.testing.assert_array_equal(cut.late, [False, False, True])
    assert not time_round(tau, t, **settings, deadline=100.0).late.any()


def test_shares_of_the_policy_come_first():
    settings = {"total_bandwidth": 1.0, "link": "shared", "duplicates": "physical"}
    timing = time_round(np.array([1.0, 0.0]), np.array([1.0, 1.0]), bandwidth=np.array([0.5, 0.1]), **settings)
    assert timing.round_time == pytest.approx(10.0)


def test_nobody_takes_no_time():
    nobody = np.empty(0)
    assert time_round(nobody, nobody, total_bandwidth=1.0, link="paper", duplicates="paper").round_time == 0.0


def test_a_deadline_on_a_shared_link_with_caps_fails_only_the_late():
    tau, t = np.array([0.0, 1.0, 2.0]), np.array([1.0, 1.0, 1.0])
    settings = {"total_bandwidth": 1.0, "link": "shared", "duplicates": "paper"}
    loose = time_round(tau, t, **settings, bandwidth_cap=np.full(3, 9.0), deadline=2.5)
    free = time_round(tau, t, **settings, deadline=2.5)
    assert loose.late.tolist() == free.late.tolist() == [False, False, True]
    assert loose.round_time == 2.5
    tight = time_round(tau, t, **settings, bandwidth_cap=np.array([0.5, 0.25, 9.0]), deadline=3.9)
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
