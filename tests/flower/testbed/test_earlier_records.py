"""Records of an earlier run on the testbed: whose results are shown again."""

import pytest

from fedtempo.engine.records import Header, Records, Summary
from fedtempo.flower.testbed.earlier_records import holds_all
from support.processes import TABLE

THREE_ROUNDS = Summary(
    end="max_rounds", rounds=3, time=1.0, pilot_rounds=0, pilot_time=0.0, loss=None, accuracy=None, time_to_loss=None,
    time_to_accuracy=None,
)  # fmt: skip


@pytest.mark.parametrize(
    ("asked", "clock", "same"),
    [
        ({}, "wall", True),
        ({"stop": {"max_rounds": 2}}, "wall", False),
        ({"stop": {"max_rounds": 4}}, "wall", False),
        ({"training": {"cohort_size": 3}}, "wall", False),
        ({}, "simulated", False),
    ],
    ids=["the same", "fewer rounds", "more rounds", "another cohort size", "a simulated run"],
)
def test_results_are_shown_again_only_of_the_same_run_on_real_nodes(asked, clock, same):
    header = Header(
        experiment="", preset=None, policy="uniform", seed=0, config=TABLE, data_checksum="", samples=[1], clock=clock
    )
    table = {name: section | asked[name] if name in asked else section for name, section in TABLE.items()}
    assert holds_all(Records(header, [], THREE_ROUNDS), table, table["stop"]["max_rounds"]) == same
    assert not holds_all(Records(header, [], None), table, 3), "it has not ended"
    assert not holds_all(None, table, 3)
