"""What a strategy on Flower refuses by name, before any node is asked."""

import pytest

from fedtempo import InputError
from fedtempo.flower.strategy.settings import IN_THE_SIMULATOR
from fedtempo.flower.strategy.tempo_strategy import TempoStrategy

GIVEN = {
    "upload_top": {"upload_top": 0.1},
    "error_feedback": {"error_feedback": True, "upload_bits": 4},
    "local_correction": {"local_correction": True, "server_memory": True},
}


@pytest.mark.parametrize("clock", ["wall", "simulated"])
@pytest.mark.parametrize("name", IN_THE_SIMULATOR)
def test_settings_that_no_node_follows_are_refused(name, clock):
    with pytest.raises(InputError, match=f"{name} must be left out on Flower"):
        TempoStrategy("weighted", cohort_size=2, clock=clock, **GIVEN[name])
