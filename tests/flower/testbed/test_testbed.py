"""A federation of real processes: SuperLink, SuperNodes with TLS and keys, uploads through the shaped link."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, suppress
from dataclasses import replace

import numpy as np
import psutil
import pytest

from fedtempo import Fleet
from fedtempo.cli import main
from fedtempo.cli.flower import _holds_all
from fedtempo.engine.records import RECORDS, read_lines
from fedtempo.experiments import runner
from fedtempo.experiments.config import for_policy, make_experiment
from fedtempo.experiments.toml import merged
from fedtempo.fleet_csv import write_fleet
from fedtempo.flower import testbed
from fedtempo.flower.credentials import make_node_key
from fedtempo.flower.testbed.namespaces import Namespaces
from fedtempo.flower.testbed.processes import SuperNode
from fedtempo.flower.app.run_config import MODEL
from fedtempo.flower.strategy.tempo_strategy import MODEL_FILE
from fedtempo.flower.testbed.federation import APP, Testbed, TestbedSettings
from fedtempo.flower.testbed.report import report_on
from fedtempo.flower.testbed.watched import ProcessError

DEADLINE, SHORT_DEADLINE = 40.0, 25.0
IN_ONE_PROCESS = pytest.mark.xdist_group("testbed")  # which then starts the nodes once
PATIENCE = 60.0  # s for something that takes a few on a machine that has nothing else to do
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
    with Testbed(
        TestbedSettings(table=TABLE, model_bytes=200_000, deadline=DEADLINE), tmp_path_factory.mktemp("bed")
    ) as bed:
        yield bed
        begun = [process for one in (bed.superlink, *bed.nodes) if one.pid for process in tree(one.pid)]
    assert begun
    left = [p for p in begun if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]
    assert not left, "processes are left behind"


def tree(pid):
    process = psutil.Process(pid)
    return [process, *process.children(recursive=True)]


def servers_of_forks(node):
    """Return how many processes fork ClientApps; a fork that is about to end looks like them, but for its parent."""
    found = 0
    for process in tree(node.pid):
        with suppress(psutil.Error):
            commands = [" ".join(one.cmdline()) for one in (process, process.parent())]
            found += "flower.forks" in commands[0] and "flower.forks" not in commands[1]
    return found


def simulated(policy, seed, rounds=3):
    experiment = make_experiment(TABLE | {"stop": {"max_rounds": rounds}})
    simulation = runner.make_simulation(experiment, policy, seed)
    return list(simulation.rounds()), simulation.model


@IN_ONE_PROCESS
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
    with np.load(tmp_path / "run" / MODEL_FILE) as saved:
        np.testing.assert_allclose(saved[MODEL], model, atol=1e-5)
    drawn = {client for record in rounds for client in record["members"]}
    assert [servers_of_forks(bed.nodes[client]) for client in drawn] == [1] * len(drawn)
    assert not any("Start `flwr-clientapp` process" in node.log for node in bed.nodes), "ClientApps are forks"


@IN_ONE_PROCESS
def test_a_killed_node_costs_a_deadline_and_no_more(bed, tmp_path, monkeypatch):
    """It still counts as connected for a while, so it is asked; the round ends without it, and training goes on."""
    monkeypatch.setattr(bed, "settings", replace(bed.settings, deadline=SHORT_DEADLINE))

    def kill_one(record):
        if "members" in record and bed.nodes[0].running:
            bed.nodes[0].kill()

    *found, summary = bed.run("full", rounds=2, seed=1, records=tmp_path / "run", timeout=240, show=kill_one)
    assert summary["rounds"] == 2
    rounds = [record for record in found if "members" in record]
    assert 0 not in rounds[0]["failed"]
    assert 0 in rounds[1]["failed"] or 0 not in rounds[1]["members"]
    assert all(set(record["failed"]) <= {0} for record in rounds), "the others are not lost with it"
    assert all(record["round_time"] < SHORT_DEADLINE + 30 for record in rounds)
    assert rounds[-1]["loss"] < rounds[0]["loss"]


@pytest.mark.skipif("FEDTEMPO_SLOW" not in os.environ, reason="waits for heartbeats for 60 s; FEDTEMPO_SLOW=1 runs it")
def test_another_device_takes_the_place_of_one_that_died(tmp_path):
    """With a key and an id of its own, and the partition of the old one; the run goes on meanwhile."""
    records, settings = tmp_path / "run", TestbedSettings(table=TABLE, model_bytes=100_000, deadline=SHORT_DEADLINE)
    with ExitStack() as stack:
        bed = stack.enter_context(Testbed(settings, tmp_path / "bed"))
        asked = {"experiment": json.dumps(TABLE), "policy": "full", "seed": 0, "rounds": 12, "records": str(records)}
        run_id = bed.superlink.start_run(APP, asked | {"deadline": SHORT_DEADLINE, "nodes": "", "ballast": 0})
        eventually((records / "checkpoint.npz").exists)
        bed.nodes[2].kill()
        key = make_node_key(tmp_path / "bed" / "keys" / "new")
        node_id = bed.superlink.register(key.public)
        place = {"partition-id": 2}, {"folder": tmp_path / "new", "ca_certificate": bed.credentials.ca_certificate}
        stack.enter_context(SuperNode(9, key.private, f"{bed.host}:{bed.superlink.port}", place[0], **place[1]))
        eventually(lambda: bed.superlink.run_status(run_id)[0] == "completed", 300.0)
        assert f"node {node_id} takes the place of client 2" in bed.superlink.run_log(run_id)
    rounds = [record for record in read_lines(records / RECORDS) if "members" in record]
    assert any(2 in record["failed"] or 2 not in record["members"] for record in rounds)
    assert 2 in rounds[-1]["members"]
    assert not rounds[-1]["failed"]


def test_a_start_that_fails_is_an_error_of_one_line(monkeypatch, capsys):
    def fail(bed):
        raise ProcessError("supernode-1 was not ready after 120 s")

    monkeypatch.setattr(Testbed, "__enter__", fail)
    with pytest.raises(SystemExit) as ended:
        main(["testbed", "--nodes", "2", "--rounds", "1"])
    assert ended.value.code not in (0, None)
    assert "supernode-1 was not ready" in capsys.readouterr().err


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """A folder for temporary files that no other test has: whatever a command starts names it."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return folder


def left_over(folder):
    """Return the processes of a command, and its files."""
    commands = [" ".join(process.info["cmdline"] or []) for process in psutil.process_iter(["cmdline"])]
    return [command for command in commands if str(folder) in command] + os.listdir(folder)


def test_the_command_leaves_nothing_behind(tmp_path, temporary, monkeypatch, capsys):
    hosts = []

    class NotedNamespaces(Namespaces):
        def start(self):
            hosts.extend(self.names)
            super().start()

    monkeypatch.setattr(testbed, "Namespaces", NotedNamespaces)
    monkeypatch.chdir(tmp_path)
    arguments = [
        *("testbed", "--nodes", "2", "--rounds", "1", "--cohort-size", "2"),
        *("--model-megabytes", "0.1", "--json", "t.json", "--records", "run"),
    ]
    if os.geteuid() == 0 and shutil.which("ip"):
        arguments += ["--netns", *(["--tc"] if shutil.which("tc") else [])]
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 0
    report = json.loads((tmp_path / "t.json").read_text())
    assert report["nodes"] == 2
    (one,) = report["rounds"]
    assert {"round", "predicted_time", "measured_time", "members"} <= set(one)
    assert {"client", "bandwidth", "predicted_upload", "measured_upload"} <= set(one["members"][0])
    printed = capsys.readouterr().out
    assert printed.startswith("starting a SuperLink and 2 SuperNodes\nall are there; the run starts\nround 1 of 1")
    assert printed.count("round 1 of 1") == 1
    assert "rounds: 1, nodes: 2" in printed
    assert sorted(os.listdir(tmp_path)) == ["run", "t.json", "temporary"]
    time.sleep(0.2)
    assert not left_over(temporary)
    if "--netns" in arguments:
        assert len(hosts) == 2
        names = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
        assert not set(hosts) & set(names.split())
    monkeypatch.setattr(Testbed, "__enter__", None)  # nothing is started for what is there
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 0
    again = capsys.readouterr().out
    assert again.startswith("all 1 rounds are there already; with more --rounds the run goes on\n")
    assert again.splitlines()[1:] == printed.splitlines()[-len(again.splitlines()) + 1 :], "the same results"
    assert json.loads((tmp_path / "t.json").read_text()) == report


@pytest.mark.parametrize(
    ("asked", "clock", "there"),
    [
        ({}, "wall", True),
        ({"stop": {"max_rounds": 2}}, "wall", False),
        ({"stop": {"max_rounds": 4}}, "wall", False),
        ({"training": {"cohort_size": 3}}, "wall", False),
        ({}, None, False),
    ],
    ids=["the same", "fewer rounds", "more rounds", "another cohort size", "a simulated run"],
)
def test_results_are_shown_again_only_of_the_same_run_on_real_nodes(asked, clock, there):
    header = {"config": TABLE} | ({} if clock is None else {"clock": clock})
    lines = [{"header": header}, {"members": [0]}, {"end": "max_rounds", "rounds": 3}]
    table = merged(TABLE, asked)
    assert _holds_all(lines, table, table["stop"]["max_rounds"]) == there
    assert not _holds_all(lines[:2], table, 3), "it has not ended"
    assert not _holds_all([], table, 3)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_command_that_is_stopped_leaves_nothing_behind(tmp_path, temporary, how):
    command = subprocess.Popen(
        [sys.executable, "-m", "fedtempo", "testbed", "--nodes", "2", "--rounds", "9"],
        cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        eventually(lambda: "flower-supernode" in " ".join(left_over(temporary)))
        command.send_signal(how)
        _, said = command.communicate(timeout=PATIENCE)
    finally:
        command.kill()
    eventually(lambda: not left_over(temporary))
    assert os.listdir(tmp_path) == ["temporary"]
    if how == signal.SIGINT:
        assert command.returncode == 130
        assert "interrupted; nothing is kept without --records" in said


def eventually(true, seconds=PATIENCE):
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.1)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (["--nodes", "0"], "--nodes must be a whole number of at least 1"),
        (["--nodes", "1"], "--nodes must be at least 2, got 1; or give an experiment with --config"),
        (["--records", "fleet.csv"], "--records must be a folder, got the file fleet.csv"),
        (["--records", "other"], "hold the same run, got one with policy tempo, and uniform is asked for"),
        (["--records", "longer", "--rounds", "2"], "--rounds must be at least the 3 that longer has, got 2"),
        (["--policy", "nope"], "policy must be one of"),
        (["--link", "bad"], "training.link must be one of"),
        (["--model-megabytes", "0.000001"], "the model must have at least its own"),
        (["--config", "no.toml"], "no such file"),
        (["--policy", "proposed-oracle", "--beta-over-alpha", "3"], "give them as its option gradient_bound"),
        (["--policy", "proposed-oracle", "--clients", "fleet.csv"], "beta_over_alpha must be given"),
        (["--nodes", "3", "--clients", "fleet.csv"], "--clients must have a line for each of 3 nodes, got 10"),
        (["--policy", "tempo", "--beta-over-alpha", "3"], "policy tempo: options must be known"),
        (["--tc"], "--tc needs a network namespace for each node; add --netns"),
        (["--tc", "--netns", "--link", "shared"], "--tc has the links paper and equal, got shared"),
    ],
)
def test_wrong_options_are_refused_before_anything_starts(wrong, said, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ones = np.ones(10)
    write_fleet("fleet.csv", Fleet(ones / 10, ones, ones, ones))
    for name, lines in {
        "other": '{"header":{"policy":"tempo","seed":0}}\n',
        "longer": '{"header":{"policy":"uniform","seed":0}}\n{"end":"max_rounds","rounds":3}\n',
    }.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / RECORDS).write_text(lines)
    with pytest.raises(SystemExit) as ended:
        main(["testbed", *wrong])
    assert ended.value.code == 2
    assert said in capsys.readouterr().err
