"""Oort: utilities, exploration and the pacer, by hand or by enumeration."""

import math
from dataclasses import replace

import numpy as np
import pytest

from fedtempo import Fleet
from fedtempo.policies.oort import Oort, draw_in_proportion
from fedtempo.policies.policy import RoundContext
from support.rounds import context, equal_fleet, in_turn, inclusion_of, make, teach


def test_the_utility_by_hand():
    """Five clients with durations 2, 2, 4, 8, 2 s and U of 1, 2, 3, 4, 100 in units of 1/15; T = 4 s."""
    share = np.array([1, 2, 3, 4, 5]) / 15
    fleet = Fleet(share, 1.0, np.array([1.0, 1.0, 3.0, 7.0, 1.0]), np.ones(5))
    rival = make(Oort, fleet, 1, clip=0.75, preferred_duration=4.0)
    for round_index, members in enumerate(([0, 1], [2], [3], [4])):
        teach(rival, members, round_index, [1.0, 1.0, 1.0, 1.0, 20.0], compute_time=fleet.compute_time)
    # The 75th percentile of five numbers is the fourth: 100 is clipped to 4. Then 1 … 4 is scaled to 0 … 1.
    bonus = [math.sqrt(0.1 * math.log(9) / last) for last in (1, 1, 2, 3, 4)]
    expected = [bonus[0], 1 / 3 + bonus[1], 2 / 3 + bonus[2], (1 + bonus[3]) * (4 / 8) ** 2, 1 + bonus[4]]
    np.testing.assert_allclose(rival.utilities(np.arange(5), 9), expected)
    # Of fewer clients, the percentile and the scale are their own: 3 and 3.75 become 0 and 1.
    np.testing.assert_allclose(rival.utilities(np.array([2, 3]), 9), [bonus[2], (1 + bonus[3]) / 4])
    np.testing.assert_allclose(rival.utilities(np.array([1]), 9), [1 + bonus[1]])
    assert rival.utilities(np.empty(0, dtype=np.int64), 9).size == 0
    asked = []
    rival.utilities = lambda clients, now: asked.append(now) or np.ones(clients.size)
    rival.plan(context(8))
    assert asked == [9], "rounds are counted from 1"


def test_equal_and_zero_losses_leave_equal_utilities():
    for loss in (0.0, 2.0):
        rival = make(Oort, equal_fleet(4), 2)
        teach(rival, [0, 1, 2, 3], 0, loss)
        np.testing.assert_allclose(rival.utilities(np.arange(4), 1), [1, 1, 1, 1], atol=1e-12)


def test_utilities_are_clipped_at_the_95th_percentile():
    rng = np.random.default_rng(0)
    losses = rng.exponential(size=40)
    rival = make(Oort, equal_fleet(40), 40, penalty=0)
    teach(rival, range(40), 0, losses)
    ordered = sorted(losses)
    ceiling = ordered[37] + 0.05 * (ordered[38] - ordered[37])  # at place 0.95 · 39 = 37.05
    expected = [(min(x, ceiling) - ordered[0]) / (ceiling - ordered[0]) for x in losses]
    np.testing.assert_allclose(rival.utilities(np.arange(40), 1), expected, atol=1e-12)


def test_exploration_decays_to_its_least():
    rival = make(Oort, equal_fleet(4), 2)
    assert rival.epsilon(0) == 0.9
    assert rival.epsilon(10) == pytest.approx(0.9 * 0.98**10)
    assert rival.epsilon(74) == pytest.approx(0.9 * 0.98**74)
    assert rival.epsilon(75) == rival.epsilon(5000) == 0.2


def test_oort_starts_with_the_fast_and_explores_by_speed():
    fleet = Fleet(np.full(4, 0.25), 1.0, np.array([1.0, 2.0, 3.0, 9.0]), np.full(4, 0.5))  # durations 2, 3, 4, 10
    share, error = inclusion_of(
        lambda rng: make(Oort, fleet, 2).plan(RoundContext(
            round_index=0, time=0.0, step_size=0.1, local_steps=5, rng=rng)).members, 4,
    )  # fmt: skip
    np.testing.assert_array_less(abs(share - in_turn([1 / 2, 1 / 3, 1 / 4, 1 / 10], 2)), error)


def test_so_many_are_explored_as_epsilon_says():
    rival = make(Oort, equal_fleet(12), 3)
    teach(rival, range(6), 0, 1.0)
    for r in (0, 20, 90):
        explored = [rival.plan(context(r, seed=seed)).note["explored"] for seed in range(300)]
        assert set(explored) <= {math.floor(3 * rival.epsilon(r)), math.ceil(3 * rival.epsilon(r))}
        assert np.mean(explored) == pytest.approx(3 * rival.epsilon(r), abs=0.12)
        members = rival.plan(context(r)).members
        assert (members >= 6).sum() == rival.plan(context(r)).note["explored"]


def test_what_one_side_cannot_fill_the_other_does():
    rival = make(Oort, equal_fleet(6), 4, exploration=1.0, least_exploration=1.0)
    teach(rival, range(5), 0, 1.0)
    assert 5 in rival.plan(context(1)).members
    assert rival.plan(context(1)).members.size == 4
    greedy = make(Oort, equal_fleet(6), 4, exploration=0.0, least_exploration=0.0)
    assert greedy.plan(context(0)).members.size == 4
    teach(greedy, [1, 2], 0, 1.0)
    members = greedy.plan(context(1)).members
    assert members.size == 4
    assert {1, 2} <= set(members.tolist())


def test_exploitation_cuts_off_and_draws_by_utility():
    """Known to all rounds alike and R = 1, so that U alone decides: 0, 0.5, 0.95, 0.96, 0.98, 1 after scaling."""
    losses = np.array([1.0, 1.5, 1.95, 1.96, 1.98, 2.0])
    rival = make(Oort, equal_fleet(6), 2, exploration=0.0, least_exploration=0.0, clip=1.0, preferred_duration=99.0)
    teach(rival, range(6), 0, losses)
    utility = rival.utilities(np.arange(6), 1)
    np.testing.assert_allclose(utility, losses - 1)
    admitted = [i for i in range(6) if utility[i] >= 0.95 * sorted(utility)[-2]]  # 0.931
    assert admitted == [2, 3, 4, 5]
    expected = np.zeros(6)
    expected[admitted] = in_turn(utility[admitted].tolist(), 2)
    share, error = inclusion_of(
        lambda rng: rival.plan(RoundContext(round_index=0, time=0.0, step_size=0.1, local_steps=5, rng=rng)).members, 6
    )
    np.testing.assert_array_less(abs(share - expected), error)
    rival.options = replace(rival.options, cutoff=1.0)
    assert rival.plan(context(0)).members.tolist() == [4, 5]


def test_slow_clients_are_chosen_less():
    fleet = equal_fleet(4, compute_time=np.array([1.0, 1.0, 1.0, 50.0]))
    rival = make(Oort, fleet, 3, exploration=0.0, least_exploration=0.0)
    assert rival.state.preferred_duration == 4.0, "1 s and three uploads that share the link"
    teach(rival, range(4), 0, 1.0, compute_time=fleet.compute_time)
    assert all(rival.plan(context(r)).members.tolist() == [0, 1, 2] for r in range(10))


def test_draws_without_values_are_uniform_and_never_too_few():
    rng = np.random.default_rng(0)
    for values in (np.zeros(4), np.array([0.0, 0.0, 0.0, 1.0])):
        assert len(set(draw_in_proportion(rng, np.arange(4), values, 3).tolist())) == 3
    share, error = inclusion_of(lambda rng: draw_in_proportion(rng, np.arange(4), np.zeros(4), 1), 4)
    np.testing.assert_array_less(abs(share - 0.25), error)


def test_the_pacer_gives_slow_clients_a_chance_when_utility_falls():
    rival = make(Oort, equal_fleet(4), 1, window=2, preferred_duration=3.0, pacer_step=0.5)
    seen = []
    for r, loss in enumerate([5, 5, 4, 5, 4, 4, 2, 6, 9, 0, 1, 1]):  # windows 10, 9, 8, 8, 9, 2
        teach(rival, [r % 4], r, float(loss))
        seen.append(rival.state.preferred_duration)
    assert seen == [3.0, 3.0, 3.0, 3.5, 3.5, 4.0, 4.0, 4.0, 4.0, 4.0, 4.0, 4.5]
    default = make(Oort, equal_fleet(11, compute_time=np.arange(11.0)), 1)
    assert default.state.preferred_duration == default.pacer_step == 3 + 1, "the 30th percentile of 1, 2, … 11"
    assert make(Oort, equal_fleet(3), 1, preferred_duration=7.0).pacer_step == 7.0


def test_clients_picked_too_often_are_left_out_while_others_remain():
    rival = make(Oort, equal_fleet(5), 2, most_picks=2, exploration=0.0, least_exploration=0.0)
    teach(rival, [0, 1, 2, 3, 4], 0, np.array([9.0, 9.0, 1.0, 1.0, 1.0]))
    assert set(rival.plan(context(1)).members) <= {0, 1}
    teach(rival, [0, 1], 1, 9.0)
    members = rival.plan(context(2)).members
    assert set(members) <= {2, 3, 4}
    assert members.size == 2
    teach(rival, [2, 3, 4], 2, 1.0)
    assert set(rival.plan(context(3)).members) <= {0, 1}, "all were picked too often, so nobody is left out"
    few = np.array([True, False, False, True, False])
    assert rival.plan(context(4, available=few)).members.tolist() == [0, 3]


def test_oort_learns_nothing_from_those_who_fail():
    rival = make(Oort, equal_fleet(3), 2)
    teach(rival, [0, 1], 4, 2.0, failed=[1])
    assert np.isfinite(rival.state.statistical).tolist() == [True, False, False]
    assert rival.state.last_round.tolist() == [5, 0, 0]
    assert rival.state.picks.tolist() == [1, 1, 0]
    assert rival.state.gained == (pytest.approx(2.0 / 3),)
