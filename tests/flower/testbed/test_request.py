"""A run on the testbed as somebody asks for it: the experiment that it stands for."""

from pathlib import Path

import numpy as np
import pytest

from fedtempo.checks import InputError
from fedtempo.experiments.settings.assignments import parse_assignments
from support.runs import SMALL

pytest.importorskip("flwr")
from fedtempo.flower.testbed.request import TestbedRequest

SYNTHETIC = 'kind = "synthetic"\nclients = 10\nsamples = 800\n'


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


def table_of(config, data):
    config.write_text(SMALL.replace(SYNTHETIC, data))
    return TestbedRequest(nodes=4, config=config).settings().table["data"]


def test_nodes_find_the_data_from_anywhere(tmp_path):
    np.savez(tmp_path / "mine.npz", inputs=np.zeros((40, 2)), labels=np.arange(40) % 2)
    (tmp_path / "own_nodes.py").write_text("def load():\n    return [[1.0]] * 40, [0, 1] * 20\n")
    config = tmp_path / "own.toml"
    own = table_of(config, 'kind = "arrays"\nfile = "mine.npz"\nsplit = "iid"\n')
    assert own == {"kind": "arrays", "file": str(tmp_path / "mine.npz"), "split": "iid", "clients": 4}
    own = table_of(config, 'kind = "own_nodes:load"\nsplit = "iid"\n')
    assert own["kind"] == f"{tmp_path / 'own_nodes.py'}:load"
    assert Path(own["kind"].rpartition(":")[0]).is_absolute()
    assert table_of(config, SYNTHETIC) == {"kind": "synthetic", "clients": 4, "samples": 800}
