"""What may reach the model, and what a client may say of itself."""

import numpy as np
import pytest
from flwr.app import ArrayRecord

from fedtempo.flower.arrays import Layout, is_trained
from fedtempo.flower.jobs import Job, Judge

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
    assert judged(judge, job(1e6)) == [False]
    assert judged(judge, job(0.01)) == [True]
    assert judged(judge, job(1e6)) == [False]
    assert judged(judge, job(0.02)) == [True]


def test_a_scale_that_nobody_expected_does_not_shut_everyone_out():
    judge = Judge(layout_of())
    assert judged(judge, job(300.0)) == [False]
    assert [judged(judge, job(300.0 + number)) for number in range(5)] == [[True]] * 5


def test_statistics_of_batch_normalisation_must_be_some():
    first = {"weight": np.ones(2, np.float32), "bn.running_var": np.ones(2, np.float32)}
    judge = Judge(Layout(ArrayRecord({name: ArrayRecord([one])["0"] for name, one in first.items()})))
    for variance, taken in (([0.5, 2.0], True), ([-1e-9, 1.0], False), ([1e30, 1.0], False), ([np.nan, 1.0], False)):
        sent = {**first, "bn.running_var": np.array(variance, np.float32)}
        one = Job(0, 1.0, 10, 0.1, 0.1, np.ones(2, np.float32), 0.0)
        judge.read(one, ArrayRecord({name: ArrayRecord([values])["0"] for name, values in sent.items()}))
        assert (one.update is not None) == taken
        assert taken or one.failure.startswith("refused: ")


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
