"""Flower's own simulation, started as a user would: the ready app does there what the simulator does."""

import socket
import time

import numpy as np
import pytest

from fedtempo.engine.records import RECORDS, read_records
from fedtempo.experiments.running.runner import simulation_of
from fedtempo.experiments.settings.config_file import load_experiment
from fedtempo.flower.app.model_arrays import MODEL
from fedtempo.flower.strategy.model_file import MODEL_FILE
from fedtempo.flower.testbed.federation import APP
from fedtempo.flower.testbed.watched import FlowerProcess, Launch
from support.runs import SMALL

SECONDS = 150.0


class FlwrRun(FlowerProcess):
    """The command, and the SuperLink that it starts and leaves behind."""

    def __init__(self, folder, *arguments):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        environment = {"FLWR_LOCAL_SUPERLINK_HTTP_API_PORT": str(port), "RAY_DISABLE_DASHBOARD": "1"}
        super().__init__("flwr", folder, Launch(environment=environment))
        self.arguments = arguments

    def _command(self):
        return ["flwr", "run", *self.arguments]


@pytest.mark.slow
def test_the_same_cohorts_weights_and_model_as_in_the_simulator(tmp_path):
    config, records = tmp_path / "small.toml", tmp_path / "run"
    config.write_text(SMALL)
    simulation = simulation_of(load_experiment(config), "weighted", 3)
    rounds = simulation.rounds()
    expected = [next(rounds) for _ in range(3)]
    settings = f'config="{config}" policy="weighted" seed=3 rounds=3 clock="simulated" records="{records}"'
    nodes = f"num-supernodes={len(simulation.fleet)} client-resources-num-cpus=1"
    arguments = [str(APP), "local", "--run-config", settings, "--federation-config", nodes, "--stream"]
    with FlwrRun(tmp_path / "flwr", *arguments) as command:
        deadline = time.monotonic() + SECONDS
        while command.running and time.monotonic() < deadline:
            time.sleep(0.2)
        assert not command.running, command.log[-2000:]
        assert (records / RECORDS).exists(), command.log[-2000:]
    found = read_records(records / RECORDS)
    assert found.summary.end == "max_rounds"
    for record, other in zip(found.rounds, expected, strict=True):
        assert (record.members, record.counts) == (other.members, other.counts)
        np.testing.assert_allclose(record.weights, other.weights, rtol=1e-12)
        assert record.time == pytest.approx(other.time)
    with np.load(records / MODEL_FILE) as saved:
        np.testing.assert_allclose(saved[MODEL], simulation.model, atol=1e-5)
