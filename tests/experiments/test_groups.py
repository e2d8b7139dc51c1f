"""Groups of runs."""

from dataclasses import replace

from fedtempo.experiments.groups import grouped
from support.hand_made import hand_made_run


def test_groups_stand_in_the_order_of_their_numbers():
    labels = ("K = 10", "b", "K = 5", "K = 5", "K = 7.5", "K")
    runs = [replace(hand_made_run([1.0]), policy=label) for label in labels]
    groups = grouped(runs)
    assert list(groups) == ["K", "K = 5", "K = 7.5", "K = 10", "b"]
    assert groups["K = 5"] == [runs[2], runs[3]]
