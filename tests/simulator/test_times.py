"""What policies know of the times of clients: told, nominal or measured."""

import json

import numpy as np
import pytest
from test_rivals_biased import context, report_of

from fedtempo import Fleet, simulate
from fedtempo.data.synthetic import synthetic_data
from fedtempo.policies.policy import RoundPlan
from fedtempo.policies.tempo import Tempo
from fedtempo.policies.times import ClientTimes
from fedtempo.simulator.channel import StaticChannel, Untold


def fleet():
    return Fleet(np.full(3, 1 / 3), 1.0, np.array([1.0, 2.0, 3.0]), np.array([4.0, 5.0, 6.0]))


def test_measured_times_replace_nominal_ones_and_then_enter_a_running_mean():
    times, plan = ClientTimes(fleet(), past=0.75), RoundPlan(members=[0, 2], weights=[0.5, 0.5])
    times.look(context())
    times.observe(report_of(plan, 0, 1.0, failed=[2], compute_time=8.0, upload_time=16.0))
    assert times.compute.tolist() == [8, 2, 3], "of the one that failed nothing was measured"
    assert times.upload.tolist() == [16, 5, 6]
    times.observe(report_of(plan, 1, 1.0, compute_time=4.0, upload_time=8.0))
    assert times.compute.tolist() == [7, 2, 4]
    assert times.upload.tolist() == [14, 5, 8]


def test_what_is_told_is_believed_and_stays_what_it_is():
    times, plan, told = ClientTimes(fleet()), RoundPlan(members=[0], weights=[1.0]), np.array([7.0, 7.0, 7.0])
    times.look(context(compute_time=told, upload_time=2 * told))
    times.observe(report_of(plan, 0, 1.0, compute_time=1.0, upload_time=1.0))
    assert times.compute.tolist() == [7, 7, 7]
    times.look(context())
    times.observe(report_of(plan, 1, 1.0, compute_time=1.0, upload_time=1.0))
    assert times.compute.tolist() == [1, 7, 7]
    assert told.tolist() == [7, 7, 7]


@pytest.mark.parametrize("told", [False, True])
def test_state_goes_through_json(told):
    first, second = ClientTimes(fleet()), ClientTimes(fleet())
    now = {"compute_time": np.full(3, 9.0), "upload_time": np.full(3, 9.0)} if told else {}
    first.look(context(**now))
    first.observe(report_of(RoundPlan(members=[1], weights=[1.0]), 0, 1.0, compute_time=0.5, upload_time=0.25))
    second.restore(json.loads(json.dumps(first.state())))
    assert second.state() == first.state()
    for times in (first, second):
        times.look(context())
        times.observe(report_of(RoundPlan(members=[1], weights=[1.0]), 1, 1.0, compute_time=8.0, upload_time=8.0))
    assert second.compute.tolist() == first.compute.tolist()
    assert second.upload.tolist() == first.upload.tolist()


def test_tempo_finds_out_who_is_slow_where_nobody_tells():
    """Nominal times are all alike; a third of the clients take ten times as long in truth."""
    data = synthetic_data(alpha=1.0, beta=1.0, num_clients=12, num_samples=1200, seed=0)
    upload = np.where(np.arange(12) % 3, 1.0, 10.0)
    policies = []

    class Kept(Tempo):
        def __init__(self, setting):
            super().__init__(setting)
            policies.append(self)

    result = simulate(
        data, policy=Kept, channel=Untold(StaticChannel(np.full(12, 0.1), upload)), compute_time=np.ones(12),
        upload_time=np.ones(12), cohort_size=3, local_steps=5, max_rounds=150,
    )  # fmt: skip
    heard = {client for record in result.records for client in record["members"]}
    (policy,) = policies
    assert heard == set(range(12))
    np.testing.assert_allclose(policy.times.upload, upload)
    np.testing.assert_allclose(policy.times.compute, 0.1)
    draws = np.bincount([client for record in result.records[75:] for client in record["members"]], minlength=12)
    share, mine = data.data_share, draws / draws.sum()
    assert (mine / share)[upload > 1].mean() < 0.7 * (mine / share)[upload == 1].mean()
