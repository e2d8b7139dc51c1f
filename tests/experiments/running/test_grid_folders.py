"""Grids of runs: which folder is whose, what of it is taken up, told or refused, and what a cluster hands back."""

import os
import sys
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path

import numpy as np
import pytest

from fedtempo.engine.records import RECORDS
from fedtempo.experiments.running.grid import Execution, has_ended, run_grid
from fedtempo.experiments.running.planned import plan_runs
from fedtempo.experiments.running.processes import compute
from fedtempo.experiments.settings.config_file import load_experiment
from support.grids import planned_runs
from support.runs import SMALL, UPLOAD, command


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "setup2.toml"
    path.write_text(SMALL)
    return path


def test_a_policy_of_another_package_runs_anew_when_its_file_changes(config, tmp_path, monkeypatch):
    source = tmp_path / "mine_and_yours.py"
    monkeypatch.syspath_prepend(tmp_path)
    points = [EntryPoint(name, "mine_and_yours:sampler", "fedtempo.policies") for name in ("mine", "weighted")]
    points.append(EntryPoint("gone", "nowhere.at_all:sampler", "fedtempo.policies"))
    monkeypatch.setattr("fedtempo.policies.registry.entry_points", lambda group: points)
    folders = []
    for formula in ("fleet.data_share", "1 - fleet.data_share"):
        source.write_text(f"def sampler(fleet):\n    return {formula}\n")
        folders.append([run.folder.name for run in planned_runs(config, tmp_path, ("mine", "weighted", "gone"), [0])])
    assert [old == new for old, new in zip(*folders, strict=True)] == [False, True, True]


def test_folders_have_kept_their_names(tmp_path):
    """Runs of many hours are found by these."""
    (tmp_path / "small.toml").write_text(SMALL)
    names = {}
    for preset in ("paper", "best"):
        planned = plan_runs(
            load_experiment(tmp_path / "small.toml", preset), ("uniform", "weighted", "proposed"), [3], tmp_path
        )
        names[preset] = [run.folder.name for run in planned]
    assert names == {
        "paper": ["uniform-seed3-3667441d42", "weighted-seed3-974b8924d1", "proposed-seed3-603ebd12a4"],
        "best": ["uniform-seed3-a95c456413", "weighted-seed3-fdd9a16a52", "proposed-seed3-8a05a69cac"],
    }


@pytest.fixture
def traced(config):
    text = config.read_text().replace(UPLOAD, '[channel]\nkind = "traces"\ntraces = ["a.csv"]')
    config.write_text(text.replace('compute = { kind = "exponential", mean = 1.0 }', 'compute_scores = "scores.json"'))
    (config.parent / "a.csv").write_text("time,mbps\n0,1\n5,10\n")
    (config.parent / "scores.json").write_text('{"a": 1.0}')
    return config


@pytest.mark.parametrize(("name", "content"), [("a.csv", "time,mbps\n0,1\n5,20\n"), ("scores.json", '{"a":1.0,"b":2}')])
def test_other_contents_of_a_named_file_are_another_run(traced, tmp_path, name, content):
    (run,) = planned_runs(traced, tmp_path / "runs", ["uniform"], [0])
    (tmp_path / name).write_text(content)
    (other,) = planned_runs(traced, tmp_path / "runs", ["uniform"], [0])
    assert other.folder != run.folder


def test_a_file_is_the_same_by_any_path(traced, tmp_path, monkeypatch):
    (run,) = planned_runs(traced, tmp_path / "runs", ["uniform"], [0])
    compute(run, os.getpid())
    traced.write_text(traced.read_text().replace('"a.csv"', f'"{tmp_path}/a.csv"'))
    (tmp_path / "elsewhere").mkdir()
    for folder, config in ((tmp_path, traced), (tmp_path / "elsewhere", Path("../setup2.toml"))):
        monkeypatch.chdir(folder)
        (same,) = planned_runs(config, tmp_path / "runs", ["uniform"], [0])
        assert same.folder == run.folder
    lines = run.records.read_bytes().splitlines(keepends=True)
    run.records.write_bytes(b"".join(lines[:-2]))
    monkeypatch.chdir(tmp_path / "elsewhere")
    compute(same, os.getpid())
    assert run.records.read_bytes().splitlines(keepends=True)[1:] == lines[1:]


def test_runs_of_other_code_are_told_of_once(config, tmp_path, capsys):
    arguments = ["compare", config, "--policies", "uniform", "--seeds", 3, "--target-loss", 1, "--jobs", 2]
    arguments += ["-o", tmp_path / "runs"]
    assert command(*arguments) == 0
    capsys.readouterr()
    ended, killed, _ = paths = sorted((tmp_path / "runs").rglob(RECORDS))
    for path in (ended, killed):
        path.write_text(path.read_text().replace(f'"numpy":"{np.__version__}"', '"numpy":"1.0"', 1))
    killed.write_bytes(b"".join(killed.read_bytes().splitlines(keepends=True)[:-1]))
    assert command(*arguments) == 0
    (note,) = capsys.readouterr().err.splitlines()
    assert note.startswith(f"note: of the runs in {paths[0].parent.parent}, 2 of 3 (versions.numpy: '1.0' there, ")
    assert note.endswith("they are taken as they are: delete them to run them again")


@pytest.mark.parametrize("option", ["--step-sizes", "--cohort-sizes"])
def test_a_repeated_value_is_refused(config, capsys, option):
    arguments = {"--step-sizes": "0.1", "--cohort-sizes": "2"} | {option: "1,2,1"}
    assert command("tune", config, "--policies", "uniform", *(x for pair in arguments.items() for x in pair)) == 2
    (error,) = capsys.readouterr().err.splitlines()
    assert f"{option} must be distinct numbers" in error


@pytest.mark.parametrize("line", ["no record\n", "[1]\n", "\0\0\0\0\n"])
def test_a_corrupt_last_line_gets_one_sentence(config, tmp_path, capsys, line):
    arguments = ["compare", config, "--policies", "uniform", "--seeds", 1, "--target-loss", 1, "-o", tmp_path / "runs"]
    assert command(*arguments) == 0
    capsys.readouterr()
    (path,) = (tmp_path / "runs").rglob(RECORDS)
    path.write_text(path.read_text() + line)
    assert command(*arguments) == 2
    (error,) = capsys.readouterr().err.splitlines()
    assert "must hold the records of a run, got something else in its last line" in error


def test_tuning_starts_from_the_file_itself_where_it_has_no_preset(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert command("init") == 0
    arguments = ["tune", "experiment.toml", "--policies", "uniform", "--step-sizes", "0.1", "--seeds", 1]
    assert command(*arguments, "--target-loss", 2) == 0
    printed = capsys.readouterr()
    assert "My experiment, preset paper, to loss 2, seeds 1000" in printed.out
    assert "note: experiment.toml has no preset best" in printed.err
    assert command(*arguments, "--preset", "best") == 2
    assert "must be a known preset" in capsys.readouterr().err


class ClusterElsewhere:
    """Stands in for Ray: machines with folders of their own, the second of which is lost."""

    class exceptions:  # noqa: N801
        class RayTaskError(Exception):
            cause = RuntimeError("lost")

    def __init__(self, folder):
        self.folder, self.calls = folder, 0

    def remote(self, **resources):
        return lambda function: type("Remote", (), {"remote": staticmethod(lambda *task: (function, task))})

    def wait(self, under_way):
        return under_way[:1], under_way[1:]

    def get(self, task):
        self.calls += 1
        if self.calls == 2:
            raise self.exceptions.RayTaskError
        function, (run, asked_by) = task
        return function(replace(run, folder=self.folder / run.folder.name), asked_by)


def test_what_has_ended_on_a_cluster_is_not_lost_with_the_rest(config, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", ClusterElsewhere(tmp_path / "there"))
    monkeypatch.setattr("fedtempo.experiments.running.cluster._connect", lambda address: None)
    planned = planned_runs(config, tmp_path / "here", ["uniform"], [0, 1, 2])
    with pytest.raises(RuntimeError, match="lost"):
        run_grid("small", planned, Execution(ray="elsewhere"))
    assert [has_ended(run) for run in planned] == [True, False, False]
    run_grid("small", planned, Execution(ray="elsewhere"))
    assert all(has_ended(run) for run in planned)
