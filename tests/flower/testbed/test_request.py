"""A run on the testbed as somebody asks for it: the experiment that it stands for."""

import pytest

from fedtempo.checks import InputError
from fedtempo.experiments.settings.assignments import parse_assignments

pytest.importorskip("flwr")
from fedtempo.flower.testbed.request import TestbedRequest


def request_with(*texts, **settings):
    return TestbedRequest(nodes=4, assignments=tuple(parse_assignments(texts)), **settings)


def test_settings_lie_over_the_small_experiment_and_over_a_file(config):
    for settings in ({}, {"config": config}, {"config": "setup2"}):
        table = request_with("training.step_size=0.5", "training.link=shared", **settings).settings().table
        assert (table["training"]["step_size"], table["training"]["link"]) == (0.5, "shared")
        assert table["data"]["clients"] == 4


@pytest.mark.parametrize(("text", "option"), [("data.clients=3", "nodes"), ("stop.max_rounds=3", "rounds")])
def test_what_has_an_option_of_its_own_is_refused(text, option):
    with pytest.raises(InputError, match=f"must not set {text[:-2]}, got '{text}'; give {option}"):
        request_with(text)
