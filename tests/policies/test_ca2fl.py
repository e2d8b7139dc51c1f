"""CA²FL against its paper's formula."""

import numpy as np
import pytest

from fedtempo import InputError
from fedtempo.policies.ca2fl import CA2FL
from support.replayed import played
from support.rounds import TIMES, equal_fleet, make
from support.simulations import loop_of


def test_steps_are_those_of_the_paper(small_data):
    """By v = h + 1/K Σ (Δ - h_j), once all have reported; before, the mean of the others stands in for who has not."""
    loop = loop_of(
        small_data, TIMES, CA2FL, rounds=40, cohort_size=2, schedule="constant", step_size=0.05, evaluate_every=40
    )
    share, cache, complete, stale = small_data.data_share, {}, 0, 0
    for record, before, after, updates, staleness, _ in played(loop):
        known = sum(share[i] for i in cache)
        usual = sum((share[i] * h for i, h in cache.items()), np.zeros(before.size)) / (known or 1.0)
        complete += len(cache) == len(share)
        stale += int(staleness.sum())
        step = usual + sum(
            (update - cache.get(i, usual)) / 2 for i, update in zip(record.members, updates, strict=True)
        )
        cache |= dict(zip(record.members, updates, strict=True))
        np.testing.assert_allclose(after, before + step, atol=3e-6)
        assert record.weights == [0.5, 0.5], "stale updates count in full"
    assert complete > 5
    assert stale > 5


def test_its_server_has_a_memory_of_as_many_bits_as_asked():
    whole, small = make(CA2FL, equal_fleet(6), 2), make(CA2FL, equal_fleet(6), 2, memory_bits=8)
    assert (whole.server_memory, whole.memory_bits, small.memory_bits) == (True, 32, 8)
    with pytest.raises(InputError, match="memory_bits must be one of 8, 32, got 4"):
        make(CA2FL, equal_fleet(6), 2, memory_bits=4)
