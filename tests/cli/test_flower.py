"""`fedtempo testbed` as people call it: what it refuses, and that it leaves nothing behind."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import numpy as np
import psutil
import pytest

from fedtempo import Fleet
from fedtempo.cli import main
from fedtempo.engine.records import RECORDS, Header, HeaderLine, Summary, encode
from fedtempo.fleet_csv import write_fleet
from fedtempo.flower.testbed import federation
from fedtempo.flower.testbed.federation import Testbed
from fedtempo.flower.testbed.namespaces import Namespaces
from fedtempo.flower.testbed.watched import ProcessError
from support.processes import PATIENCE, eventually


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


@pytest.mark.slow
def test_the_command_leaves_nothing_behind(tmp_path, temporary, monkeypatch, capsys):
    hosts = []

    class NotedNamespaces(Namespaces):
        def start(self):
            hosts.extend(self.names)
            super().start()

    monkeypatch.setattr(federation, "Namespaces", NotedNamespaces)
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
    assert printed.startswith(
        "starting a SuperLink and 2 SuperNodes\nall nodes are connected; the run starts\nround 1 of 1"
    )
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
    assert again.startswith("the records hold all 1 rounds already; with more --rounds the run goes on\n")
    assert again.splitlines()[1:] == printed.splitlines()[-len(again.splitlines()) + 1 :], "the same results"
    assert json.loads((tmp_path / "t.json").read_text()) == report


@pytest.mark.slow
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


THREE_ROUNDS = Summary(
    end="max_rounds", rounds=3, time=1.0, pilot_rounds=0, pilot_time=0.0, loss=None, accuracy=None, time_to_loss=None,
    time_to_accuracy=None,
)  # fmt: skip


def header(policy):
    return HeaderLine(
        Header(experiment="", preset=None, policy=policy, seed=0, config={}, data_checksum="", samples=[1])
    )  # fmt: skip


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
        (["--tc"], "--tc must have a network namespace for each node, got none; add --netns"),
        (["--tc", "--netns", "--link", "shared"], "--tc must go with the links paper or equal, got shared"),
        (["--deadline", "-1"], "--deadline must be positive"),
        (["--target-loss", "0"], "--target-loss must be positive"),
        (["--seed", "-1"], "--seed must be a whole number of at least 0"),
    ],
)
def test_wrong_options_are_refused_before_anything_starts(wrong, said, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ones = np.ones(10)
    write_fleet("fleet.csv", Fleet(ones / 10, ones, ones, ones))
    for name, lines in {"other": [header("tempo")], "longer": [header("uniform"), THREE_ROUNDS]}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / RECORDS).write_bytes(b"".join(map(encode, lines)))
    with pytest.raises(SystemExit) as ended:
        main(["testbed", *wrong])
    assert ended.value.code == 2
    assert said in capsys.readouterr().err
