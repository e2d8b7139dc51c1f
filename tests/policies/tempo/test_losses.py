"""How far clients' losses have climbed, and what follows from it."""

from dataclasses import replace

import numpy as np
import pytest

from fedtempo.policies.policy import RoundPlan
from fedtempo.policies.tempo import Tempo
from fedtempo.policies.tempo.losses import Losses, LossesState
from support.rounds import report_of
from support.tempo_cases import context, setting

SHARE = np.array([0.5, 0.3, 0.2])


def reported(clients, losses):
    plan = RoundPlan(members=clients, weights=[1 / len(clients)] * len(clients))
    return replace(report_of(plan, 0, 1.0), mean_loss=np.array(losses))


def climbs(*reports):
    losses = Losses(SHARE, LossesState.at_first(3))
    found = []
    for clients, values in reports:
        losses.observe(reported(clients, values))
        found.append(losses.state.climb)
    return found


def test_losses_that_fall_do_not_climb_and_those_that_rise_do_from_where_they_were_least():
    found = climbs(
        ([0, 1, 2], [2.0, 2.0, 2.0]), ([0, 1, 2], [1.0, 1.0, 1.0]), ([0, 1], [2.0, 2.0]), ([0, 1], [1.0, 1.0])
    )
    assert found == pytest.approx([0.0, 0.0, np.log(1.8), 0.0])


def test_who_reports_for_the_first_time_does_not_count():
    assert climbs(([0], [1.0]), ([1], [50.0]), ([2], [0.01])) == [0.0, 0.0, 0.0]


def test_losses_that_nobody_knows_or_of_zero_change_nothing():
    assert climbs(([0, 1], [np.nan, 1.0]), ([0], [3.0]), ([1], [np.nan])) == [0.0, 0.0, 0.0]
    assert climbs(([0, 1], [0.0, 0.0]), ([0, 1], [0.0, 1.0])) == [0.0, 0.0]


@pytest.mark.parametrize("overlap", [True, False])
@pytest.mark.parametrize(("follows", "factor"), [(True, np.exp(-0.3 * 0.5)), (False, 1.0)])
def test_steps_along_a_memory_are_shorter_while_losses_climb(overlap, follows, factor):
    policy = Tempo(setting(np.full(40, 1 / 40), options={"overlap": overlap}))
    state = policy.state
    state.caution.follows_memory, state.losses.climb, state.novelty.news = follows, 0.5, True
    state.novelty.direction[:], state.novelty.previous[:], state.novelty.residual[:] = 1.0, 1.0, 0.65
    state.caution.caution = 1.0 if follows else policy.form.most_caution
    policy.plan(context())
    assert state.caution.step_factor == pytest.approx(factor)
