"""What policies know of the times of clients: reported, nominal or measured."""

import numpy as np
import pytest

from fedtempo import Fleet, simulate
from fedtempo.data.synthetic import synthetic_data
from fedtempo.policies.policy import RoundPlan
from fedtempo.policies.tempo import Tempo
from fedtempo.policies.times import ClientTimes, Durations, TimesState
from fedtempo.simulator.channel import StaticChannel, UnknownTimes
from support.rounds import carry_over, context, report_of, written


def durations_of(fleet, cohort_size):
    return Durations(fleet, cohort_size, TimesState.nominal(fleet))


def times_of(**how):
    return ClientTimes(TimesState.nominal(fleet()), **how)


def test_a_client_takes_its_fair_share_of_the_uplink():
    shares = {"data_share": np.full(3, 1 / 3), "gradient_bound": 1.0}
    times = {"compute_time": np.array([1.0, 2.0, 0.0]), "upload_time": np.array([3.0, 1.0, 5.0])}
    plain = durations_of(Fleet(**shares, **times, total_bandwidth=2.0), 2)
    np.testing.assert_allclose(plain.seconds(), [1 + 2 * 3 / 2, 2 + 2 * 1 / 2, 2 * 5 / 2])
    np.testing.assert_allclose(durations_of(plain.fleet, 9).seconds(), [1 + 3 * 3 / 2, 2 + 3 * 1 / 2, 3 * 5 / 2])
    links = {"bandwidth_cap": np.array([0.5, 3.0, 1.0]), "download_time": np.array([0.1, 0.2, 0.3])}
    capped = durations_of(Fleet(**shares, **times, **links, total_bandwidth=2.0), 2)
    np.testing.assert_allclose(capped.seconds(), [0.1 + 1 + 3 / 0.5, 0.2 + 2 + 1, 0.3 + 5])

    now = np.array([1.0, 1.0, 1.0])
    plain.look(context())
    np.testing.assert_allclose(plain.seconds(), [4, 3, 5])
    plan = RoundPlan(members=[0, 2], weights=[0.5, 0.5])
    plain.observe(report_of(plan, 0, 1.0, failed=[2], compute_time=7.0, upload_time=2.0))
    np.testing.assert_allclose(plain.seconds(), [9, 3, 5], err_msg="measured, but for the one that failed")
    plain.look(context(compute_time=now, upload_time=2 * now))
    np.testing.assert_allclose(plain.seconds(), [3, 3, 3])
    plain.observe(report_of(plan, 0, 1.0, compute_time=7.0))
    np.testing.assert_array_equal(now, [1, 1, 1])


def fleet():
    return Fleet(np.full(3, 1 / 3), 1.0, np.array([1.0, 2.0, 3.0]), np.array([4.0, 5.0, 6.0]))


def test_measured_times_replace_nominal_ones_and_then_enter_a_running_mean():
    times, plan = times_of(past=0.75), RoundPlan(members=[0, 2], weights=[0.5, 0.5])
    times.look(context())
    times.observe(report_of(plan, 0, 1.0, failed=[2], compute_time=8.0, upload_time=16.0))
    assert times.state.compute.tolist() == [8, 2, 3], "of the one that failed nothing was measured"
    assert times.state.upload.tolist() == [16, 5, 6]
    times.observe(report_of(plan, 1, 1.0, compute_time=4.0, upload_time=8.0))
    assert times.state.compute.tolist() == [7, 2, 4]
    assert times.state.upload.tolist() == [14, 5, 8]


def test_what_is_reported_is_believed_and_stays_what_it_is():
    times, plan, current = times_of(), RoundPlan(members=[0], weights=[1.0]), np.array([7.0, 7.0, 7.0])
    times.look(context(compute_time=current, upload_time=2 * current))
    times.observe(report_of(plan, 0, 1.0, compute_time=1.0, upload_time=1.0))
    assert times.state.compute.tolist() == [7, 7, 7]
    times.look(context())
    times.observe(report_of(plan, 1, 1.0, compute_time=1.0, upload_time=1.0))
    assert times.state.compute.tolist() == [1, 7, 7]
    assert current.tolist() == [7, 7, 7]


@pytest.mark.parametrize("reported", [False, True])
def test_what_was_measured_is_carried_over(reported):
    first, second = times_of(), times_of()
    now = {"compute_time": np.full(3, 9.0), "upload_time": np.full(3, 9.0)} if reported else {}
    first.look(context(**now))
    first.observe(report_of(RoundPlan(members=[1], weights=[1.0]), 0, 1.0, compute_time=0.5, upload_time=0.25))
    carry_over(first, second)
    for times in (first, second):
        times.look(context())
        times.observe(report_of(RoundPlan(members=[1], weights=[1.0]), 1, 1.0, compute_time=8.0, upload_time=8.0))
    assert written(second) == written(first)


def test_tempo_finds_out_who_is_slow_where_no_times_are_reported():
    """Nominal times are all alike; a third of the clients take ten times as long in truth."""
    data = synthetic_data(alpha=1.0, beta=1.0, num_clients=12, num_samples=1200, seed=0)
    upload = np.where(np.arange(12) % 3, 1.0, 10.0)
    policies = []

    class Kept(Tempo):
        def __init__(self, setting):
            super().__init__(setting)
            policies.append(self)

    result = simulate(
        data, policy=Kept, channel=UnknownTimes(StaticChannel(np.full(12, 0.1), upload)), compute_time=np.ones(12),
        upload_time=np.ones(12), cohort_size=3, local_steps=5, max_rounds=150,
    )  # fmt: skip
    seen = {client for record in result.records for client in record["members"]}
    (policy,) = policies
    assert seen == set(range(12))
    np.testing.assert_allclose(policy.state.times.upload, upload)
    np.testing.assert_allclose(policy.state.times.compute, 0.1)
    draws = np.bincount([client for record in result.records[75:] for client in record["members"]], minlength=12)
    share, mine = data.data_share, draws / draws.sum()
    assert (mine / share)[upload > 1].mean() < 0.7 * (mine / share)[upload == 1].mean()
