"""FADAS against its paper's formula, with its delays."""

import numpy as np
import pytest

from fedtempo import InputError
from fedtempo.policies.fadas import FADAS
from support.replayed import played
from support.rounds import TIMES, equal_fleet, make
from support.simulations import loop_of


@pytest.mark.parametrize("server", [{}, {"server_step_size": 0.03, "server_momentum": 0.5, "server_optimiser": "yogi"}])
def test_steps_are_those_of_the_paper(small_data, server):
    loop = loop_of(
        small_data, TIMES, FADAS, rounds=25, cohort_size=2, schedule="constant", step_size=0.05,
        options={"concurrency": 6, "delay_threshold": 2.0}, **server,
    )  # fmt: skip
    beta, size = server.get("server_momentum", 0.9), server.get("server_step_size", 0.01)
    m, v, largest, shortened = 0.0, 0.0, 0.0, 0
    for record, before, after, updates, staleness, _ in played(loop):
        assert record.weights == [0.5, 0.5]
        mean = updates.mean(axis=0)
        m, v = beta * m + (1 - beta) * mean, 0.99 * v + 0.01 * mean**2
        largest = np.maximum(largest, v)
        delay = staleness.max()
        own = size if delay <= 2 else size * 2 / delay
        shortened += delay > 2
        np.testing.assert_allclose(after - before, own * m / (np.sqrt(largest) + 1e-8), rtol=2e-3, atol=2e-6)
    assert 0 < shortened < 25


def test_the_threshold_is_the_flight_in_steps_unless_it_is_given():
    assert make(FADAS, equal_fleet(40), 4).delay_threshold == 2
    assert make(FADAS, equal_fleet(40), 4, concurrency=20).delay_threshold == 5
    assert make(FADAS, equal_fleet(40), 4, delay_threshold=3).delay_threshold == 3
    with pytest.raises(InputError, match="delay_threshold must be positive"):
        make(FADAS, equal_fleet(40), 4, delay_threshold=0)
