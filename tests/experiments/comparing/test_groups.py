"""Groups of runs."""

from fedtempo.experiments.comparing.groups import grouped
from support.grids import made_up


def test_groups_stand_in_the_order_of_their_numbers():
    labels = ("K = 10", "b", "K = 5", "K = 5", "K = 7.5", "K")
    runs = [made_up(label, 0, [1.0], 1.0) for label in labels]
    groups = grouped(runs, lambda run: run.policy)
    assert list(groups) == ["K", "K = 5", "K = 7.5", "K = 10", "b"]
    assert groups["K = 5"] == [runs[2], runs[3]]


def test_policies_stand_in_the_order_that_they_were_given_in():
    runs = [made_up(policy, seed, [1.0], 1.0) for policy in ("weighted", "mine", "tempo") for seed in (1, 0)]
    assert list(grouped(runs)) == ["weighted", "mine", "tempo"]
