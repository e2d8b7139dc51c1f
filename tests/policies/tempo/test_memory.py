"""When tempo follows its memory, how many arrivals its steps take and how long they are."""

import math
from dataclasses import replace

import numpy as np
import pytest

from fedtempo import simulate
from fedtempo.data.synthetic import synthetic_data
from fedtempo.policies.policy import RoundPlan
from fedtempo.policies.tempo import Tempo, constants
from support.rounds import report_of
from support.tempo_cases import DATA, SHARE, context, run, setting


def arrivals(policy):
    """How many updates the next step takes."""
    known = policy.known
    return known.caution.arrivals(known.novelty.unseen_share, len(policy.fleet))


def surprised(policy, surprise, clients=slice(None)):
    """Let some clients have reported twice, with so much that was new."""
    novelty = policy.state.novelty
    novelty.direction[clients], novelty.previous[clients], novelty.residual[clients] = 1.0, 1.0, surprise


def test_server_momentum_brings_more_arrivals():
    share = np.full(40, 1 / 40)
    waits = [Tempo(setting(share, server_momentum=m)).plan(context()).wait_for for m in (0.0, 0.5, 0.9)]
    assert waits[0] < waits[1] < waits[2] <= 40
    late = [np.mean([len(record["members"]) for record in run(server_momentum=m).records[20:]]) for m in (0.0, 0.8)]
    assert late[1] >= 2 * late[0]


@pytest.mark.parametrize(
    ("momentum", "floor", "largest", "arrivals"), [(0, 0.1, 4, 1), (0.5, 0.35, 8, 2), (0.8, 0.5, 20, 4)]
)
def test_a_memory_that_lags_is_dealt_with_under_momentum(momentum, floor, largest, arrivals):
    policy = Tempo(setting(np.full(40, 1 / 40), server_momentum=momentum))
    form = policy.form
    assert [form.floor, form.largest_factor, form.usual_arrivals] == pytest.approx([floor, largest, arrivals])
    chosen = Tempo(setting(SHARE, server_momentum=momentum, options={"floor": 0.2, "largest_factor": 3.0}))
    assert [chosen.form.floor, chosen.form.largest_factor] == [0.2, 3.0]


@pytest.mark.parametrize(("momentum", "most"), [(0.0, 4), (0.5, 8), (0.8, 20)])
def test_steps_take_more_arrivals_while_the_memory_fails_and_fall_back_slowly(momentum, most):
    fleet = {"compute_time": 4.0}
    policy = Tempo(setting(np.full(40, 1 / 40), server_momentum=momentum, cohort_size=6, fleet=fleet))
    state = policy.state
    state.novelty.seen_share, state.caution.follows_memory = 1.0, True
    usual = arrivals(policy)
    assert len(policy.plan(context()).start) == usual + 7, "seven others keep the link busy"
    state.novelty.direction[:], state.novelty.previous[:] = 1.0, 1.0

    def observe(surprise, steps):
        state.novelty.residual[:] = surprise
        for _ in range(steps):
            state.in_flight, state.novelty.news = {}, True
            plan = policy.plan(context())
        return len(plan.start)

    observe(1.5, 5)
    raised = state.caution.caution
    assert raised == pytest.approx(2.5 ** (0.5 * (1 + momentum)))
    observe(0.3, 1)
    assert state.caution.caution == pytest.approx(raised * 0.5 ** (0.1 * (1 - momentum)))
    assert observe(1.5, 100) == max(most, min(round((1 + constants.STALE) * most), 8)), (
        "means are stale by pi/4 steps at most"
    )
    assert arrivals(policy) == most
    observe(0.3, 1000)
    assert arrivals(policy) == usual


def test_the_memory_is_followed_once_it_was_seen_to_hold_and_no_longer_where_the_greatest_caution_does_not_help():
    policy = Tempo(setting(np.full(40, 1 / 40), cohort_size=6))

    def step(surprise=None):
        if surprise is not None:
            surprised(policy, surprise)
        policy.state.in_flight, policy.state.novelty.news = {}, surprise is not None
        return policy.plan(context())

    plan = step()
    assert not plan.follow_memory, "nobody reported twice"
    assert (plan.wait_for, plan.weights.tolist()) == (4, pytest.approx([1 / 4] * len(plan.start))), (
        "whatever K others have"
    )
    assert not step(1.0).follow_memory
    assert not step(0.72).follow_memory
    assert step(0.65).follow_memory
    followed = [step(1.5).follow_memory for _ in range(40)]
    assert followed == sorted(followed, reverse=True), "once only does it give up"
    assert 10 < sum(followed) < 30
    assert not step(0.9).follow_memory
    assert not any(step(0.65).follow_memory for _ in range(50)), "caution is at its greatest, and stays there"
    assert step(0.3).follow_memory
    caution = policy.state.caution.caution
    assert [step().follow_memory for _ in range(50)] == [True] * 50
    assert policy.state.caution.caution == caution, "nobody reported anything new"


@pytest.mark.parametrize(
    ("clients", "surprise", "follow"), [(1, 0.25, False), (1, 0.2, True), (4, 0.6, False), (4, 0.55, True)]
)
def test_a_memory_that_few_have_tried_must_hold_better(clients, surprise, follow):
    policy = Tempo(setting(np.full(40, 1 / 40), cohort_size=6))
    surprised(policy, surprise, slice(clients))
    policy.state.novelty.news = True
    assert policy.plan(context()).follow_memory == follow


@pytest.mark.parametrize(("clients", "solved"), [(5000, [0, 1, 2, 4, 8, 16, 32, 64]), (300, [0, 1, 2, 4, 7, 10])])
def test_q_is_solved_for_as_often_as_more_is_known(clients, solved):
    policy = Tempo(setting(np.full(clients, 1 / clients)))
    found = []
    for number in range(solved[-1] + 1):
        policy.state.in_flight = {}
        policy.plan(context(round_index=number))
        found += [number] * (policy.state.steps.steps_with_it == 0)
    assert found == solved


def test_the_cohort_size_of_others_does_not_matter():
    runs = [run(cohort_size=size).records for size in (1, 9)]
    assert [record.loss for record in runs[0]] == [record.loss for record in runs[1]]


def test_a_mean_is_drawn_by_data_alone_and_along_a_memory_by_what_is_new():
    policy = Tempo(setting(np.full(40, 1 / 40), cohort_size=6))
    state = policy.state
    state.novelty.first_count, state.novelty.reported_in[:] = 1, 0
    state.novelty.residual[:] = np.where(np.arange(40) < 20, 1.0, 1e-6)  # half of them have small updates
    policy.plan(context(round_index=1))
    np.testing.assert_allclose(state.steps.sampling_prob, 1 / 40)
    state.caution.follows_memory, state.in_flight = True, {}
    policy.plan(context(round_index=2))
    assert state.steps.sampling_prob[:20].min() > 5 * state.steps.sampling_prob[20:].max()


@pytest.mark.parametrize("options", [{"largest_factor": math.inf}, {"memory": False}])
def test_steps_that_are_to_be_unbiased_have_their_weights_from_the_start(options):
    policy = Tempo(setting(SHARE, options=options))
    surprised(policy, 2.0)
    for _ in range(100):
        policy.state.in_flight, policy.state.novelty.news = {}, True
        assert policy.plan(context()).follow_memory


@pytest.mark.parametrize("overlap", [True, False])
@pytest.mark.parametrize("momentum", [0.0, 0.8])
def test_steps_are_shorter_where_directions_turn_back_and_never_longer_than_the_engines(overlap, momentum):
    policy = Tempo(setting(np.full(40, 1 / 40), server_momentum=momentum, options={"overlap": overlap}))

    def step(cosine):
        novelty = policy.state.novelty
        novelty.direction[:], novelty.previous[:] = 4.0, 1.0
        novelty.residual[:] = 5.0 - 4.0 * cosine  # ‖D - y‖² with ‖D‖ = 2 and ‖y‖ = 1
        policy.state.in_flight, novelty.news = {}, True
        return policy.plan(context()).step_factor

    assert policy.plan(context()).step_factor == 1.0
    assert [step(0.9) for _ in range(3)] == [1.0] * 3
    assert step(-0.5) == pytest.approx(math.exp(-0.3 * 0.5))
    assert step(0.5) == pytest.approx(math.exp(-0.3 * 0.5 + 0.1 * (1 - momentum) * 0.5))
    assert [step(-1.0) for _ in range(20)][-1] == pytest.approx(0.1), "never so short that training stands still"
    assert [step(1.0) for _ in range(200)][-1] == 1.0


@pytest.mark.slow
def test_training_is_better_by_shorter_steps_where_it_would_swing(monkeypatch):
    """Long steps, small batches and few clients; losses in the end, over eight federations."""

    def loss(seed):
        data = synthetic_data(alpha=1.0, beta=1.0, num_clients=6, num_samples=600, seed=seed)
        times = {"compute_time": np.full(6, 0.5), "upload_time": np.linspace(0.5, 2.0, 6)}
        result = run(data=data, times=times, step_size=0.3, batch_size=4, rounds=200, evaluate_every=10, seed=seed)
        return np.mean([record["loss"] for record in result.records if record["loss"] is not None][-5:])

    shorter = [loss(seed) for seed in range(8)]
    monkeypatch.setattr(constants, "SHORTEN", 1e-9)
    ratios = np.array(shorter) / [loss(seed) for seed in range(8)]
    assert np.exp(np.mean(np.log(ratios))) < 0.8


@pytest.mark.parametrize("overlap", [True, False])
def test_a_factor_of_the_step_size_is_one_of_the_engines_schedule(overlap):
    """All steps at half the step size are the steps of an engine that has half of it."""

    class Halved(Tempo):
        def plan(self, context):
            return replace(super().plan(context), step_factor=0.5)

    ends = [
        run(policy, step_size=size, server_momentum=0.5, options={"overlap": overlap}).records[-1]["loss"]
        for policy, size in ((Halved, 0.02), (Tempo, 0.01))
    ]
    assert ends[0] == pytest.approx(ends[1], rel=1e-6)


def test_surprise_does_not_depend_on_how_fast_the_step_size_shrinks():
    """Nothing is learned in steps of next to nothing: what clients report is noise, alike under both schedules."""
    tau = np.linspace(0.1, 5.0, DATA.num_clients)
    seen = []
    for schedule in ("constant", "inverse"):
        policies = []

        class Kept(Tempo):
            def __init__(self, setting, kept=policies):
                super().__init__(setting)
                kept.append(self)

        simulate(
            DATA, policy=Kept, compute_time=tau, upload_time=0.1, cohort_size=3, local_steps=1, step_size=1e-6,
            schedule=schedule, max_rounds=60,
        )  # fmt: skip
        seen.append(policies[0].known.novelty.surprise)
    assert seen[1] == pytest.approx(seen[0], rel=0.02)


def let_report(policy, clients, round_index, failed=()):
    """Let some clients report directions of norm 1, all of it new, and others fail."""
    policy.observe(report_of(RoundPlan(members=clients, weights=0.1), round_index, 1.0, failed=failed))


@pytest.mark.parametrize("overlap", [True, False])
def test_who_was_absent_for_several_draws_is_forgotten_until_it_reports_again(overlap):
    policy = Tempo(setting(SHARE, options={"overlap": overlap}))
    policy.plan(context())
    policy.state.in_flight = {}
    let_report(policy, np.arange(8), 0)
    available, forgotten = np.arange(8) != 4, {}  # a client of a quarter of the data
    for index in range(1, 40):
        plan = policy.plan(context(available, round_index=index))
        if plan.forget is not None:
            forgotten[index] = plan.forget.tolist()
        policy.state.in_flight = {}
    assert list(forgotten.values()) == [[4]], "once"
    draws = 3 if not overlap else policy.state.steps.arrivals
    assert next(iter(forgotten)) == pytest.approx(constants.MISSED_BY_THE_GONE / (0.25 * draws), abs=4)
    novelty = policy.known.novelty
    assert novelty.unseen_share == pytest.approx(0.0), "it has reported all the same"
    first = novelty.state.first_total / novelty.state.first_count
    assert novelty.squares[4] == pytest.approx(first)
    let_report(policy, [4], 40)
    assert novelty.unseen_share == pytest.approx(0.0)
    assert novelty.state.reported_in[4] == 40


def test_who_fails_several_times_in_a_row_is_forgotten():
    policy = Tempo(setting(SHARE))
    policy.plan(context())
    let_report(policy, np.arange(8), 0)
    plans = []
    for index in range(1, 6):
        policy.state.in_flight = {}
        plans.append(policy.plan(context(round_index=index)).forget)
        let_report(policy, [2], index, failed=[2])
    assert [None if one is None else one.tolist() for one in plans] == [None, None, None, [2], None]


def test_those_in_flight_are_not_absent():
    policy = Tempo(setting(SHARE))
    policy.plan(context())
    let_report(policy, np.arange(8), 0)
    policy.state.in_flight = {4: 0.0}
    for index in range(1, 60):
        assert policy.plan(context(np.arange(8) != 4, round_index=index)).forget is None
        policy.state.in_flight = {4: 0.0}


def test_who_takes_far_too_long_holds_nobody_else_up():
    policy = Tempo(setting(SHARE, fleet={"compute_time": 1.0}))
    policy.plan(context())
    let_report(policy, np.arange(8), 0)
    starts = {}
    for time in (0.0, 5.0, 1000.0):
        policy.state.in_flight = dict.fromkeys((0, 1, 2, 3, 4), 0.0)
        starts[time] = policy.plan(replace(context(np.arange(8) > 4, round_index=1), time=time)).start.size
    assert starts[0.0] == starts[5.0] == 0
    assert starts[1000.0] > 0
