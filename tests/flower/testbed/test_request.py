"""What is asked of a testbed, as the table that its nodes read."""

from pathlib import Path

import numpy as np

from fedtempo.flower.testbed.request import TestbedRequest
from support.runs import SMALL

SYNTHETIC = 'kind = "synthetic"\nclients = 10\nsamples = 800\n'


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
