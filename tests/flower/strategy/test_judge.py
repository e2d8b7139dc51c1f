"""What may reach the model, and what a client may say of itself."""

from dataclasses import replace

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord

from fedtempo.flower.strategy.assignment import Assignment, ClientReport
from fedtempo.flower.strategy.failures import Failure, FailureKind
from fedtempo.flower.strategy.judge import Judge, JudgeState
from fedtempo.flower.strategy.layout import Layout
from fedtempo.state import read_state, write_state

SIZE = 400


def judge_of(*arrays, state=None):
    """Return the judge of a model; without arrays, one that is zero."""
    return Judge(Layout.of(ArrayRecord(list(arrays) or [np.zeros(SIZE, np.float32)])), state)


def assignment(client=0, start=0.0, **more):
    model = np.full(SIZE, start, np.float32)
    return Assignment(
        client=client, model=model, local_steps=10, step_size=0.1, schedule=0.1, bandwidth=1.0, **more
    )  # fmt: skip


def report(rms, client=0, start=0.0):
    """Return the report of a client whose update changes each parameter by so much."""
    return ClientReport(assignment=assignment(client, start), sent=0.0, update=np.full(SIZE, rms, np.float32))


def judged(judge, *reports):
    found = judge.refuse_absurd(list(reports))
    for one in found:
        assert (one.update is None) == (one.failure is not None and one.failure.kind is FailureKind.REFUSED)
    return [one.update is not None for one in found]


@pytest.mark.parametrize("start", [0.0, 1e-7, 1.0])
def test_a_first_update_that_comes_alone_is_taken_if_it_can_be(start):
    assert judged(judge_of(), report(0.01, start=start)) == [True]
    assert judged(judge_of(), report(5.0, start=start)) == [True]
    assert judged(judge_of(), report(1e6, start=start)) == [False]


def test_after_an_absurd_first_update_honest_ones_are_taken_and_absurd_ones_are_not():
    judge = judge_of()
    assert [judged(judge, report(1e6, client=1)) for _ in range(3)] == [[False]] * 3
    assert judged(judge, report(0.01, client=0)) == [True]
    assert judged(judge, report(1e6, client=1)) == [False]
    assert judged(judge, report(0.02, client=0)) == [True]


@pytest.mark.parametrize("before", [[], [0.0]])
def test_a_scale_that_nobody_expected_does_not_shut_everyone_out(before):
    judge = judge_of()
    for rms in before:
        assert judged(judge, report(rms)) == [True], "an update of nothing does no harm, and says nothing"
    assert judged(judge, report(300.0, client=1)) == [False]
    assert [judged(judge, report(300.0 + number, client=number)) for number in range(2, 7)] == [[True]] * 5


def carried_over(judge):
    """Return the judge of a new process, which knows the state alone."""
    return judge_of(state=read_state(JudgeState, write_state(judge.state)))


def test_what_is_usual_is_still_known_when_a_run_goes_on():
    judge = judge_of()
    judged(judge, report(0.1), report(0.2, client=1), report(0.1, client=2))
    judge.believe(np.array([1.0, 2.0, 3.0]))
    other = carried_over(judge)
    assert judged(other, report(1e3)) == [False]
    assert other.believe(np.array([1e9])).tolist() == [False]


def test_the_update_that_was_refused_last_is_still_known_when_a_run_goes_on():
    """Without it, a scale that nobody expected would be refused once more for each new process."""
    judge = judge_of()
    assert judged(judge, report(300.0, client=1)) == [False]
    assert judged(carried_over(judge), report(301.0, client=2)) == [True]
    assert judged(judge_of(), report(301.0, client=2)) == [False]


def model_with(variance):
    """Return a model with batch normalisation."""
    arrays = {"weight": np.ones(2, np.float32), "bn.running_var": np.array(variance, np.float32)}
    return ArrayRecord({name: Array(values) for name, values in arrays.items()})


def judged_statistics(judge, *variances):
    reports = []
    for client, variance in enumerate(variances):
        one = ClientReport(assignment=replace(assignment(client), model=np.zeros(2, np.float32)), sent=0.0)
        found = judge.read(one.assignment.model, model_with(variance))
        if isinstance(found, Failure):
            reports.append(replace(one, failure=found))
        else:
            reports.append(replace(one, update=found[0], buffers=found[1]))
    return judged(judge, *reports)


def test_statistics_of_batch_normalisation_must_be_some():
    judge = Judge(Layout.of(model_with([1.0, 1.0])))
    assert judged_statistics(judge, [0.5, 2.0], [-1e-9, 1.0], [np.nan, 1.0]) == [True, False, False]
    assert judged_statistics(judge, [0.5, 2.0], [1e30, 1.0], [3.0, 1.0]) == [True, False, True]
    assert judged_statistics(judge, [1e30, 1.0]) == [False]


def test_inputs_that_nobody_scaled_shut_nobody_out():
    judge = Judge(Layout.of(model_with([1.0, 1.0])))
    for _ in range(3):
        assert judged_statistics(judge, [1e9, 2e9]) == [True]
        assert judged_statistics(judge, [3e9, 2e9], [1e9, 1e9]) == [True, True]


def test_gradients_that_cannot_be_are_not_believed():
    judge = judge_of()
    assert judge.believe(np.array([1.0, -1.0, 3.0])).tolist() == [True, False, True]
    assert judge.believe(np.array([2.0, 1e6])).tolist() == [True, False]
    assert judge.believe(np.array([1e6])).tolist() == [False]
    assert judge.believe(np.array([90.0, 0.0])).tolist() == [True, True]
