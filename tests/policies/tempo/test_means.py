"""How many updates a mean takes, and how many local steps: against all choices, in limits, and in runs."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedtempo import simulate
from fedtempo.data.synthetic import synthetic_data
from fedtempo.policies.policy import RoundPlan
from fedtempo.policies.tempo import constants
from fedtempo.policies.tempo.local_steps import LocalSteps, LocalStepsState
from fedtempo.policies.tempo.means import MeanSeconds, quickest_means
from fedtempo.theory.closed_network import update_time
from support.rounds import report_of

SECONDS = st.floats(1e-6, 1e6)


def time_to_a_loss(arrivals, steps, seconds, usual, bend, most):
    """Return (K + ν) Y(M) (E + E_c - 1)/E, over E_c, by the definition."""
    in_flight = min(max(round((1 + constants.STALE) * arrivals), 1), most)
    gap = update_time(in_flight, seconds.compute * steps / usual + seconds.fixed, seconds.upload).seconds
    return (arrivals + constants.NOISE_OF_AN_UPDATE) * gap * (1 + (steps - 1) * bend) / steps


@given(
    st.builds(MeanSeconds, SECONDS, st.floats(0, 1e6), SECONDS),
    *(st.integers(1, 200), st.floats(0, 1), st.integers(1, 6), st.integers(1, 30)),
)
def test_no_other_choice_takes_less_time(seconds, usual, bend, least, most):
    arguments = (seconds, usual, bend, most)
    found = quickest_means(seconds, usual=usual, bend=bend, least=least, most_in_flight=most)
    best = time_to_a_loss(*found, *arguments)
    assert least <= found.arrivals <= max(most, least)
    assert min(usual, constants.FEWEST_STEPS) <= found.local_steps <= usual
    assert found.local_steps >= usual * constants.SHORTEST_PATH - 0.5
    for arrivals in range(least, max(most, least) + 1):
        assert best <= time_to_a_loss(arrivals, usual, *arguments) * (1 + 1e-12)
    if (1 + constants.STALE) * least > most:
        assert found.local_steps == usual, "in a fleet too small nothing is won"
        return
    fewest = max(math.ceil(usual * constants.SHORTEST_PATH), constants.FEWEST_STEPS)
    any_steps = [time_to_a_loss(found.arrivals, steps, *arguments) for steps in range(min(fewest, usual), usual + 1)]
    # Numbers of steps are looked at on a grid of √2; between two of its places the time differs by less than that.
    assert usual <= 8 or best <= min(any_steps) * constants.FEWER_STEPS


def test_slow_links_want_few_updates_and_long_paths_quick_ones_the_opposite():
    settings = {"usual": 50, "bend": 0.1, "least": 4, "most_in_flight": 25}
    slow, quick = (quickest_means(MeanSeconds(1.0, 0.0, upload), **settings) for upload in (10.0, 0.03))
    assert slow == (4, 50)
    assert quick.local_steps < 25
    at_usual = quickest_means(MeanSeconds(1.0, 0.0, 0.03), **settings | {"bend": None})
    assert at_usual.local_steps == 50
    assert at_usual.arrivals > quick.arrivals, "where computing takes the time, more updates in a mean cost none"


def test_downloads_take_as_long_however_few_local_steps_there_are():
    settings = {"usual": 50, "bend": 0.1, "least": 4, "most_in_flight": 25}
    plain, slow = (quickest_means(MeanSeconds(1.0, fixed, 0.03), **settings) for fixed in (0.0, 10.0))
    assert slow.local_steps == 50 > plain.local_steps


def test_straight_paths_are_as_long_as_usual():
    assert quickest_means(MeanSeconds(1.0, 0.0, 1.0), usual=50, bend=0.0, least=4, most_in_flight=25).local_steps == 50


def test_who_has_nobody_in_flight_but_one():
    assert quickest_means(MeanSeconds(2.0, 0.0, 0.5), usual=4, bend=0.0, least=4, most_in_flight=1) == (4, 4)


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


def test_paths_are_shortened_before_anybody_reports_again(unlike):
    seen, twice = set(), None
    for record in run(unlike, 0.05, max_rounds=20).records:
        if twice is None and min(record.local_steps) < 40:
            twice = bool(seen & set(record.members))
        seen |= set(record.members)
    assert twice is False


@pytest.mark.parametrize(
    "more", [{"clip_norm": 0.1}, {"local_schedule": "cosine"}, {"proximal": 0.1}, {"download_time": 20.0}]
)
def test_paths_are_not_shortened_where_that_does_not_pay_or_nobody_knows(unlike, monkeypatch, more):
    monkeypatch.setattr(constants, "SURPRISE_TO_FOLLOW", 0.0)
    assert min(run(unlike, 0.05, **more).records[-1].local_steps) == 40


def test_rounding_is_no_way_that_was_made():
    noise = np.array([[3.0, 0.0, 0.0, 0.0, 0.0, 0.0]])
    for bits, norm in ((2, 2.0), (32, 1.0)):
        state = LocalStepsState()
        report = replace(
            report_of(RoundPlan(members=[0], weights=[1.0]), 0, 1.0), noise=noise, upload_bits=np.array([bits]),
            update_norm=np.array([norm]), step_size=np.array([0.1]), local_steps=np.array([20]),
            mean_gradient_norm=np.array([1.0]),
        )  # fmt: skip
        LocalSteps(state, synchronous=False).observe(report, 1.0)
        assert state.reached == pytest.approx(10.0), "2/√(1 + 3) over the step size"
