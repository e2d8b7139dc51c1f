"""A federation of real processes: SuperLink, SuperNodes with TLS and keys, uploads through the shaped link."""

import json
import os
import shutil
import subprocess
import threading
import time

import numpy as np
import psutil
import pytest

from fedtempo.cli import main
from fedtempo.engine.records import CHECKPOINT
from fedtempo.experiments import runner
from fedtempo.experiments.config import for_policy, make_experiment
from fedtempo.flower.testbed import Testbed, TestbedSettings
from fedtempo.flower.testbed_report import report_on

TABLE = {
    "name": "three nodes",
    "data": {"kind": "synthetic", "clients": 3, "samples": 300},
    "model": {"kind": "softmax"},
    "times": {
        "compute": {"kind": "uniform", "low": 0.1, "high": 0.5},
        "upload": {"kind": "uniform", "low": 0.5, "high": 1.0},
    },
    "training": {"cohort_size": 2, "local_steps": 5, "schedule": "constant", "link": "paper", "duplicates": "physical"},
    "stop": {"max_rounds": 3},
}


@pytest.fixture(scope="module")
def bed(tmp_path_factory):
    before = {process.pid for process in psutil.process_iter()}
    with Testbed(
        TestbedSettings(table=TABLE, model_bytes=200_000, deadline=60.0), tmp_path_factory.mktemp("bed")
    ) as bed:
        yield bed
    left = [p for p in psutil.process_iter(["cmdline"]) if p.pid not in before and "flower-super" in str(p.info)]
    assert not left, "processes are left behind"


def simulated(policy, seed, rounds=3):
    experiment = make_experiment(TABLE | {"stop": {"max_rounds": rounds}})
    simulation = runner.make_simulation(experiment, policy, seed)
    return list(simulation.rounds()), simulation.model


def test_a_deployment_trains_as_the_simulator_does(bed, tmp_path):
    """The same cohorts, weights and model; uploads take what their shares say, in the median within 15 %."""
    expected, model = simulated("weighted", 4)
    found = bed.run("weighted", rounds=3, seed=4, records=tmp_path / "run", timeout=240)
    _, *rounds, summary = found
    for record, other in zip(rounds, expected[:-1], strict=True):
        assert record["members"] == other["members"]
        np.testing.assert_allclose(record["weights"], other["weights"], rtol=1e-12)
        np.testing.assert_allclose(record["update_norm"], other["update_norm"], rtol=1e-4)
        assert record["loss"] == pytest.approx(other["loss"], rel=1e-5)
    assert summary["end"] == "max_rounds"
    training, _ = for_policy(bed.experiment, "weighted")
    report = report_on(found, bed.fleet, training)
    assert (report["nodes"], report["refused"], report["failures"]) == (3, 0, 0)
    uploads = [member for one in report["rounds"] for member in one["members"]]
    assert len(uploads) == sum(len(record["members"]) for record in rounds)
    errors = [one["measured_upload"] / one["predicted_upload"] - 1 for one in uploads]
    assert min(errors) > -0.15, "nobody uploads faster than its share"
    assert np.median(np.abs(errors)) < 0.15
    np.testing.assert_allclose(np.linalg.norm(model), np.linalg.norm(simulated("weighted", 4)[1]))


def test_a_killed_node_costs_a_deadline_and_a_killed_server_app_goes_on(bed, tmp_path):
    """Kill a node while it trains, and then the server's own process: a new run takes up the records."""
    records, killed = tmp_path / "run", threading.Event()

    def kill_one(record):
        if "members" in record and not killed.is_set():
            killed.set()
            bed.nodes[0].kill()
            for process in psutil.Process(bed.superlink.pid).children(recursive=True):
                if "flwr-serverapp" in " ".join(process.cmdline()):
                    process.kill()

    patience = bed.settings
    with pytest.raises(RuntimeError, match="must complete"):
        bed.run("full", rounds=4, seed=1, records=records, timeout=240, show=kill_one)
    assert (records / CHECKPOINT).exists()
    found = bed.run("full", rounds=4, seed=1, records=records, timeout=400)
    *_, summary = found
    assert summary["rounds"] == 4
    rounds = [record for record in found if "members" in record]
    assert any(0 in record["failed"] or 0 not in record["members"] for record in rounds)
    assert patience is bed.settings
    bed.nodes[0].start()
    bed.nodes[0].wait_until_ready(120, insist=True)


def test_the_command_leaves_nothing_behind(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    arguments = [
        "testbed",
        "--nodes",
        2,
        "--rounds",
        1,
        "--cohort-size",
        2,
        "--model-megabytes",
        0.1,
        "--json",
        "t.json",
    ]
    if os.geteuid() == 0 and shutil.which("ip"):
        arguments.append("--netns")
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    assert ended.value.code == 0
    report = json.loads((tmp_path / "t.json").read_text())
    assert report["nodes"] == 2
    (one,) = report["rounds"]
    assert {"round", "predicted_time", "measured_time", "members"} <= set(one)
    assert {"client", "bandwidth", "predicted_upload", "measured_upload"} <= set(one["members"][0])
    assert "1 rounds on 2 nodes" in capsys.readouterr().out
    assert os.listdir(tmp_path) == ["t.json"]
    time.sleep(0.2)
    if "--netns" in arguments:
        names = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
        assert not [name for name in names.split() if name.startswith("ft")]
