"""The choice of local steps: it finds the best of a path whose shape is known, and brings any start to it."""

from dataclasses import replace

import numpy as np
import pytest

from fedtempo import simulate
from fedtempo.data.synthetic import synthetic_data
from fedtempo.policies.policy import RoundPlan
from fedtempo.policies.tempo.constants import FEWEST_STEPS
from fedtempo.policies.tempo.local_steps import LocalSteps, LocalStepsState
from support.rounds import carry_over, report_of

COHERENCE = 40.0
GRADIENT, STEP_SIZE = 3.0, 0.01


def steps_of(**how):
    return LocalSteps(LocalStepsState(), **{"synchronous": False} | how)


def updates(steps, *, compute, upload, failed=()):
    """Return the report of clients whose paths bend as the choice supposes, one for each number of steps."""
    steps = np.asarray(steps)
    plan = RoundPlan(members=np.arange(len(steps)), weights=np.ones(len(steps)))
    report = report_of(plan, 0, 1.0, failed=failed, compute_time=compute, upload_time=upload)
    reached = STEP_SIZE * GRADIENT * steps * COHERENCE / (steps + COHERENCE - 1)
    return replace(
        report, local_steps=steps, step_size=np.full(len(steps), STEP_SIZE), update_norm=reached,
        mean_gradient_norm=np.full(len(steps), GRADIENT),
    )  # fmt: skip


def way_in_a_second(steps, compute, upload, usual):
    return steps * COHERENCE / (steps + COHERENCE) / (compute * steps / usual + upload)


@pytest.mark.parametrize("usual", [5, 50, 400])
@pytest.mark.parametrize(("compute", "upload"), [(1.0, 1.0), (0.1, 2.0), (20.0, 1.0)])
def test_no_other_number_of_steps_makes_more_way(usual, compute, upload):
    choice = steps_of()
    choice.observe(updates([usual, 2 * usual, usual], compute=compute, upload=2 * upload), total_bandwidth=2.0)
    others = np.arange(FEWEST_STEPS, 10 * usual + 1)
    way = way_in_a_second(choice.best(usual), compute, upload, usual)
    assert way >= 0.999 * way_in_a_second(others, compute, upload, usual).max()


def test_a_synchronous_round_waits_for_the_slowest_and_carries_all():
    report = updates([50, 50, 50], compute=[1.0, 2.0, 4.0], upload=[1.0, 1.0, 2.0])
    choices = [steps_of(synchronous=synchronous) for synchronous in (True, False)]
    for choice in choices:
        choice.observe(report, total_bandwidth=1.0)
    expected = [(COHERENCE * 50 * ratio) ** 0.5 for ratio in (4.0 / 4.0, (4 / 3) / (7 / 3))]
    assert [choice.best(50) for choice in choices] == [round(steps) for steps in expected]


def test_momentum_shortens_the_coherence():
    report, chosen = updates([50], compute=1.0, upload=1.0), []
    for momentum in (0.0, 0.75):
        choice = steps_of(server_momentum=momentum)
        choice.observe(report, total_bandwidth=1.0)
        chosen.append(choice.best(50))
    assert chosen[0] == pytest.approx(2 * chosen[1], abs=1)


def test_nothing_is_learned_from_those_who_failed_or_ran_one_step():
    choice = steps_of()
    choice.observe(updates([50, 1], compute=1.0, upload=1.0, failed=[0]), total_bandwidth=1.0)
    assert choice.best(50) == 50
    choice.observe(updates([50, 1], compute=0.0, upload=1.0), total_bandwidth=1.0)
    assert choice.best(50) == 500, "computing takes no time"


def test_where_others_run_one_step_two_are_run_to_learn_from():
    assert steps_of().best(1) == 2


def test_what_was_learned_is_carried_over():
    first, second = steps_of(), steps_of()
    first.observe(updates([20, 30], compute=1.0, upload=3.0), total_bandwidth=1.0)
    assert carry_over(first, second).best(50) == first.best(50) != 50


@pytest.mark.parametrize("overlap", [True, False])
def test_runs_that_start_from_other_numbers_of_steps_come_to_the_same(overlap):
    """Nobody needs to know the right number beforehand; the clock sees what was chosen."""
    data = synthetic_data(alpha=1.0, beta=1.0, num_clients=10, num_samples=1000, seed=1)
    late = []
    for usual in (10, 160):
        result = simulate(
            data, policy="tempo", options={"choose_local_steps": True, "overlap": overlap}, cohort_size=3,
            compute_time=np.linspace(0.01, 0.2, 10) * usual, upload_time=np.linspace(1.5, 0.2, 10), local_steps=usual,
            step_size=0.01, schedule="constant", max_rounds=80, evaluate_every=80,
        )  # fmt: skip
        assert set(result.records[0]["local_steps"]) == {usual}
        late.append(np.mean(np.concatenate([record["local_steps"] for record in result.records[-30:]])))
    assert late[0] == pytest.approx(late[1], rel=0.35)
    assert 10 < late[0] < 160
