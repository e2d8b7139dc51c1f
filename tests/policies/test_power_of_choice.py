"""Power-of-Choice: candidates by data, members by loss."""

from dataclasses import replace

import numpy as np
import pytest

from fedtempo import Fleet
from fedtempo.api.simulate import simulate
from fedtempo.learning.softmax import SoftmaxTrainer
from fedtempo.policies.policy import RoundContext, RoundPlan
from fedtempo.policies.power_of_choice import PowerOfChoice
from support.rounds import TIMES, context, equal_fleet, in_turn, inclusion_of, make


def test_candidates_are_drawn_by_data_and_the_largest_losses_train():
    share = np.array([0.05, 0.3, 0.15, 0.1, 0.4])
    rival = make(PowerOfChoice, Fleet(share, 1.0, np.ones(5), np.ones(5)), 2, candidates=3)

    def draw(rng):
        return rival.plan(RoundContext(round_index=0, time=0.0, step_size=0.1, local_steps=5, rng=rng)).clients

    drawn, error = inclusion_of(draw, 5)
    np.testing.assert_array_less(abs(drawn - in_turn(share.tolist(), 3)), error)
    losses = np.array([3.0, 1.0, 4.0, 1.5, 5.0])
    for seed in range(20):
        probe = rival.plan(context(0, seed=seed))
        plan = rival.plan(context(0, seed=seed, asked=probe.clients, answers=losses[probe.clients]))
        assert plan.members.tolist() == sorted(sorted(probe.clients.tolist(), key=lambda i: -losses[i])[:2])
        assert plan.weights.tolist() == [0.5, 0.5]


def test_ties_are_broken_at_random_and_silence_comes_last():
    rival = make(PowerOfChoice, equal_fleet(4), 1, candidates=4)
    everyone = np.arange(4)

    def draw(rng):
        answers = np.array([2.0, 2.0, np.nan, 1.0])
        return rival.plan(replace(context(), rng=rng, asked=everyone, answers=answers)).members

    share, error = inclusion_of(draw, 4, 1000)
    np.testing.assert_array_less(abs(share - [0.5, 0.5, 0, 0]), error)
    silent = rival.plan(context(asked=everyone, answers=np.full(4, np.nan)))
    assert silent.members.size == 1


def test_nobody_is_asked_where_there_is_no_choice():
    assert isinstance(make(PowerOfChoice, equal_fleet(6), 6).plan(context()), RoundPlan)
    alone = make(PowerOfChoice, equal_fleet(6), 2, candidates=2)
    assert alone.plan(context()).members.size == 2
    two = np.array([False, True, False, False, True, False])
    assert make(PowerOfChoice, equal_fleet(6), 2).plan(context(available=two)).members.tolist() == [1, 4]
    assert make(PowerOfChoice, equal_fleet(6), 2).plan(context()).clients.size == 4, "twice the cohort"
    assert make(PowerOfChoice, equal_fleet(6), 4).plan(context()).clients.size == 6, "or all there are"
    one = np.array([False, True, False, True, True, False])
    assert set(make(PowerOfChoice, equal_fleet(6), 2).plan(context(available=one)).clients) == {1, 3, 4}


def test_the_engine_answers_with_losses_and_charges_the_time(small_data):
    from fedtempo import cohort_round_time

    settings = {"policy": PowerOfChoice, "cohort_size": 2, "local_steps": 5}
    after_one = simulate(small_data, **TIMES, **settings, max_rounds=1).model
    record = simulate(small_data, **TIMES, **settings, max_rounds=2).records[1]
    fleet = Fleet(small_data.data_share, 1.0, **TIMES)
    asked = make(PowerOfChoice, fleet, 2).plan(context(1)).clients
    losses = SoftmaxTrainer(small_data).client_losses(after_one, asked)
    assert record["members"] == sorted(asked[np.argsort(losses)[-2:]].tolist())
    members = np.array(record["members"])
    waiting = (fleet.compute_time * small_data.sizes / 24 / 5)[asked].max()
    expected = waiting + cohort_round_time(fleet.compute_time[members], fleet.upload_time[members])
    assert record["round_time"] == pytest.approx(expected)
