"""Oort, Power-of-Choice, FedCS and TiFL: what holds for each of them, whoever is available and whatever fails."""

import math

import numpy as np
import pytest

from fedtempo import InputError
from fedtempo.api.simulate import simulate
from fedtempo.learning.softmax import SoftmaxTrainer
from fedtempo.policies.fedcs import FedCS
from fedtempo.policies.oort import Oort
from fedtempo.policies.power_of_choice import PowerOfChoice
from fedtempo.policies.tifl import TiFL
from fedtempo.simulator.absences import WithAbsences
from fedtempo.simulator.fading import FadingChannel
from support.fleets import random_fleet
from support.rounds import TIMES, carry_over, equal_fleet, make, plan_of, play, report_of, written
from support.simulations import goes_on_alike, loop_of

RIVALS = [Oort, PowerOfChoice, FedCS, TiFL]


@pytest.mark.parametrize("policy", RIVALS)
@pytest.mark.parametrize("size", [1, 2, 5, 12])
@pytest.mark.parametrize("cohort_size", [1, 3, 20])
def test_any_fleet_and_any_absence(policy, size, cohort_size):
    fleet = random_fleet(np.random.default_rng(size), size)
    for plan in play(make(policy, fleet, cohort_size), fleet, 40, seed=size):
        if policy is not FedCS:
            assert plan.members.size <= cohort_size
        if policy is PowerOfChoice:
            expected = np.full(plan.members.size, 1 / max(plan.members.size, 1))
        else:
            share = fleet.data_share[plan.members]
            expected = share / share.sum()
        np.testing.assert_allclose(plan.weights, expected)


@pytest.mark.parametrize("policy", RIVALS)
def test_a_fleet_that_is_always_available_gives_full_cohorts(policy):
    fleet = equal_fleet(12)
    for plan in play(make(policy, fleet, 4), fleet, 20, absences=False):
        if policy is not FedCS:
            assert plan.members.size == 4


@pytest.mark.parametrize("policy", RIVALS)
def test_nobody_available_and_everybody_failing(policy):
    fleet = equal_fleet(6)
    rival = make(policy, fleet, 2)
    for r in range(25):
        plan = plan_of(rival, r, np.ones(6), available=None if r % 5 else np.zeros(6, dtype=bool))
        assert plan.members.size == (2 if r % 5 else 0) or policy is FedCS
        rival.observe(report_of(plan, r, 1.0, failed=plan.members))


@pytest.mark.parametrize("policy", RIVALS)
@pytest.mark.parametrize("stop", [0, 1, 7, 20, 45])
def test_a_policy_carried_over_goes_on_alike(policy, stop):
    fleet = random_fleet(np.random.default_rng(3), 11)
    options = {Oort: {"window": 3, "most_picks": 9}, TiFL: {"tiers": 3, "interval": 4, "credits": 6}}.get(policy, {})
    whole = play(make(policy, fleet, 3, **options), fleet, 50)
    first, second = make(policy, fleet, 3, **options), make(policy, fleet, 3, **options)
    begun = play(first, fleet, stop)
    carry_over(first, second)
    assert written(second) == written(first)
    for ours, theirs in zip(begun + play(second, fleet, 50, first=stop), whole, strict=True):
        assert ours.members.tolist() == theirs.members.tolist()
        assert ours.weights.tolist() == theirs.weights.tolist()
        assert ours.note == theirs.note
    assert written(second) == play_to_the_end(policy, fleet, options)


def play_to_the_end(policy, fleet, options):
    rival = make(policy, fleet, 3, **options)
    play(rival, fleet, 50)
    return written(rival)


@pytest.mark.parametrize(
    ("policy", "options", "said"),
    [
        (Oort, {"windw": 3}, "did you mean 'window'"),
        (Oort, {"window": 0}, "window must be a whole number"),
        (Oort, {"exploration": 1.5}, "exploration must lie between 0 and 1"),
        (Oort, {"exploration_decay": -0.1}, "exploration_decay must lie"),
        (Oort, {"least_exploration": "a"}, "least_exploration must lie"),
        (Oort, {"clip": 2}, "clip must lie"),
        (Oort, {"cutoff": True}, "cutoff must lie"),
        (Oort, {"penalty": -1.0}, "penalty must be zero or positive"),
        (Oort, {"preferred_duration": 0.0}, "preferred_duration must be positive"),
        (Oort, {"pacer_step": math.inf}, "pacer_step must be positive"),
        (Oort, {"most_picks": 0}, "most_picks must be a whole number"),
        (PowerOfChoice, {"candidates": 2}, "candidates must be at least the cohort of 3, got 2"),
        (PowerOfChoice, {"candidates": 4.5}, "candidates must be a whole number"),
        (PowerOfChoice, {"d": 5}, "it takes candidates"),
        (FedCS, {"fraction": 0.0}, "fraction must be positive"),
        (FedCS, {"fraction": 1.1}, "fraction must lie between 0 and 1"),
        (FedCS, {"deadline": -1.0}, "deadline must be positive"),
        (FedCS, {"dedline": 1.0}, "did you mean 'deadline'"),
        (TiFL, {"tiers": 0}, "tiers must be a whole number"),
        (TiFL, {"interval": 2.5}, "interval must be a whole number"),
        (TiFL, {"credits": 0}, "credits must be a whole number"),
        (TiFL, {"tires": 4}, "did you mean 'tiers'"),
    ],
)
def test_options_that_cannot_be_are_refused(policy, options, said):
    with pytest.raises(InputError, match=said):
        make(policy, equal_fleet(6), 3, **options)


@pytest.mark.parametrize("policy", RIVALS)
def test_training_makes_progress_and_runs_are_repeatable(small_data, policy):
    def run(seed):
        return simulate(small_data, **TIMES, policy=policy, cohort_size=3, local_steps=10, max_rounds=15, seed=seed)

    result = run(0)
    assert result.summary["loss"] < 0.8 * SoftmaxTrainer(small_data).evaluate(np.zeros_like(result.model)).loss
    assert result.records == run(0).records
    assert [r["members"] for r in result.records] != [r["members"] for r in run(1).records]


@pytest.mark.parametrize("policy", RIVALS)
def test_a_run_on_a_changing_channel_resumes_to_the_byte(small_data, policy):
    fading = FadingChannel(**TIMES, correlation=0.5, seed=2)
    settings = {"channel": WithAbsences(fading, present_share=0.7, seed=3), "rounds": 14, "local_steps": 3}
    goes_on_alike(lambda: loop_of(small_data, TIMES, policy, **settings), (1, 6, 11))
