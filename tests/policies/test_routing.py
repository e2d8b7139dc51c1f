"""Routed asynchronous SGD: who is drawn how often, and what an update counts."""

import numpy as np
import pytest

from fedtempo import InputError
from fedtempo.policies.routing import Routing
from fedtempo.simulator.absences import WithAbsences
from fedtempo.simulator.channel import StaticChannel, UnknownTimes
from fedtempo.theory.routing import optimal_routing
from support.replayed import played
from support.rounds import TIMES, context, equal_fleet, make
from support.simulations import goes_on_alike, loop_of


def test_draws_are_by_the_optimal_q_and_weights_make_up_for_it(small_fleet):
    share, total, drawn, draws = small_fleet.data_share, np.zeros(4), np.zeros(4), 3000
    policy = make(Routing, small_fleet, 2, concurrency=1)
    q = optimal_routing(share, small_fleet.compute_time, small_fleet.upload_time / 1.7, 1)
    for n in range(draws):
        plan = policy.plan(context(seed=n))
        assert (plan.wait_for, plan.staleness_exponent) == (1, 0.0)
        np.testing.assert_allclose(plan.weights, share[plan.start] / q[plan.start])
        total[plan.start] += plan.weights
        drawn[plan.start] += 1
        policy.state.in_flight = 0  # it has arrived
    np.testing.assert_allclose(drawn / draws, q, atol=0.04)
    np.testing.assert_allclose(total / draws, share, atol=0.05)


def test_a_step_after_every_arrival(small_data):
    loop = loop_of(small_data, TIMES, Routing, rounds=12, cohort_size=2, schedule="constant", step_size=0.05)
    for record, before, after, updates, _, _ in played(loop):
        assert len(record.members) == 1
        np.testing.assert_allclose(after, before + record.weights[0] * updates[0], atol=2e-6)
        assert len(loop.clients.in_flight) == 3


def test_it_learns_times_that_nobody_reports_beforehand(small_data):
    nominal = {"compute_time": np.ones(8), "upload_time": np.ones(8)}
    channel = UnknownTimes(StaticChannel(**TIMES))
    loop = loop_of(small_data, nominal, Routing, channel=channel, rounds=60, evaluate_every=60)
    records = list(loop.rounds())
    seen = sorted({record.members[0] for record in records})
    np.testing.assert_allclose(loop.policy.state.times.compute[seen], TIMES["compute_time"][seen])
    q = loop.policy.routes.sampling_prob
    ready = np.array(TIMES["upload_time"])
    assert q[7] > q[0], ready


def test_a_run_carried_over_at_any_round_goes_on_as_if_nothing_had_happened(small_data):
    channel = UnknownTimes(WithAbsences(StaticChannel(**TIMES), present_share=0.6, seed=3))
    nominal = {"compute_time": np.ones(8), "upload_time": np.ones(8)}
    goes_on_alike(lambda: loop_of(small_data, nominal, Routing, channel=channel, rounds=10))


def test_bad_options_are_refused():
    with pytest.raises(InputError, match="staleness must be zero or positive"):
        make(Routing, equal_fleet(4), 2, staleness=-1.0)
    with pytest.raises(InputError, match="concurrency must be a whole number"):
        make(Routing, equal_fleet(4), 2, concurrency=0)
