"""FedACG against its paper's formula."""

import numpy as np
import pytest

from fedtempo import InputError
from fedtempo.policies.fedacg import FedACG
from fedtempo.policies.policy import PolicySetting
from support.replayed import played
from support.rounds import TIMES, equal_fleet, make
from support.simulations import loop_of


@pytest.mark.parametrize(("options", "training", "factor"), [
    ({}, {}, 0.85), ({"momentum": 0.3}, {"server_momentum": 0.6}, 0.3), ({}, {"server_momentum": 0.6}, 0.6),
])  # fmt: skip
def test_clients_start_ahead_and_the_server_steps_as_in_the_paper(small_data, options, training, factor):
    loop = loop_of(
        small_data, TIMES, FedACG, rounds=10, schedule="constant", step_size=0.05, options=options, **training
    )
    moved = [np.zeros(loop.state.model.size)]  # m, round by round
    for record, before, after, updates, _, starts in played(loop, lambda model: model + factor * moved[-1]):
        np.testing.assert_allclose(starts[0], before + factor * moved[-1])
        moved.append(factor * moved[-1] + np.array(record.weights) @ updates)
        assert sum(record.weights) == pytest.approx(1)
        np.testing.assert_allclose(after, before + moved[-1], atol=3e-6)


def test_without_momentum_it_is_weighted_sampling(small_data):
    runs = [
        list(loop_of(small_data, TIMES, policy, options=options).rounds())
        for policy, options in ((FedACG, {"momentum": 0.0}), ("weighted", {}))
    ]
    assert runs[0] == runs[1]


def test_its_momentum_comes_from_the_option_the_settings_or_the_paper():
    fleet = equal_fleet(4)
    assert make(FedACG, fleet, 2).server_momentum == 0.85
    assert FedACG(PolicySetting(fleet=fleet, cohort_size=2, server_momentum=0.5)).server_momentum == 0.5
    with pytest.raises(InputError, match="momentum must be below 1"):
        make(FedACG, fleet, 2, momentum=1.0)
