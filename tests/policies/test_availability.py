"""Absent and silent clients: what is learned of them, and weights that make up for it."""

import math
from dataclasses import replace

import numpy as np
import pytest

from fedtempo import Fleet, simulate
from fedtempo.data.synthetic import synthetic_data
from fedtempo.policies.availability import LEAST_RESPONSE, Availability, AvailabilityState
from fedtempo.policies.fixed import FixedSampling, FullParticipation
from fedtempo.policies.policy import PolicySetting, Probe, RoundContext, RoundPlan, RoundReport, Stateless
from fedtempo.policies.registry import make
from fedtempo.simulator.absences import WithAbsences
from fedtempo.simulator.channel import StaticChannel
from fedtempo.theory.sampling import DrawTable, aggregation_weights, draw_cohort, uniform_sampling, weighted_sampling
from support.rounds import carry_over, written

SHARE = np.array([0.05, 0.4, 0.2, 0.1, 0.25])
SIZE = len(SHARE)
CHANCE = np.array([1.0, 0.9, 0.35, 0.6, 0.5])  # that each is available in a round
FLEET = Fleet(SHARE, 1.0, 1.0, 1.0)


def availability_of(size):
    return Availability(AvailabilityState.at_first(size))


def context(available=None, rng=None, round_index=0):
    rng = rng or np.random.default_rng(0)
    available = None if available is None else np.array(available)
    return RoundContext(round_index=round_index, time=0.0, step_size=0.1, local_steps=1, rng=rng, available=available)


def report(plan, failed=None):
    nothing = np.zeros(len(plan.members))
    failed = np.zeros(len(plan.members), dtype=bool) if failed is None else np.array(failed)
    measured = (
        "compute_time",
        "upload_time",
        "largest_gradient_norm",
        "mean_gradient_norm",
        "update_norm",
        "step_size",
        "local_steps",
    )
    return RoundReport(
        plan=plan, round_index=0, round_time=1.0, **dict.fromkeys(measured, nothing), mean_loss=nothing, failed=failed,
        residual_norm=nothing, aggregate_norm=0.0, direction_norm=0.0, loss=None, accuracy=None,
    )  # fmt: skip


def policies():
    return {
        "uniform": FixedSampling(FLEET, uniform_sampling(FLEET), 3),
        "weighted": FixedSampling(FLEET, weighted_sampling(FLEET), 2),
        "one": FixedSampling(FLEET, weighted_sampling(FLEET), 1),
        "full": FullParticipation(FLEET),
    }


def long_run(policy, rounds, *, answers=1.0, seed=0, skip=200):
    """Return the mean weight of each client in the aggregate, 0 where it is absent or fails, and its standard error."""
    rng = np.random.default_rng(seed)
    weight = np.zeros((rounds, SIZE))
    for row in weight:
        plan = policy.plan(context(rng.random(SIZE) < CHANCE, rng))
        failed = rng.random(len(plan.members)) >= np.broadcast_to(answers, SIZE)[plan.members]
        row[plan.members[~failed]] = plan.weights[~failed]
        policy.observe(report(plan, failed))
    weight = weight[skip:]  # until chances are known
    return weight.mean(axis=0), weight.std(axis=0) / math.sqrt(len(weight))


def test_those_who_report_take_over_the_weight_of_those_who_fail_in_a_mean_alone():
    answered = np.array([True, False, True])
    for average, weights in ((False, [0.5, 0.2]), (True, [0.5 * 10 / 7, 0.2 * 10 / 7])):
        plan = RoundPlan(members=[3, 1, 4], weights=[0.5, 0.3, 0.2], average=average)
        assert plan.weights_of(answered) == pytest.approx(weights)
        assert plan.weights_of(~answered & answered).size == 0


@pytest.mark.parametrize(("average", "step"), [(True, 1.0), (False, 0.5)])
def test_the_loop_averages_over_those_who_were_in_time(average, step):
    data = synthetic_data(alpha=1.0, beta=1.0, num_clients=3, num_samples=600, seed=0)
    settings = {
        "compute_time": [1.0, 9.0, 1.0],
        "upload_time": 1.0,
        "cohort_size": 2,
        "local_steps": 2,
        "max_rounds": 1,
    }

    class Two(Stateless):
        def plan(self, context):
            return RoundPlan(members=[0, 1], weights=0.5, average=average, deadline=4.0)

    (record,) = simulate(data, policy=Two(), link="equal", **settings).records
    assert record["failed"] == [1]
    assert record["aggregate_norm"] == pytest.approx(step * record["update_norm"][0])


@pytest.mark.parametrize("name", ["oort", "power-of-choice", "fedcs", "tifl"])
def test_the_biased_rivals_average(name):
    policy = make(name, PolicySetting(fleet=FLEET, cohort_size=2))
    plan = policy.plan(context())
    if isinstance(plan, Probe):
        plan = policy.plan(replace(context(), asked=plan.clients, answers=np.ones(len(plan.clients))))
    assert plan.average
    assert plan.weights.sum() == pytest.approx(1)


@pytest.mark.parametrize("name", policies())
def test_the_mean_weight_tends_to_the_data_share_where_clients_come_and_go(name):
    """Within five standard errors and 3 %, for chances that are themselves estimated."""
    mean, error = long_run(policies()[name], 2500)
    assert (np.abs(mean - SHARE) <= 5 * error + 0.03 * SHARE).all(), mean / SHARE


@pytest.mark.parametrize("name", ["uniform", "full"])
def test_the_mean_weight_tends_to_the_data_share_where_clients_fail_as_well(name):
    mean, error = long_run(policies()[name], 2500, answers=np.array([0.5, 1.0, 0.8, 0.9, 0.6]), seed=1)
    assert (np.abs(mean - SHARE) <= 5 * error + 0.03 * SHARE).all(), mean / SHARE


def test_without_response_the_mean_weight_would_be_wrong(monkeypatch):
    """The test above can fail: plain weights give those who are seldom available less than their share."""
    policy = policies()["full"]
    monkeypatch.setattr(Availability, "response", lambda self, clients: np.ones(len(clients)))
    mean, _ = long_run(policy, 1200)
    np.testing.assert_allclose(mean / SHARE, CHANCE, atol=0.1)
    assert mean[2] < 0.5 * SHARE[2]


@pytest.mark.parametrize("available", [None, [True] * SIZE])
@pytest.mark.parametrize("sampling", [uniform_sampling, weighted_sampling])
def test_where_everyone_is_available_weights_are_those_of_lemma_1_to_the_bit(available, sampling):
    policy, q = FixedSampling(FLEET, sampling(FLEET), 4), sampling(FLEET)
    for round_index in range(50):
        plan = policy.plan(context(available, np.random.default_rng(round_index), round_index))
        policy.observe(report(plan))
        drawn = draw_cohort(DrawTable.of(q), 4, np.random.default_rng(round_index))
        members, first, counts = np.unique(drawn, return_index=True, return_counts=True)
        assert plan.members.tolist() == members.tolist()
        assert plan.counts.tolist() == counts.tolist()
        assert plan.weights.tobytes() == (aggregation_weights(drawn, q, SHARE)[first] * counts).tobytes()


def test_full_participation_where_everyone_is_available_has_data_shares_to_the_bit():
    policy = FullParticipation(FLEET)
    for _ in range(20):
        plan = policy.plan(context())
        policy.observe(report(plan))
        assert plan.weights.tobytes() == SHARE.tobytes()
        assert plan.note is None


def test_nobody_is_drawn_who_is_absent():
    rng = np.random.default_rng(4)
    for policy in policies().values():
        for _ in range(200):
            available = rng.random(SIZE) < 0.3
            available[rng.integers(SIZE)] = True
            plan = policy.plan(context(available, rng))
            assert available[plan.members].all()
            if plan.counts is not None:
                assert plan.counts.sum() == policy.cohort_size
    assert policy.plan(context([False, False, True, False, False])).members.tolist() == [2]


def test_response_is_the_share_of_successes_with_one_more():
    learner, everyone = availability_of(3), np.arange(3)
    np.testing.assert_array_equal(learner.response(everyone), 1)
    for available in ([True, False, True], [True, False, False], [True, True, True]):
        learner.look(context(available))
    np.testing.assert_allclose(learner.response(everyone), [1, 2 / 4, 3 / 4])
    plan = RoundPlan(members=[0, 2], weights=1.0)
    learner.observe(report(plan, [True, False]))
    np.testing.assert_allclose(learner.response(everyone), [1 / 2, 2 / 4, 3 / 4])
    learner.observe(report(plan))
    np.testing.assert_allclose(learner.response(everyone), [2 / 3, 2 / 4, 3 / 4])
    np.testing.assert_allclose(learner.response(np.array([2])), [3 / 4])
    learner.observe(report(RoundPlan(members=[2], weights=1.0), [True]))
    np.testing.assert_allclose(learner.response(np.array([2])), [3 / 4 * (3 / 4)])


def test_who_is_hardly_ever_seen_is_not_made_up_for_in_full():
    learner = availability_of(2)
    for _ in range(1000):
        learner.look(context([True, False]))
    np.testing.assert_array_equal(learner.response(np.arange(2)), [1, LEAST_RESPONSE])
    for _ in range(1000):
        learner.observe(report(RoundPlan(members=[0], weights=1.0), [True]))
    np.testing.assert_array_equal(learner.response(np.arange(2)), [LEAST_RESPONSE] * 2)
    policy = FullParticipation(Fleet([0.3, 0.7], 1.0, 1.0, 1.0))
    policy.state = learner.state
    np.testing.assert_allclose(policy.plan(context([True, True])).weights, np.array([0.3, 0.7]) / LEAST_RESPONSE)


def test_all_that_was_seen_is_carried_over():
    rng, everyone = np.random.default_rng(5), np.arange(SIZE)
    one = availability_of(SIZE)
    for _ in range(30):
        one.look(context(rng.random(SIZE) < CHANCE))
        plan = RoundPlan(members=[1, 3], weights=1.0)
        one.observe(report(plan, rng.random(2) < 0.3))
    other = carry_over(one, availability_of(SIZE))
    for each in (one, other):
        each.look(context([True, True, False, True, True]))
        each.observe(report(plan, [False, True]))
    assert one.response(everyone).tolist() == other.response(everyone).tolist()
    assert written(one) == written(other)


def test_the_rounds_before_count():
    one = availability_of(1000)
    for _ in range(3):
        one.look(context())
    other = carry_over(one, availability_of(1000))
    for each in (one, other):
        each.look(context([False] + [True] * 999))
    assert other.response(np.arange(1000)).tolist() == one.response(np.arange(1000)).tolist()
    assert other.response(np.array([0])).tolist() == [4 / 5]


def test_policies_carry_it_over():
    one, rng = FullParticipation(FLEET), np.random.default_rng(6)
    for _ in range(20):
        one.observe(report(one.plan(context(rng.random(SIZE) < CHANCE))))
    other = carry_over(one, FullParticipation(FLEET))
    assert other.plan(context()).weights.tolist() == one.plan(context()).weights.tolist()


def test_notes_say_how_much_data_was_never_available():
    policy = FixedSampling(FLEET, uniform_sampling(FLEET), 2)
    assert policy.plan(context()).note is None
    policy = FixedSampling(FLEET, uniform_sampling(FLEET), 2)
    for available, never in (
        ([True, False, True, False, False], 0.75), ([False, False, True, True, False], 0.65),
        ([True, True, True, False, False], 0.25), ([True] * SIZE, 0.0), ([True] + [False] * 4, 0.0),
    ):  # fmt: skip
        assert policy.plan(context(available)).note["never_there"] == pytest.approx(never)


def test_notes_in_the_records_of_a_run():
    data = synthetic_data(alpha=1.0, beta=1.0, num_clients=6, num_samples=400, seed=1)
    times = {"compute_time": np.ones(6), "upload_time": np.ones(6)}
    settings = {"cohort_size": 2, "local_steps": 2, "max_rounds": 12, **times}
    for policy in ("weighted", "full"):
        assert all("note" not in record for record in simulate(data, policy=policy, **settings).records)
        channel = WithAbsences(StaticChannel(**times), present_share=0.5, seed=2)
        records = simulate(data, policy=policy, channel=channel, **settings).records
        seen = np.zeros(6, dtype=bool)
        for round_index, record in enumerate(records):
            available = channel.at(round_index, 0.0).available
            seen |= available
            assert available[record["members"]].all()
            assert record["note"]["never_there"] == pytest.approx(data.data_share[~seen].sum())
        assert records[0]["note"]["never_there"] > 0
        assert not any(record["failed"] for record in records)


def test_draws_before_the_first_failure_are_carried_over():
    one, plan = availability_of(3), RoundPlan(members=[0, 1], weights=1.0)
    for _ in range(9):
        one.look(context())
        one.observe(report(plan))
    other = carry_over(one, availability_of(3))
    for learner in (one, other):
        learner.observe(report(plan, [True, False]))
    assert other.response(np.arange(3)).tolist() == one.response(np.arange(3)).tolist()


def test_what_was_seen_long_ago_fades():
    learner, rng = availability_of(2), np.random.default_rng(0)
    for chance in (1.0, 0.3):
        for _ in range(1000):
            learner.look(context([True, rng.random() < chance]))
        assert learner.response(np.array([0, 1])) == pytest.approx([1.0, chance], abs=0.1)
    for chance in (1.0, 0.4):
        for _ in range(1000):
            learner.look(context([True, True]))
            learner.observe(report(RoundPlan(members=[0, 1], weights=0.5), [False, rng.random() >= chance]))
        assert learner.response(np.array([0, 1])) == pytest.approx([1.0, chance], abs=0.1)


def test_who_is_drawn_seldom_keeps_what_was_seen_of_its_reports():
    learner, rng = availability_of(2), np.random.default_rng(0)
    for index in range(20_000):
        learner.look(context())
        if index % 100 == 0:
            learner.observe(report(RoundPlan(members=[1], weights=0.5), [rng.random() < 0.5]))
    assert learner.response(np.array([1])) == pytest.approx([0.5], abs=0.1)
