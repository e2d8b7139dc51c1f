"""The run config of the ready app: one value on the server and on every node."""

import json
import tomllib
from dataclasses import replace

import numpy as np
import pytest

from fedtempo import InputError
from fedtempo.experiments.settings.config_file import load_experiment
from fedtempo.flower.app.assembly import assemble, header_of, read_setup
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


def test_levers_of_training_lie_over_the_experiment_and_its_policies(config):
    config.write_text(config.read_text() + "[policy.uniform.training]\nupload_bits = 4\n")
    given = {"upload-bits": 8, "server-average": 0.9, "server-optimiser": "adam", "local-direction": 0.5}
    for place in ({"config": str(config)}, {"experiment": json.dumps(dict(load_experiment(config).table))}):
        for policy in ("uniform", "weighted"):
            training = read_setup({**place, "policy": policy, **given}).training
            assert (training.upload_bits, training.server_average) == (8, 0.9)
            assert (training.server_optimiser, training.local_direction) == ("adam", 0.5)
        assert read_setup({**place, "policy": "uniform", "upload-bits": "auto"}).training.upload_bits == "auto"
        assert read_setup({**place, "policy": "uniform", "upload-bits": ""}).training.upload_bits == 4
    with pytest.raises(InputError, match="upload_bits must be one of 2, 3, 4, 8, 16, 32, auto"):
        read_setup({"config": str(config), "upload-bits": 5})


def test_the_records_of_a_run_say_which_levers_it_had(config):
    header = header_of(read_setup({"config": str(config), "upload-bits": 8, "server-average": 0.9}))
    assert header["config"]["training"]["upload_bits"] == 8
    assert header["config"]["training"]["server_average"] == 0.9
