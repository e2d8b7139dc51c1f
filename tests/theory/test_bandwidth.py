"""Shares and round times of cohorts: eqs. 3-4 and the three kinds of link."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import brentq, linprog

from fedtempo import InputError, allocate_bandwidth, cohort_round_time

times = st.floats(1e-6, 1e6)
cohorts = st.integers(1, 8).flatmap(
    lambda k: st.tuples(
        st.lists(st.one_of(st.just(0.0), times), min_size=k, max_size=k),
        st.lists(times, min_size=k, max_size=k),
        st.lists(st.floats(1e-2, 1e2), min_size=k, max_size=k),
        st.floats(1e-3, 1e3),
    )
)


@given(cohorts)
def test_all_finish_together_and_shares_sum_to_the_total(cohort):
    tau, t, _, total = map(np.array, cohort)
    allocation = allocate_bandwidth(tau, t, float(total))
    assert isinstance(allocation.round_time, float)
    np.testing.assert_allclose(allocation.bandwidth.sum(), total, rtol=1e-12)
    np.testing.assert_allclose(tau + t / allocation.bandwidth, allocation.round_time, rtol=1e-9)


@pytest.mark.parametrize("spread", [0.5, 3.0, 8.0])
def test_many_cohorts_at_once_agree_with_a_root_find_each(spread):
    rng = np.random.default_rng(1)
    tau, t = 10 ** rng.uniform(-spread / 2, spread / 2, (2, 300, 7))
    allocation = allocate_bandwidth(tau, t, 2.0)
    for row in range(300):
        late, low = tau[row].max(), t[row][tau[row].argmax()] / 4
        window = brentq(
            lambda x, row=row, late=late: np.sum(t[row] / (x + late - tau[row])) - 2.0, low, t[row].sum(), xtol=1e-300
        )
        assert allocation.round_time[row] == pytest.approx(late + window, rel=1e-12)


def test_cohorts_may_have_any_leading_shape():
    rng = np.random.default_rng(2)
    tau, t = rng.exponential(size=(2, 3, 4, 5))
    allocation = allocate_bandwidth(tau, t)
    assert allocation.round_time.shape == (3, 4)
    assert allocation.bandwidth.shape == (3, 4, 5)
    assert allocation.round_time[2, 1] == pytest.approx(allocate_bandwidth(tau[2, 1], t[2, 1]).round_time, rel=1e-13)
    assert allocate_bandwidth(np.empty((0, 5)), np.empty((0, 5))).bandwidth.shape == (0, 5)


@pytest.mark.parametrize("scale", [1e-200, 1e-160, 1e160, 1e200])
def test_extreme_units_do_no_harm(scale):
    allocation = allocate_bandwidth(np.array([0.0, 1.0, 2.0]) * scale, np.array([1.0, 2.0, 3.0]) * scale)
    plain = allocate_bandwidth([0.0, 1.0, 2.0], [1.0, 2.0, 3.0])
    assert allocation.round_time / scale == pytest.approx(plain.round_time, rel=1e-12)
    np.testing.assert_allclose(allocation.bandwidth, plain.bandwidth, rtol=1e-12)


def test_closed_forms():
    assert allocate_bandwidth([3.0], [2.0], 4.0).round_time == pytest.approx(3.5)  # K = 1: τ + t/f_tot
    assert allocate_bandwidth([0.5] * 3, [1.0, 2.0, 3.0], 2.0).round_time == pytest.approx(3.5)  # equal τ: τ + Σt/f_tot
    # Two clients: t₁/(T-τ₁) + t₂/T = 1 with τ₁ = t₁ = t₂ = 1 is T² - 3T + 1 = 0.
    assert allocate_bandwidth([1.0, 0.0], [1.0, 1.0]).round_time == pytest.approx((3 + 5**0.5) / 2)


@given(cohorts)
def test_shared_is_never_later_than_paper_nor_paper_than_equal(cohort):
    tau, t, cap, total = map(np.array, cohort)
    for own_link in (None, cap):
        shared, paper, equal = (
            cohort_round_time(tau, t, float(total), link=link, bandwidth_cap=own_link)
            for link in ("shared", "paper", "equal")
        )
        assert shared <= paper * (1 + 1e-12)
        assert paper <= equal * (1 + 1e-12)


def test_links_are_ordered_for_every_cohort_of_a_small_fleet(small_fleet):
    for size in (1, 2, 3):
        members = np.array(list(itertools.product(range(4), repeat=size)))
        tau, t = small_fleet.compute_time[members], small_fleet.upload_time[members]
        shared, paper, equal = (cohort_round_time(tau, t, 1.7, link=link) for link in ("shared", "paper", "equal"))
        assert np.all(shared <= paper * (1 + 1e-13))
        assert np.all(paper <= equal * (1 + 1e-13))


def fair_sharing_end(tau, t, total):
    """Run a link that gives equal rates to all who are ready, event by event."""
    left, now = np.array(t), 0.0
    while np.any(left > 0):
        ready = (tau <= now) & (left > 0)
        arrivals = tau[tau > now]
        step = arrivals.min() - now if arrivals.size else np.inf
        if ready.any():
            rate = total / ready.sum()
            step = min(step, left[ready].min() / rate)
            left[ready] -= rate * step
            left[left < 1e-12 * t] = 0.0
        now += step
    return now


def test_a_fair_link_and_a_queue_end_at_the_closed_form_of_shared():
    rng = np.random.default_rng(3)
    for _ in range(200):
        tau, t = rng.exponential(size=(2, 6))
        closed = cohort_round_time(tau, t, 1.5, link="shared")
        assert closed == pytest.approx(fair_sharing_end(tau, t, 1.5), rel=1e-9)
        end = 0.0
        for i in np.argsort(tau):  # first come, first served
            end = max(end, tau[i]) + t[i] / 1.5
        assert closed == pytest.approx(end, rel=1e-12)


def earliest_end(tau, t, cap, total):
    """Return the earliest end of any schedule of a capped link, as a linear program over the intervals between τ's."""
    starts = np.unique(tau)
    k, m = len(t), len(starts)
    lengths = np.append(np.diff(starts), np.nan)  # the last one is the unknown, variable number k m
    objective = np.zeros(k * m + 1)
    objective[-1] = 1.0
    sends, limits, rights = np.zeros((k, k * m + 1)), [], []
    bounds = [(0, 0 if tau[j] > starts[i] else None) for j in range(k) for i in range(m)] + [(0, None)]
    for j in range(k):
        sends[j, j * m : (j + 1) * m] = 1.0
    for i in range(m):
        for rate, columns in [(total, range(i, k * m, m)), *((cap[j], [j * m + i]) for j in range(k))]:
            row = np.zeros(k * m + 1)
            row[list(columns)] = 1.0
            if i == m - 1:
                row[-1] = -rate
            limits.append(row)
            rights.append(0.0 if i == m - 1 else rate * lengths[i])
    found = linprog(objective, A_ub=limits, b_ub=rights, A_eq=sends, b_eq=t, bounds=bounds)
    assert found.success
    return starts[-1] + found.fun


def test_a_capped_shared_link_ends_as_early_as_any_schedule_can():
    rng = np.random.default_rng(4)
    for _ in range(60):
        tau, t, cap = rng.exponential(size=5), rng.exponential(size=5), rng.uniform(0.1, 1.2, 5)
        closed = cohort_round_time(tau, t, 1.0, link="shared", bandwidth_cap=cap)
        assert closed == pytest.approx(earliest_end(tau, t, cap, 1.0), rel=1e-7)


def test_caps_bind_or_do_not():
    tau, t = np.array([0.0, 1.0]), np.array([1.0, 1.0])
    for link in ("paper", "equal", "shared"):
        free = cohort_round_time(tau, t, link=link)
        assert cohort_round_time(tau, t, link=link, bandwidth_cap=[1.0, 1.0]) == pytest.approx(free)
        assert cohort_round_time(tau, t, link=link, bandwidth_cap=[1.0, 0.1]) == pytest.approx(11.0)
    capped = allocate_bandwidth(tau, t, 1.0, bandwidth_cap=[1.0, 0.1])
    np.testing.assert_allclose(capped.bandwidth, [1 / 11, 0.1])


@pytest.mark.parametrize(
    ("tau", "t", "total", "said"),
    [
        ([], [], 1.0, "at least one member"),
        ([0.0], [0.0], 1.0, "upload_time must be positive"),
        ([-1.0], [1.0], 1.0, "compute_time must be zero or positive"),
        ([np.nan], [1.0], 1.0, "compute_time"),
        ([0.0], [np.inf], 1.0, "upload_time"),
        ([0.0, 1.0], [1.0, 1.0, 1.0], 1.0, "one entry for each member"),
        ([0.0], [1.0], 0.0, "total_bandwidth must be positive"),
        ([0.0], [1.0], None, "total_bandwidth must be positive"),
        (None, [1.0], 1.0, "compute_time must hold numbers"),
        (["fast"], [1.0], 1.0, "compute_time must hold numbers"),
        ([[0.0, 1.0], [1.0]], [1.0], 1.0, "compute_time must hold numbers"),
    ],
)
def test_bad_times_are_refused(tau, t, total, said):
    with pytest.raises(InputError, match=said):
        allocate_bandwidth(tau, t, total)
