"""A round under way on Flower nodes: what of its time counts."""

import numpy as np
import pytest

from fedtempo.flower.strategy.assignment import Assignment, ClientReport
from fedtempo.flower.strategy.node_round import RoundClock

NOTHING = Assignment(client=0, model=np.zeros(1), local_steps=1, step_size=0.1, schedule=0.1, bandwidth=1.0)


@pytest.mark.parametrize(
    ("began", "looked", "arrived", "seconds"),
    [
        (10.0, 10.0, [12.0, 14.0], 5.0),  # a round: up to its end, at 15
        (10.0, 13.0, [12.0], 4.0),  # arrived while the server evaluated until 13: from 10 to 12, and from 13 to 15
        (10.0, 13.0, [9.0], 2.0),  # arrived before
        (10.0, 13.0, [14.0], 5.0),  # waited for
        (10.0, 13.0, [12.0, None], 5.0),  # one was waited for in vain
    ],
)
def test_time_in_which_all_had_arrived_does_not_count(began, looked, arrived, seconds):
    reports = [ClientReport(assignment=NOTHING, sent=1.0, arrived=at) for at in arrived]
    assert RoundClock(began, looked).seconds(15.0, reports) == pytest.approx(seconds)


def test_who_was_lost_with_an_earlier_process_is_not_waited_for():
    lost = ClientReport(assignment=NOTHING, sent=None)
    assert RoundClock(10.0, 13.0).seconds(15.0, [lost]) == pytest.approx(5.0)
