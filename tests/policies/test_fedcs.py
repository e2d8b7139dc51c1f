"""FedCS: the greedy choice against the paper's listing, its deadline and its candidates."""

import numpy as np
import pytest

from fedtempo import Fleet
from fedtempo.api.simulate import simulate
from fedtempo.policies.fedcs import FedCS, select_greedily
from fedtempo.policies.policy import RoundContext
from support.rounds import TIMES, context, equal_fleet, inclusion_of, make


def greedy_of_the_paper(download, compute, upload, deadline):
    """Return the members as the paper's listing finds them, trying every candidate."""
    left, chosen, theta = list(range(len(upload))), [], 0.0

    def multicast(members):
        return max((download[i] for i in members), default=0.0)

    while left:

        def prolonged(k, theta=theta, chosen=tuple(chosen)):
            longer = multicast([*chosen, k]) - multicast(chosen)
            return longer + upload[k] + max(0.0, compute[k] - theta)

        x = min(left, key=prolonged)
        left.remove(x)
        longer = theta + upload[x] + max(0.0, compute[x] - theta)
        if multicast([*chosen, x]) + longer <= deadline:
            theta = longer
            chosen.append(x)
    return chosen


def test_fedcs_by_hand():
    """Computing 1, 5, 2, 9 s and uploading 2, 1, 4, 1 s.

    First client 0, ready at 1 and done at 3 (it adds 3, the others 6, 6, 10). Then 1 adds 1 + 2 = 3, client 2 adds 4
    and 3 adds 7: client 1 is done at 6. Then 2 and 3 both add 4: client 2, the first, is done at 10; then 3 adds 1.
    """
    compute, upload = np.array([1.0, 5.0, 2.0, 9.0]), np.array([2.0, 1.0, 4.0, 1.0])
    for deadline, places, seconds in (
        (2, [0], 3),
        (5.9, [0], 3),
        (6, [0, 1], 6),
        (10, [0, 1, 2], 10),
        (11, [0, 1, 2, 3], 11),
    ):
        schedule = select_greedily(np.zeros(4), compute, upload, deadline)
        assert schedule.places.tolist() == places
        assert schedule.seconds == seconds
    # The model reaches client 0 after 4 s and client 2 after 1 s, and all wait for that. First client 1, done at 6 (it
    # adds 6, the others 7, 7, 10). Then 0 adds 4 + 2, client 2 adds 1 + 4 and 3 adds 1 + 3: client 3 is done at 10.
    # Then 0 adds 4 + 2 and 2 adds 1 + 4: client 2 makes it 15. Last, 0 adds 3 + 2.
    download = np.array([4.0, 0.0, 1.0, 0.0])
    for deadline, places, seconds in ((12, [1, 3], 10), (15, [1, 3, 2], 15), (20, [1, 3, 2, 0], 20)):
        schedule = select_greedily(download, compute, upload, deadline)
        assert schedule.places.tolist() == places
        assert schedule.seconds == seconds


@pytest.mark.parametrize("seed", range(150))
def test_fedcs_finds_what_the_papers_listing_finds(seed):
    rng = np.random.default_rng(seed)
    size = rng.integers(1, 13)
    download, compute, upload = rng.exponential(size=(3, size)) * [[rng.integers(0, 2)], [2.0], [1.0]]
    deadline = rng.uniform(0.5, 8.0)
    expected = greedy_of_the_paper(download, compute, upload, deadline)
    schedule = select_greedily(download, compute, upload, deadline)
    if expected:
        assert schedule.places.tolist() == expected
        assert schedule.seconds <= deadline * (1 + 1e-9)
    else:
        alone = download + compute + upload
        assert alone.min() > deadline
        assert schedule.places.tolist() == [alone.argmin()]
    # What the schedule says it takes, by a clock: everybody computes after the last download, uploads go in turn.
    free = start = max(download[schedule.places])
    for client in schedule.places:
        free = max(free, start + compute[client]) + upload[client]
    assert schedule.seconds == pytest.approx(free)


def test_the_deadline_and_the_candidates_of_fedcs():
    rng = np.random.default_rng(0)
    size = 11
    times = {"compute_time": rng.exponential(size=size), "upload_time": rng.exponential(size=size)}
    link = {"bandwidth_cap": rng.uniform(0.1, 3, size), "download_time": rng.exponential(size=size)}
    fleet = Fleet(np.full(size, 1 / size), 1.0, **times, **link, total_bandwidth=2.0)
    alone = [t / min(cap, 2.0) for t, cap in zip(times["upload_time"], link["bandwidth_cap"], strict=True)]
    middle = [sorted(values)[5] for values in (link["download_time"], times["compute_time"], alone)]
    assert make(FedCS, fleet, 3).deadline == pytest.approx(middle[0] + middle[1] + 3 * middle[2])
    assert make(FedCS, fleet, 3, deadline=4).deadline == 4.0
    for size, cohort_size, options, expected in (
        (11, 3, {}, 6), (100, 3, {}, 10), (101, 3, {}, 11), (30, 20, {}, 40),
        (10, 3, {"fraction": 0.3}, 3), (10, 3, {"fraction": 0.31}, 4), (10, 3, {"fraction": 1}, 10),
        (4, 3, {"fraction": 1e-9}, 1),
    ):  # fmt: skip
        rival = make(FedCS, equal_fleet(size), cohort_size, **options)
        assert rival.candidates == expected
        # However long the deadline, only candidates can train; a short one leaves the fastest alone.
        rival.deadline = 1e9
        assert rival.plan(context()).members.size == min(expected, size)
        rival.deadline = 1e-9
        assert rival.plan(context()).members.size == 1


def test_equal_clients_fill_a_cohort_and_any_may_be_a_candidate():
    rival = make(FedCS, equal_fleet(9, upload_time=np.full(9, 0.1)), 3)
    share, error = inclusion_of(
        lambda rng: rival.plan(RoundContext(round_index=0, time=0.0, step_size=0.1, local_steps=5, rng=rng)).members,
        9, 1500,
    )  # fmt: skip
    assert share.sum() == pytest.approx(3)
    np.testing.assert_array_less(abs(share - 1 / 3), error)


def test_fedcs_uses_current_times_and_prefers_the_fast():
    fleet = equal_fleet(6)
    rival = make(FedCS, fleet, 2, fraction=1.0)
    now = np.array([9.0, 9.0, 0.5, 9.0, 0.5, 9.0])
    plan = rival.plan(context(compute_time=now, upload_time=np.full(6, 0.5)))
    assert plan.members.tolist() == [2, 4]
    assert plan.note == {"planned_time": 1.5}
    some = np.array([True, True, False, True, True, True])
    assert rival.plan(context(compute_time=now, upload_time=np.ones(6), available=some)).members.tolist() == [4]


def test_a_link_that_serves_in_turn_keeps_the_schedule(small_data):
    settings = {"cohort_size": 3, "local_steps": 3, "max_rounds": 10, "link": "shared", "total_bandwidth": 0.7}
    for record in simulate(small_data, **TIMES, policy=FedCS, **settings).records:
        assert record["round_time"] <= record["note"]["planned_time"] * (1 + 1e-9)
        assert record["failed"] == []
