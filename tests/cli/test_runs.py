"""`fedtempo run` and what stands beside it: what is printed, noted and refused."""

import errno
import io
import json
import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from fedtempo.engine import run_folder
from fedtempo.engine.records import RECORDS, read_header, read_records
from fedtempo.engine.run_folder import CHECKPOINT, LOCK
from fedtempo.experiments.running.problem import load_data
from fedtempo.experiments.settings.config_file import load_experiment
from support.paths import ROOT
from support.runs import SMALL, command, stopped_run


def test_a_run_writes_a_header_its_rounds_and_a_summary(config, tmp_path, capsys):
    assert command("run", config, "--policy", "uniform", "--seed", 3, "-o", tmp_path / "out") == 0
    out = capsys.readouterr().out
    assert "all rounds run" in out
    found = read_records(tmp_path / "out" / RECORDS)
    assert (found.header.policy, found.header.seed) == ("uniform", 3)
    assert found.header.config["training"]["cohort_size"] == 3
    assert len(found.header.data_checksum) == 64
    assert found.header.versions["numpy"] == np.__version__
    assert [record.round for record in found.rounds] == list(range(6))
    assert found.summary.end == "max_rounds"
    assert sorted(os.listdir(tmp_path / "out")) == [LOCK, CHECKPOINT, RECORDS]


def test_the_folder_has_a_sensible_default(config, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert command("run", config, "--policy", "weighted", "--preset", "best", "--max-rounds", 2) == 0
    assert (tmp_path / "runs/small-best/weighted-seed0" / RECORDS).exists()


def test_a_finished_run_is_not_run_again_and_another_is_refused(config, tmp_path, capsys):
    arguments = ["run", config, "--policy", "weighted", "-o", tmp_path / "out"]
    assert command(*arguments) == 0
    before = (tmp_path / "out" / RECORDS).stat().st_mtime_ns
    assert command(*arguments) == 0
    assert (tmp_path / "out" / RECORDS).stat().st_mtime_ns == before
    assert command(*arguments, "--seed", 1) == 2
    assert "got another run's records" in capsys.readouterr().err


def test_a_stopped_run_is_not_gone_on_with_by_another_policy_of_the_same_name(config, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    own, run = tmp_path / "mine.py", ["run", config, "--policy", "mine:sampler", "-o", tmp_path / "out"]
    own.write_text("def sampler(fleet):\n    return fleet.data_share\n")
    stopped_run(config, tmp_path / "out", policy="mine:sampler")
    begun = (tmp_path / "out" / RECORDS).read_bytes()
    own.write_text("def sampler(fleet):\n    return fleet.data_share**2 / sum(fleet.data_share**2)\n")
    assert command(*run) == 2
    assert "got another run's records (config.policy.code: " in capsys.readouterr().err
    assert (tmp_path / "out" / RECORDS).read_bytes() == begun
    own.write_text("def sampler(fleet):\n    return fleet.data_share\n")
    assert command(*run) == 0


def test_a_diverging_run_fails_and_keeps_its_records(config, tmp_path, capsys):
    config.write_text(config.read_text().replace("local_steps = 5", "local_steps = 5\nstep_size = 1e6"))
    assert command("run", config, "--policy", "uniform", "-o", tmp_path / "out") == 1
    assert "diverged in round" in capsys.readouterr().err
    assert read_records(tmp_path / "out" / RECORDS).summary.end == "diverged"


class FullDisk(io.BufferedRandom):
    """A file on a disk that fills up after the header."""

    def flush(self):
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_run_names_what_a_full_disk_did_not_take_and_goes_on_later(config, tmp_path, monkeypatch, capsys):
    arguments = ["run", config, "--policy", "uniform", "-o"]
    assert command(*arguments, tmp_path / "whole") == 0
    with monkeypatch.context() as filled:
        opened = run_folder.RunFolder.open

        def open_on_full_disk(files):
            found = opened(files)
            files._stream = FullDisk(files._stream.detach())
            return found

        filled.setattr(run_folder.RunFolder, "open", open_on_full_disk)
        capsys.readouterr()
        assert command(*arguments, tmp_path / "out") == 1
        place = tmp_path / "out" / RECORDS
        said = f"fedtempo: {place}: No space left on device; once there is room, the same command goes on\n"
        assert capsys.readouterr().err == said
    assert command(*arguments, tmp_path / "out") == 0
    assert place.read_bytes() == (tmp_path / "whole" / RECORDS).read_bytes()


def test_strict_fails_if_the_target_is_not_reached(config, tmp_path):
    arguments = ["run", config, "--policy", "uniform", "--target-loss", 0.001]
    assert command(*arguments, "-o", tmp_path / "a") == 0
    assert command(*arguments, "-o", tmp_path / "b", "--strict") == 1


def test_other_bad_input_gets_one_sentence_and_code_2(config, tmp_path, capsys):
    for arguments, said in (
        (["run", tmp_path / "none.toml", "--policy", "uniform"], "no such file; fedtempo init"),
        (["run", tmp_path, "--policy", "uniform"], "readable text file"),
        (["run", config, "--policy", "unifrm"], "did you mean 'uniform'"),
        (["run", config], "--policy"),
        (["run", config, "--policy", "uniform", "--preset", "bst"], "got 'bst'; did you mean 'best'?"),
        (
            ["run", config, "--policy", "uniform", "--preset", "x"],
            "must be a known preset, got 'x'; known are paper, best",
        ),
        (["reproduce", "setup9"], "got 'setup9'; did you mean 'setup"),
        (["reproduce", "everything"], "WHAT must be one of setup1, setup2, setup3, impact-of-k"),
        (["run", config, "--policy", "uniform", "--seed", -1], "--seed must be a whole number of at least 0, got -1"),
        (["run", config, "--policy", "uniform", "-o", config], "must be a folder, got a file"),
        (["estimate", tmp_path / "none", "-o", tmp_path / "x.csv"], "no such folder"),
        (["estimate", tmp_path, "-o", tmp_path / "x.csv"], "got none"),
        (["fetch", "cifar"], "cifar"),
        (
            ["run", config, "--policy", "uniform", "--set", "stop.target_accuracy=70"],
            "target_accuracy must lie between 0 and 1 without a metric of your own, got 70",
        ),
    ):
        assert command(*arguments) == 2
        (error,) = capsys.readouterr().err.splitlines()
        assert said in error


def test_init_writes_a_file_that_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert command("init") == 0
    assert command("run", "experiment.toml", "--policy", "weighted", "--max-rounds", 2) == 0
    assert command("init") == 2
    assert "must not exist yet" in capsys.readouterr().err


def test_init_writes_the_example_fleet_unless_there_is_one(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert command("init", "my.toml") == 0
    assert (tmp_path / "fleet.csv").read_text() == (ROOT / "examples/fleet.csv").read_text()
    assert command("plan", "fleet.csv", "--model-size", 5, "--cohort-size", 5, "--beta-over-alpha", 0.1) == 0
    (tmp_path / "fleet.csv").write_text("mine")
    assert command("init", "other.toml") == 0
    assert "note: fleet.csv is there already and stays as it is" in capsys.readouterr().err
    assert (tmp_path / "fleet.csv").read_text() == "mine"
    (tmp_path / "new").mkdir()
    assert command("init", "new/fleet.csv") == 2
    assert "new/fleet.csv must not be the example fleet's" in capsys.readouterr().err
    assert command("init", "nowhere/my.toml") == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["fleet.csv", "my.toml", "new", "other.toml"]


def test_init_writes_examples_that_compile(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert command("init", "x.toml", "--examples") == 0
    kept = [path for ending in ("py", "ipynb") for path in (ROOT / "examples").glob(f"*.{ending}")]
    assert len(kept) >= 6
    assert {path.name for path in tmp_path.iterdir()} == {"x.toml", "fleet.csv", *(path.name for path in kept)}
    for path in tmp_path.glob("*.py"):
        compile(path.read_text(), path.name, "exec")
    for path in tmp_path.glob("*.ipynb"):
        for cell in json.loads(path.read_text())["cells"]:
            if cell["cell_type"] == "code":
                compile("".join(cell["source"]), path.name, "exec")
    assert command("init", "y.toml", "--examples") == 2
    assert "must not exist yet, got a file; choose another folder" in capsys.readouterr().err
    assert not (tmp_path / "y.toml").exists()


def test_policies_are_listed(capsys):
    assert command("policies") == 0
    listed = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert listed[:6] == ["uniform", "weighted", "statistical", "full", "proposed", "proposed-oracle"]


def test_names_are_not_read_as_markup(config, tmp_path):
    config.write_text(SMALL.replace('"small"', '"a [/b] [red] c"'))
    assert command("run", config, "--policy", "uniform", "-o", tmp_path / "out") == 0


def test_the_table_names_the_data(config, tmp_path, capsys):
    assert command("run", config, "--policy", "uniform", "-o", tmp_path / "out") == 0
    name = read_header(tmp_path / "out" / RECORDS).data
    assert f"│ data           │ {name}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "noted"),
    [
        ("EMNIST, letters a-j", False),
        ("partial EMNIST, letters a-i and k, 5,114 samples", True),
        ("MNIST instead of EMNIST", True),
    ],
)
def test_data_that_stand_in_for_others_are_noted(config, tmp_path, monkeypatch, capsys, name, noted):
    data = replace(load_data(load_experiment(config).data), name=name, complete=not noted)
    for module in ("problem", "notices"):
        monkeypatch.setattr(f"fedtempo.experiments.running.{module}.load_data", lambda _: data)
    # Samples of its own, so that nothing that this process remembers of other data stands for them.
    samples = f"samples = {900 + len(name)}"
    config.write_text(SMALL.replace('kind = "synthetic"', 'kind = "emnist"').replace("samples = 800", samples))
    assert command("run", config, "--policy", "uniform", "-o", tmp_path / "out") == 0
    printed = capsys.readouterr()
    assert f"│ {name}" in printed.out
    said = f"note: the data are {name}, not the whole of EMNIST; run: fedtempo fetch emnist\n"
    assert printed.err == (said if noted else "")


@pytest.mark.parametrize(
    ("policy", "target", "noted"), [("proposed", 2.15, True), ("proposed", 2.1, False), ("weighted", 2.15, False)]
)
def test_pilots_that_go_below_the_target_are_noted(config, tmp_path, capsys, policy, target, noted):
    assert command("run", config, "--policy", policy, "--target-loss", target, "-o", tmp_path / "out") == 0
    said = (
        "note: the pilots of proposed go on to loss 2.1, below the target 2.15, and all their time counts; "
        "set losses of 2.15 or more under [policy.proposed]\n"
    )
    assert capsys.readouterr().err == (said if noted else "")


@pytest.mark.slow
def test_compiling_is_said_once_on_a_machine(config, tmp_path):
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    said = []
    for arguments in (
        ["run", config, "--policy", "uniform"],
        ["compare", config, "--policies", "uniform", "--seeds", "2", "--target-loss", "1"],
    ):
        shown = [sys.executable, "-m", "fedtempo", *arguments, "-o", tmp_path / arguments[0]]
        said.append(subprocess.run(shown, check=True, capture_output=True, text=True, env=environment).stderr)
    assert said == ["note: compiling the kernels, once on this machine: up to half a minute\n", ""]
