"""The run config of the ready app: one value on the server and on every node."""

import tomllib
from dataclasses import replace

import numpy as np
import pytest

from fedtempo import InputError
from fedtempo.experiments.settings.config_file import load_experiment
from fedtempo.flower.app.assembly import assemble
from fedtempo.flower.app.run_config import RunConfig
from fedtempo.flower.testbed.federation import APP


def test_what_is_written_is_read_back():
    config = RunConfig(policy="full", rounds=3, deadline=5, link_token="a file", nodes='{"18155395483465792202": 2}')
    assert RunConfig.read(config.as_flower()) == config
    assert config.as_flower()["link-token"] == "a file"
    assert config.client_of_node() == {18155395483465792202: 2}
    assert RunConfig().client_of_node() is None
    assert RunConfig().uplink() is None


def test_defaults_are_those_of_the_apps_own_file():
    own = tomllib.loads((APP / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
    assert RunConfig.read(own) == RunConfig(config="configs/setup2.toml")
    assert set(own) == {name.replace("_", "-") for name in RunConfig.__struct_fields__}


def test_wrong_values_are_refused_in_one_sentence():
    with pytest.raises(InputError, match=r"the run config must be that of the ready app, got .*rounds"):
        RunConfig.read({"rounds": "many"})
    with pytest.raises(InputError, match="clock"):
        RunConfig.read({"clock": "sundial"})


def test_ballast_counts_where_upload_times_follow_from_rates(config):
    """Otherwise the server would plan with uploads of the model alone."""
    experiment = load_experiment(config)
    plain = assemble(experiment)
    own = plain.trainer.num_parameters * 4
    np.testing.assert_array_equal(assemble(experiment, own).fleet.upload_time, plain.fleet.upload_time)
    rates = replace(experiment, times=replace(experiment.times, upload=None, uplink_mbps=experiment.times.upload))
    alone, twice = assemble(rates).fleet.upload_time, assemble(rates, own).fleet.upload_time
    np.testing.assert_allclose(twice, 2 * alone)
