"""TiFL: tiers by latency, their probabilities and their credits."""

import math

import numpy as np
import pytest

from fedtempo import Fleet
from fedtempo.policies.policy import RoundContext
from fedtempo.policies.tifl import TiFL, tier_probabilities
from support.rounds import context, equal_fleet, inclusion_of, make, teach


def test_tiers_by_latency_and_credits_by_speed():
    """Latencies of K = 2: τ + 2 t."""
    fleet = equal_fleet(7, compute_time=np.array([5.0, 0.0, 1.0, 8.0, 2.0, 0.5, 3.0]))
    rival = make(TiFL, fleet, 2, tiers=3, credits=100)
    rival.plan(context())
    assert rival.state.tier.tolist() == [2, 0, 0, 2, 1, 0, 1], "2, 2.5, 3 | 4, 5 | 7, 10"
    given = [100, math.ceil(100 * 2.5 / 4.5), math.ceil(100 * 2.5 / 8.5)]
    given[rival.state.current] -= 1
    assert rival.state.credits.tolist() == given
    assert make(TiFL, equal_fleet(100), 10).tiers == 5
    assert make(TiFL, equal_fleet(11), 3).tiers == 3, "each tier must hold a cohort"
    assert make(TiFL, equal_fleet(2), 5).tiers == 1
    assert make(TiFL, equal_fleet(2), 5, tiers=4).tiers == 2


def test_probabilities_of_tiers_by_rank():
    every = np.ones(3, dtype=bool)
    np.testing.assert_allclose(tier_probabilities(np.array([3.0, 1.0, 2.0]), every), [3 / 6, 1 / 6, 2 / 6])
    some = np.array([True, False, True, True])
    np.testing.assert_allclose(tier_probabilities(np.array([1.0, 9.0, np.nan, 2.0]), some), [1 / 6, 0, 3 / 6, 2 / 6])
    np.testing.assert_allclose(tier_probabilities(np.array([2.0, 2.0, 2.0]), every), [3 / 6, 2 / 6, 1 / 6])
    np.testing.assert_allclose(tier_probabilities(np.array([np.nan]), every[:1]), [1])
    np.testing.assert_array_equal(tier_probabilities(np.ones(3), ~every), [0, 0, 0])


def test_the_score_of_a_tier_is_the_mean_loss_lately_reported():
    share = np.array([0.1, 0.3, 0.2, 0.4])
    rival = make(TiFL, Fleet(share, 1.0, np.arange(4.0), np.ones(4)), 1, tiers=2)
    rival.plan(context())
    assert np.isnan(rival.tier_scores()).all()
    teach(rival, [0, 1], 0, np.array([4.0, 2.0, 0.0, 0.0]))
    teach(rival, [1, 2], 1, np.array([9.0, 1.0, 9.0, 9.0]), failed=[2])
    scores = rival.tier_scores()
    assert scores[0] == pytest.approx((0.1 * 4 + 0.3 * 1) / 0.4)
    assert np.isnan(scores[1])
    teach(rival, [3], 2, 5.0)
    assert rival.tier_scores()[1] == pytest.approx(5)


def test_probabilities_change_only_when_the_tier_drawn_last_stalls():
    fleet = equal_fleet(6, compute_time=np.arange(6.0))
    rival = make(TiFL, fleet, 2, tiers=3, interval=2)
    losses = np.array([1.0, 1.0, 2.0, 2.0, 3.0, 3.0])
    rival.plan(context(0))
    teach(rival, range(6), 0, losses, compute_time=fleet.compute_time)
    rival.plan(context(1))
    np.testing.assert_allclose(rival.state.probability, 1 / 3)
    rival.plan(context(2))  # nothing to compare with yet: change
    np.testing.assert_allclose(rival.state.probability, [1 / 6, 2 / 6, 3 / 6])
    rival.state.current = 0
    teach(rival, range(6), 2, losses[::-1] * [1, 1, 1, 1, 0.9, 0.9], compute_time=fleet.compute_time)
    rival.plan(context(3))
    np.testing.assert_allclose(rival.state.probability, [1 / 6, 2 / 6, 3 / 6])
    rival.state.current = 2  # the one that improved
    rival.plan(context(4))
    np.testing.assert_allclose(rival.state.probability, [1 / 6, 2 / 6, 3 / 6])
    rival.state.current = 1  # no better than before
    rival.plan(context(6))
    np.testing.assert_allclose(rival.state.probability, [3 / 6, 2 / 6, 1 / 6])


def test_members_come_uniformly_from_the_tier_drawn():
    fleet = equal_fleet(6, compute_time=np.array([0.0, 1.0, 0.5, 9.0, 8.0, 7.0]))
    tiers = []

    def draw(rng):
        plan = make(TiFL, fleet, 2, tiers=2).plan(
            RoundContext(round_index=0, time=0.0, step_size=0.1, local_steps=5, rng=rng)
        )
        tiers.append(plan.note["tier"])
        assert set(plan.members) <= ({3, 4, 5} if tiers[-1] else {0, 1, 2})
        return plan.members

    share, error = inclusion_of(draw, 6, 1500)
    np.testing.assert_array_less(abs(share - 1 / 3), error)
    assert np.mean(tiers) == pytest.approx(0.5, abs=0.06)


def test_credits_limit_a_tier_and_come_back_when_all_are_spent():
    fleet = equal_fleet(4, compute_time=np.array([0.0, 0.0, 2.0, 2.0]), upload_time=np.full(4, 0.5))
    rival = make(TiFL, fleet, 2, tiers=2, credits=6, interval=100)  # latencies 1 and 3: credits 6 and 2
    for period in range(3):
        tiers = [rival.plan(context(1 + 8 * period + r) if period or r else context(0)).note["tier"] for r in range(8)]
        assert tiers.count(0) == 6
        assert tiers.count(1) == 2


def test_a_tier_with_nobody_available_is_not_drawn():
    fleet = equal_fleet(6, compute_time=np.arange(6.0))
    rival = make(TiFL, fleet, 2, tiers=3, credits=2)
    for r in range(20):
        plan = rival.plan(context(r, available=np.array([False, False, True, False, False, False])))
        assert plan.members.tolist() == [2]
        assert plan.weights.tolist() == [1.0]
    rival.state.probability = np.array([1.0, 0.0, 0.0])
    assert rival.plan(context(21, available=np.arange(6) == 5)).members.tolist() == [5]


def test_tiers_follow_the_mean_latency():
    fleet = equal_fleet(4)
    rival = make(TiFL, fleet, 1, tiers=2, interval=3)
    early, late = np.array([1.0, 2.0, 3.0, 4.0]), np.array([9.0, 1.0, 1.0, 9.0])
    # Round 0 reports 1, 2, 3, 4; rounds 1 to 3 a mean of 19/3, 4/3, 5/3, 22/3; rounds 4 to 6 one of 1, 2, 3, 4 again.
    for r, now in enumerate((early, early, late, late, early, early, early)):
        rival.plan(context(r, compute_time=now, upload_time=np.ones(4)))
        assert rival.state.tier.tolist() == ([1, 0, 0, 1] if 3 <= r < 6 else [0, 0, 1, 1])
    quiet = make(TiFL, fleet, 1, tiers=2, interval=1)
    quiet.plan(context(0))
    teach(quiet, [0, 1], 0, 1.0, compute_time=5.0)
    quiet.plan(context(1))
    assert quiet.state.tier.tolist() == [1, 1, 0, 0], "measured where nobody reports times"
