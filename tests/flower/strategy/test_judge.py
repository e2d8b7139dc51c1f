"""What may reach the model, and what a client may say of itself."""

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord

from fedtempo.flower.strategy.judge import Job, Judge
from fedtempo.flower.strategy.layout import Layout, is_trained

SIZE = 400


def layout_of(**arrays):
    return Layout(ArrayRecord([np.zeros(SIZE, np.float32)]) if not arrays else ArrayRecord(arrays))


def job(rms, client=0, start=0.0):
    """Return the job of a client whose update changes each parameter by so much."""
    model = np.full(SIZE, start, np.float32)
    update = np.full(SIZE, rms, np.float32)
    return Job(client, 1.0, 10, 0.1, 0.1, model, 0.0, update=update)


def judged(judge, *jobs):
    judge.refuse_absurd(list(jobs))
    return [one.update is not None for one in jobs]


@pytest.mark.parametrize("start", [0.0, 1e-7, 1.0])
def test_a_first_update_that_comes_alone_is_taken_if_it_can_be(start):
    assert judged(Judge(layout_of()), job(0.01, start=start)) == [True]
    assert judged(Judge(layout_of()), job(5.0, start=start)) == [True]
    assert judged(Judge(layout_of()), job(1e6, start=start)) == [False]


def test_after_an_absurd_first_update_honest_ones_are_taken_and_absurd_ones_are_not():
    judge = Judge(layout_of())
    assert [judged(judge, job(1e6, client=1)) for _ in range(3)] == [[False]] * 3
    assert judged(judge, job(0.01, client=0)) == [True]
    assert judged(judge, job(1e6, client=1)) == [False]
    assert judged(judge, job(0.02, client=0)) == [True]


@pytest.mark.parametrize("before", [[], [0.0]])
def test_a_scale_that_nobody_expected_does_not_shut_everyone_out(before):
    judge = Judge(layout_of())
    for rms in before:
        assert judged(judge, job(rms)) == [True], "an update of nothing does no harm, and tells nothing"
    assert judged(judge, job(300.0, client=1)) == [False]
    assert [judged(judge, job(300.0 + number, client=number)) for number in range(2, 7)] == [[True]] * 5


def test_what_is_usual_is_still_known_when_a_run_goes_on():
    one, other = Judge(layout_of()), Judge(layout_of())
    judged(one, job(0.1), job(0.2, client=1), job(0.1, client=2))
    one.believe(np.array([1.0, 2.0, 3.0]))
    other.restore(one.state())
    assert judged(other, job(1e3)) == [False]
    assert other.believe(np.array([1e9])).tolist() == [False]


def with_statistics(variance, client=0):
    """Return the judge of a model with batch normalisation, and what judges a reply of one client."""
    sent = {"weight": np.ones(2, np.float32), "bn.running_var": np.array(variance, np.float32)}
    one = Job(client, 1.0, 10, 0.1, 0.1, np.zeros(2, np.float32), 0.0)
    return one, ArrayRecord({name: Array(values) for name, values in sent.items()})


def judged_statistics(judge, *variances):
    jobs = []
    for client, variance in enumerate(variances):
        one, arrays = with_statistics(variance, client)
        judge.read(one, arrays)
        jobs.append(one)
    return judged(judge, *jobs)


def test_statistics_of_batch_normalisation_must_be_some():
    judge = Judge(Layout(with_statistics([1.0, 1.0])[1]))
    assert judged_statistics(judge, [0.5, 2.0], [-1e-9, 1.0], [np.nan, 1.0]) == [True, False, False]
    assert judged_statistics(judge, [0.5, 2.0], [1e30, 1.0], [3.0, 1.0]) == [True, False, True]
    assert judged_statistics(judge, [1e30, 1.0]) == [False]


def test_inputs_that_nobody_scaled_shut_nobody_out():
    judge = Judge(Layout(with_statistics([1.0, 1.0])[1]))
    for _ in range(3):
        assert judged_statistics(judge, [1e9, 2e9]) == [True]
        assert judged_statistics(judge, [3e9, 2e9], [1e9, 1e9]) == [True, True]


def test_only_arrays_that_are_trained_count_as_trained():
    assert is_trained("layer.weight", "float32")
    assert not any(is_trained(*one) for one in (("bn.running_mean", "float32"), ("bn.num_batches", "int64")))


def test_gradients_that_cannot_be_are_not_believed():
    judge = Judge(layout_of())
    assert judge.believe(np.array([1.0, -1.0, 3.0])).tolist() == [True, False, True]
    assert judge.believe(np.array([2.0, 1e6])).tolist() == [True, False]
    assert judge.believe(np.array([1e6])).tolist() == [False]
    assert judge.believe(np.array([90.0, 0.0])).tolist() == [True, True]


@pytest.mark.parametrize(("told", "fetched", "seconds"), [(2.0, False, 2.0), (4.0, False, -1.0), (4.0, True, 4.0)])
def test_nobody_computes_for_longer_than_it_took_to_answer(told, fetched, seconds):
    one = job(0.1)
    one.sent, one.arrived, one.fetched, one.numbers = 10.0, 13.0, fetched, {"compute-seconds": told}
    assert one.seconds_told() == seconds
