"""Draws in turn: as often as probabilities say, evenly spaced, whoever comes and goes, and the same after a stop."""

from collections import deque

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedtempo.theory.inclusion import inclusion_with_sum
from fedtempo.theory.turns import NEAR, Turns, TurnsState
from support.rounds import carry_over


def probabilities(size, spread, seed=3):
    q = np.random.default_rng(seed).lognormal(sigma=spread, size=size)
    return q / q.sum()


def turns_of(size):
    return Turns(TurnsState.at_first(size))


def draw_some(turns, q, number, free, rng):
    """Draw as tempo does, from those near their turn where the fleet is larger than those."""
    if len(q) > NEAR and (found := turns.draw_near(q, number, free, rng)) is not None:
        return found
    turns.settle(q)
    there = np.arange(len(q)) if free is None else np.flatnonzero(free)
    inclusion = inclusion_with_sum(q[there], number)
    chosen = turns.draw(there, inclusion, rng)
    return there[chosen], inclusion[chosen]


@pytest.mark.parametrize("size", [1, 2, 7, 40, 3000])
@pytest.mark.parametrize("number", [1, 4])
@pytest.mark.parametrize("spread", [0.0, 1.0, 3.5])
@pytest.mark.parametrize("there", [1.0, 0.6])
def test_everyone_is_drawn_as_often_as_its_probabilities_add_up_to(size, number, spread, there):
    q, rng, turns = probabilities(size, spread), np.random.default_rng(1), turns_of(size)
    free = rng.random(size) < there
    free[0] = True
    number = min(number, int(free.sum()))
    drawn, draws = np.zeros(size), 1500
    for _ in range(draws):
        chosen, inclusion = draw_some(turns, q, number, None if free.all() else free, rng)
        assert len(set(chosen.tolist())) == number
        assert ((inclusion > 0) & (inclusion <= 1)).all()
        drawn[chosen] += 1
    assert not drawn[~free].any()
    expected = np.zeros(size)
    expected[free] = draws * inclusion_with_sum(q[free], number)
    # A large fleet looks at those near their turn only, so that a few come a little later.
    assert np.abs(drawn - expected).max() < (2.0 if size <= NEAR else 4.0)


def test_turns_are_evenly_spaced():
    q, rng, turns = probabilities(40, 1.0), np.random.default_rng(0), turns_of(40)
    when = [[] for _ in q]
    for step in range(4000):
        for client in draw_some(turns, q, 1, None, rng)[0]:
            when[client].append(step)
    for client, steps in enumerate(when):
        gaps = np.diff(steps)
        assert gaps.max() <= 2.0 / q[client] + 2, "by chance one of a hundred would be 4.6 times the mean"


@pytest.mark.parametrize("size", [40, 3000])
def test_the_most_likely_come_first_in_an_order_that_the_seed_changes(size):
    q, cohorts = probabilities(size, 1.0), []
    for seed in range(5):
        rng, turns = np.random.default_rng(seed), turns_of(size)
        cohorts.append(np.concatenate([draw_some(turns, q, 1, None, rng)[0] for _ in range(size // 4)]))
        assert q[cohorts[-1]].mean() > 1.5 / size
    assert len({tuple(cohort.tolist()) for cohort in cohorts}) == 5


def test_equals_come_in_random_order():
    q, orders = np.full(30, 1 / 30), set()
    for seed in range(5):
        turns, rng = turns_of(30), np.random.default_rng(seed)
        turns.state.begun = True  # alike
        rounds = [tuple(int(draw_some(turns, q, 1, None, rng)[0][0]) for _ in range(30)) for _ in range(2)]
        assert all(sorted(order) == list(range(30)) for order in rounds), "each once before anybody twice"
        orders |= set(rounds)
    assert len(orders) == 10


@given(st.integers(1, 12), st.integers(0, 2**32 - 1))
def test_cohorts_whose_probabilities_add_up_to_no_whole_number(size, seed):
    rng, turns = np.random.default_rng(seed), turns_of(size)
    pi, drawn = rng.uniform(0.05, 1.0, size), np.zeros(size)
    for _ in range(60):
        chosen = turns.draw(np.arange(size), pi, rng)
        assert abs(len(chosen) - pi.sum()) < 1
        drawn[chosen] += 1
    assert np.abs(drawn - 60 * pi).max() < 2
    assert abs(drawn.sum() - 60 * pi.sum()) < 1


@given(st.integers(1, 12), st.integers(0, 2**32 - 1))
def test_credits_keep_to_the_bounds_of_the_theory(size, seed):
    rng, turns = np.random.default_rng(seed), turns_of(size)
    turns.state.begun = True  # at 0
    for _ in range(60):
        # To pour evenly into the fullest is what comes closest to the upper bound.
        fullest = turns.state.credit >= np.quantile(turns.state.credit, rng.random())
        q = np.where(fullest, 1.0, 0.0) if rng.random() < 0.7 else rng.random(size) ** 4
        turns.draw(np.arange(size), q / q.sum(), rng)
        assert turns.state.credit.sum() == pytest.approx(0, abs=1e-9)
        assert turns.state.credit.min() > -1 - 1e-5
        assert turns.state.credit.max() <= sum(1 / j for j in range(2, size + 1)) + 1e-5


@pytest.mark.parametrize("size", [6, 3000])
def test_who_was_away_does_not_come_in_a_row(size):
    q, rng, turns = np.full(size, 1 / size), np.random.default_rng(0), turns_of(size)
    there = np.arange(size) < size // 2
    for step in range(2 * size):
        if step % 30 == 0:
            turns.settle(q)
        draw_some(turns, q, 1, there, rng)
    back = np.array([draw_some(turns, q, 1, None, rng)[0][0] for _ in range(size)])
    assert abs(there[back].sum() - size // 2) <= 1 + size // 100


@pytest.mark.parametrize("size", [60, 1500, 3000])
@pytest.mark.parametrize("spread", [1.0, 3.0])
def test_those_in_flight_lose_nothing(size, spread):
    """The likeliest are nearly always in flight, and q changes while they are."""
    rng, turns = np.random.default_rng(4), turns_of(size)
    both = [probabilities(size, spread, seed) for seed in (5, 6)]
    turns._begin(slice(None), both[0], rng)
    start = turns.state.credit.sum()
    flight, drawn, expected = deque(), np.zeros(size), np.zeros(size)
    for step in range(3000):
        q, free = both[step // 40 % 2], np.ones(size, dtype=bool)
        free[list(flight)] = False
        if step % 40 == 0:
            turns.settle(both[(step // 40 + 1) % 2])
        chosen, inclusion = draw_some(turns, q, 1, free, rng)
        assert inclusion == pytest.approx(q[chosen] / q[free].sum())
        drawn[chosen] += 1
        expected += np.where(free, q / q[free].sum(), 0.0)
        flight.append(int(chosen[0]))
        if len(flight) > 8:
            flight.popleft()
    turns.settle(q)
    assert (turns.state.credit.sum() - start) == pytest.approx(0, abs=1e-6)
    assert np.abs(drawn - expected).max() < 4


@pytest.mark.parametrize("size", [20, 3000])
def test_they_go_on_after_a_stop(size):
    q, rng, turns = probabilities(size, 1.0), np.random.default_rng(0), turns_of(size)
    for _ in range(30):
        draw_some(turns, q, 3, None, rng)
    copy = carry_over(turns, turns_of(size))
    for step in range(200):
        mine, copied = (draw_some(one, q, 3, None, np.random.default_rng(step)) for one in (turns, copy))
        np.testing.assert_array_equal(mine[0], copied[0])
        np.testing.assert_array_equal(mine[1], copied[1])


def test_too_few_near_who_are_free():
    turns, free = turns_of(3000), np.zeros(3000, dtype=bool)
    assert turns.draw_near(np.full(3000, 1 / 3000), 2, ~free, np.random.default_rng(0)) is not None
    free[2999] = True
    assert turns.draw_near(np.full(3000, 1 / 3000), 2, free, np.random.default_rng(0)) is None


@pytest.mark.parametrize("seed", range(3))
def test_everyone_comes_as_often_where_others_are_there_each_time(seed):
    """Each client is there at its own chance, anew for each draw."""
    size, draws = 30, 3000
    rng, turns, drawn, expected = np.random.default_rng(seed), turns_of(size), np.zeros(size), np.zeros(size)
    q, chance = probabilities(size, 1.0), rng.uniform(0.2, 1.0, size)
    for _ in range(draws):
        there = np.flatnonzero(rng.random(size) < chance)
        if there.size:
            inclusion = inclusion_with_sum(q[there], 1)
            expected[there] += inclusion
            drawn[there[turns.draw(there, inclusion, rng)]] += 1
    assert np.abs(drawn - expected).max() < 3
