"""What is new in what clients report: surprise, and how far directions agree."""

from dataclasses import replace

import numpy as np
import pytest

from fedtempo.learning.aggregation import Aggregator
from fedtempo.policies.policy import RoundPlan
from fedtempo.policies.tempo import Tempo, constants
from fedtempo.policies.tempo.novelty import Novelty, NoveltyState
from support.rounds import report_of
from support.tempo_cases import context, setting


def novelty_of(*share):
    return Novelty(np.array(share), NoveltyState.at_first(len(share)), grows=True)


def test_the_agreement_is_the_cosine_of_what_was_reported_last_and_before():
    rng, novelty = np.random.default_rng(1), novelty_of(1.0)
    server, model = Aggregator(np.ones(1), memory=True), np.zeros(7, dtype=np.float32)
    reported = []
    for round_index in range(4):
        update = rng.standard_normal((1, 7)).astype(np.float32)
        step = server.apply(model, np.array([0]), update, np.ones(1), 0.5)
        reported.append(update[0])
        report = report_of(RoundPlan(members=[0], weights=[1.0]), round_index, 1.0)
        norm = float(np.linalg.norm(update))
        novelty.observe(
            replace(report, residual_norm=step.residual_norm, update_norm=np.array([norm]), step_size=np.array([0.5])),
            0.0,
        )
        if round_index == 0:
            assert novelty.agreement == 0.0, "nobody reported twice"
        else:
            y, d = reported[-2:]
            assert novelty.agreement == pytest.approx(float(y @ d) / np.linalg.norm(y) / norm, abs=1e-5)


def test_large_norms_count_for_more_in_the_agreement():
    novelty = novelty_of(0.5, 0.5)
    state, cosine = novelty.state, np.array([0.9, -1.0])
    state.direction[:], state.previous[:] = [100.0, 1.0], [100.0, 1.0]
    state.residual[:] = state.direction + state.previous - 2 * np.sqrt(state.direction * state.previous) * cosine
    assert novelty.agreement == pytest.approx((100 * 0.9 - 1.0) / 101)


def test_surprise_counts_each_client_by_its_data_however_seldom_it_reports():
    """A client of half the data, slow and remembered badly, is not forgotten while others report what is known."""
    novelty = novelty_of(0.5, 0.3, 0.2)

    def report(client, new, round_index):
        plan = RoundPlan(members=[client], weights=[1.0])
        novelty.observe(replace(report_of(plan, round_index, 1.0), residual_norm=np.array([new])), 0.0)

    for round_index, client in enumerate((0, 1, 2)):
        report(client, 2.0, round_index)
    assert novelty.surprise == 0.0, "at first all is new, which says nothing of the memory"
    report(0, 2.0, 3)
    assert novelty.surprise == pytest.approx(4.0)
    for round_index in range(4, 104):
        report(1 + round_index % 2, 0.0, round_index)
    assert novelty.surprise == pytest.approx(0.5 * 4.0)
    report(0, 0.0, 104)
    assert novelty.surprise == 0.0


def test_the_forecast_is_of_all_who_are_remembered_at_the_age_that_each_has_by_now():
    novelty = novelty_of(0.5, 0.3, 0.2)
    assert novelty.forecast == 0.0, "nobody is remembered"
    state = novelty.state
    state.reported_in[:2], state.direction[:2], state.residual[:2], state.age[:2] = 1, 4.0, 1.0, 10.0
    state.reported_at[:2], state.clock = [0, 90], 100.0
    grown = (constants.AGE + np.array([100, 10])) / (constants.AGE + 10)
    before = novelty.forecast
    assert before == pytest.approx((0.5 * grown[0] + 0.3 * grown[1]) / (0.8 * 4.0))
    state.clock = 200.0
    assert novelty.forecast > before


def test_the_server_goes_as_far_along_its_memory_as_that_is_forecast_to_hold_beyond_the_surprise():
    policy = Tempo(setting(np.full(40, 1 / 40)))
    state, known = policy.state, policy.known
    state.novelty.reported_in[:], state.novelty.direction[:], state.novelty.residual[:] = 0, 1.0, 0.2
    state.novelty.age[:], state.novelty.clock = 10.0, 1000.0
    assert known.holding == 1.0, "no step goes along it"
    state.caution.follows_memory = True
    forecast = 0.2 * (constants.AGE + 1000) / (constants.AGE + 10)
    assert known.holding == pytest.approx(np.exp(-forecast / 2))
    state.novelty.previous[:] = 1.0
    assert known.holding == pytest.approx(np.exp(-(forecast - 0.2) / 2)), "a surprise of 0.2 is seen"
    state.novelty.clock = 0.0
    assert known.holding == 1.0, "what was seen is no less than what is forecast"
    state.novelty.clock = 1e9
    assert known.holding == constants.LEAST_HOLDING, "some of it is always left"
    without = Tempo(setting(np.full(40, 1 / 40), options={"memory": False}))
    assert without.known.holding == 1.0


def test_draws_go_by_data_as_far_as_the_memory_does_not_hold():
    policy = Tempo(setting(np.full(40, 1 / 40), fleet={"upload_time": np.linspace(1.0, 100.0, 40)}))
    state = policy.state
    novelty = state.novelty
    novelty.reported_in[:], novelty.direction[:], novelty.first_count, novelty.seen_share = 0, 1.0, 40, 1.0
    least = []
    for age in (0, 300, 10_000):
        state.steps.sampling_prob, state.caution.follows_memory, state.in_flight = None, True, {}
        novelty.residual[:], novelty.age[:], novelty.clock = 0.2, 10.0, float(age)
        plan = policy.plan(context())
        least.append(40 * state.steps.sampling_prob.min())
        assert plan.server_factor == pytest.approx(policy.known.holding)
        assert least[-1] >= 1 - (1 - policy.form.floor) * plan.server_factor - 1e-9
    assert least == sorted(least)
    assert least[0] < 0.7
    assert least[-1] > 0.99


def test_ages_count_steps_by_their_length():
    """Where short steps keep the model where it is, directions do not age: otherwise steps would fade for ever."""
    policy = Tempo(setting(np.full(4, 0.25)))
    for factor in (1.0, 0.5, 0.01):
        policy.state.steps.holding = factor
        policy.observe(report_of(RoundPlan(members=[0], weights=[1.0]), 7, 1.0))
    assert policy.state.novelty.clock == pytest.approx(1.51)
    assert policy.state.novelty.reported_at[0] == pytest.approx(1.5)
    assert policy.state.novelty.age[0] == pytest.approx(0.5)


def test_what_rounding_adds_to_an_upload_is_nothing_new():
    novelty = novelty_of(1.0)
    report = report_of(RoundPlan(members=[0], weights=[1.0]), 0, 1.0)
    noise = np.zeros((1, 6))
    noise[0, 2] = 0.5  # of four bits
    sent = {"update_norm": np.array([3.0]), "step_size": np.array([1.0]), "residual_norm": np.array([2.0])}
    novelty.observe(replace(report, noise=noise, upload_bits=np.array([4]), **sent), 0.0)
    assert novelty.state.direction[0] == pytest.approx(9 / 1.5)
    assert novelty.state.residual[0] == pytest.approx(4 - 0.5 * 6)
    assert novelty.drifted == 1.0, "nobody reported twice"
    novelty.observe(replace(report, **sent | {"residual_norm": np.array([2.1])}), 0.0)
    assert novelty.state.residual[0] == pytest.approx(2.1**2), "what was remembered is off by its rounding too"
    assert novelty.drifted == pytest.approx((2.1**2 - 3) / 9), "but more bits would make that less"
