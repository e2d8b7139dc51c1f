"""What a client is asked for, and what it reports of it."""

import numpy as np
import pytest

from fedtempo.engine.clients import Start
from fedtempo.flower.strategy.assignment import ClientReport, assign
from fedtempo.flower.strategy.messages import COMPUTE_SECONDS
from fedtempo.learning.trainer import NO_BUFFERS

START = Start(
    model=np.zeros(3, np.float32), buffers=NO_BUFFERS, round_index=4, rounds_done=9, time=1.0, step_size=0.5
)  # fmt: skip


def assignments(**more):
    how = {"local_steps": [5, 6], "step_size": 0.25, "schedule": 0.5, "bandwidth": [0.1, 0.9]} | more
    return assign(START, np.array([7, 3]), **how)


def test_each_client_has_its_own_numbers_and_all_start_from_the_same_model():
    first, second = assignments(weights=[2.0, 3.0], kept={3: {}})
    assert (first.client, first.local_steps, first.step_size, first.bandwidth, first.weight) == (7, 5, 0.25, 0.1, 2.0)
    assert (second.client, second.local_steps, second.fetched, first.fetched) == (3, 6, True, False)
    assert {one.version for one in (first, second)} == {4}
    assert first.model is second.model is START.model
    assert second.path == 6 * 0.25


@pytest.mark.parametrize(
    ("reported", "kept", "seconds"), [(2.0, (), 2.0), (4.0, (), None), (4.0, (7,), 4.0), (-1.0, (), None)]
)
def test_nobody_computes_for_longer_than_it_took_to_answer(reported, kept, seconds):
    one = ClientReport(
        assignment=assignments(kept=kept)[0], sent=10.0, arrived=13.0, numbers={COMPUTE_SECONDS: reported}
    )  # fmt: skip
    assert one.compute_seconds == seconds


def test_who_does_not_say_how_long_it_computed_has_no_seconds():
    one = ClientReport(assignment=assignments()[0], sent=10.0, arrived=13.0)
    assert one.compute_seconds is None
