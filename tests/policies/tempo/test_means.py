"""How many updates a mean takes, and how many local steps: against all choices, in limits, and in runs."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedtempo import simulate
from fedtempo.data.synthetic import synthetic_data
from fedtempo.policies.tempo import constants
from fedtempo.policies.tempo.means import quickest_means
from fedtempo.theory.closed_network import update_time

SECONDS = st.floats(1e-6, 1e6)


def time_to_a_loss(arrivals, steps, compute, upload, usual, bend, least, most):
    """Return (K + κ) Y(M) (E + E_c - 1)/E, over E_c, by the definition."""
    in_flight = min(max(round((1 + constants.STALE) * arrivals), 1), most)
    gap = update_time(in_flight, compute * steps / usual, upload).seconds
    return (arrivals + least) * gap * (1 + (steps - 1) * bend) / steps


@given(SECONDS, SECONDS, st.integers(1, 200), st.floats(0, 1), st.integers(1, 6), st.integers(1, 30))
def test_no_other_choice_takes_less_time(compute, upload, usual, bend, least, most):
    arguments = (compute, upload, usual, bend, least, most)
    found = quickest_means(compute, upload, usual=usual, bend=bend, least=least, most_in_flight=most)
    best = time_to_a_loss(*found, *arguments)
    assert least <= found.arrivals <= max(most, least)
    assert min(usual, constants.FEWEST_STEPS) <= found.local_steps <= usual
    for arrivals in range(least, max(most, least) + 1):
        assert best <= time_to_a_loss(arrivals, usual, *arguments) * (1 + 1e-12)
    any_steps = [time_to_a_loss(found.arrivals, steps, *arguments) for steps in range(1, usual + 1)]
    # Numbers of steps are looked at on a grid of √2; between two of its places the time differs by less than that.
    assert usual <= 4 or best <= min(any_steps[1:]) * constants.FEWER_STEPS


def test_slow_links_want_few_updates_and_long_paths_quick_ones_the_opposite():
    settings = {"usual": 50, "bend": 0.1, "least": 4, "most_in_flight": 25}
    slow, quick = (quickest_means(1.0, upload, **settings) for upload in (10.0, 0.03))
    assert slow == (4, 50)
    assert quick.local_steps < 25
    at_usual = quickest_means(1.0, 0.03, **settings | {"bend": None})
    assert at_usual.local_steps == 50
    assert at_usual.arrivals > quick.arrivals, "where computing takes the time, more updates in a mean cost none"


def test_straight_paths_are_as_long_as_usual():
    assert quickest_means(1.0, 1.0, usual=50, bend=0.0, least=4, most_in_flight=25).local_steps == 50


def test_who_has_nobody_in_flight_but_one():
    assert quickest_means(2.0, 0.5, usual=4, bend=0.0, least=4, most_in_flight=1) == (4, 4)


@pytest.fixture(scope="module")
def unlike():
    return synthetic_data(alpha=1.0, beta=1.0, num_clients=40, num_samples=3000, seed=3)


def run(data, upload_time, **more):
    settings = {"cohort_size": 4, "local_steps": 40, "step_size": 0.05, "schedule": "constant", "max_rounds": 60}
    tau = np.random.default_rng(0).exponential(size=40)
    return simulate(data, policy="tempo", compute_time=tau, upload_time=upload_time, seed=1, **settings | more)


def test_a_memory_that_fails_brings_shorter_paths_and_one_that_holds_does_not(unlike, monkeypatch):
    held = run(unlike, 0.05, step_size=0.005)
    assert all(record.note["follows_memory"] for record in held.records[20:])
    assert all(set(record.local_steps) == {40} for record in held.records)
    monkeypatch.setattr(constants, "SURPRISE_TO_FOLLOW", 0.0)
    failed = run(unlike, 0.05)
    assert not any(record.note["follows_memory"] for record in failed.records)
    assert max(failed.records[-1].local_steps) < 40
    assert len(failed.records[-1].members) >= 4
    slow = run(unlike, 5.0)
    assert min(slow.records[-1].local_steps) > max(failed.records[-1].local_steps)
