"""Policies side by side on a problem of one's own."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict

import numpy as np
import pytest

import fedtempo
from fedtempo import InputError, Problem
from fedtempo.engine.records import RECORDS
from fedtempo.experiments.comparing.statistics import outcomes
from support.runs import command

TRAINING = {"cohort_size": 3, "local_steps": 5, "step_size": 0.05, "schedule": "constant"}
SHORT = {**TRAINING, "max_rounds": 6, "target_loss": 1.9, "jobs": 1}


def favourites(fleet):
    return fleet.data_share**2 / np.sum(fleet.data_share**2)


class InTurn:
    """A policy of somebody's own."""

    def __init__(self, setting):
        self.fleet, self.size = setting.fleet, setting.cohort_size

    def plan(self, context):
        members = np.sort((context.round_index * self.size + np.arange(self.size)) % len(self.fleet))
        share = self.fleet.data_share[members]
        return fedtempo.RoundPlan(members=members, weights=share / share.sum())

    def observe(self, report):
        pass


def test_policies_of_all_kinds_are_compared(problem):
    own = {"tempo": "tempo", "mine": favourites, "in turn": InTurn, "no memory": ("tempo", {"memory": False})}
    found = fedtempo.compare(problem, own, seeds=2, **SHORT)
    assert [row[0].text for row in found.table().rows] == list(own)
    assert repr(found) == "Comparison(tempo, mine, in turn, no memory: 8 runs to loss 1.9)"
    frame = found.to_pandas()
    assert frame.to_dict("records") == [asdict(one) for one in outcomes(found.runs, found.target)]
    assert set(frame["policy"]) == set(own)
    assert "<table" in found._repr_html_()
    assert str(found) == str(found.table())


def test_a_list_may_hold_pairs_of_policies_and_their_options(problem):
    listed = fedtempo.compare(problem, [("tempo", {"memory": False}), "weighted"], seeds=1, **SHORT)
    named = fedtempo.compare(problem, {"tempo": ("tempo", {"memory": False}), "weighted": "weighted"}, seeds=1, **SHORT)
    assert [(run.policy, run.records) for run in listed.runs] == [(run.policy, run.records) for run in named.runs]
    assert listed.runs[0].header.config["policy"] == {"tempo": {"memory": False}}
    usual = fedtempo.compare(problem, "tempo", seeds=1, **SHORT)
    assert usual.runs[0].records != listed.runs[0].records


def test_folders_have_safe_names_whatever_a_policy_is_called(problem, tmp_path):
    found = fedtempo.compare(problem, {"../a:b *?": favourites}, seeds=1, out=tmp_path / "out", **SHORT)
    (folder,) = (tmp_path / "out").iterdir()
    assert folder.name.startswith(".._a_b___-seed0-")
    assert [run.policy for run in found.runs] == ["../a:b *?"]


def test_a_comparison_is_drawn_and_written_as_a_page(problem, tmp_path):
    found = fedtempo.compare(problem, ["weighted", favourites], seeds=2, **SHORT)
    found.plot().savefig(tmp_path / "curves.png")
    found.report(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "favourites" in page
    assert "fedtempo run CONFIG" not in page, "no configuration runs it again"


def test_an_alias_of_a_policy_keeps_its_traits(problem):
    own = {"known": ("proposed-oracle", {"beta_over_alpha": 0.1}), "weighted": "weighted"}
    found = fedtempo.compare(problem, own, seeds=1, **SHORT)
    assert [run.oracle for run in found.runs] == [True, False]


def test_the_same_call_goes_on_with_what_has_not_ended(problem, own_data, own_times, tmp_path):
    first = fedtempo.compare(problem, ["weighted", favourites], seeds=2, out=tmp_path / "out", **SHORT)
    files = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob(RECORDS)}
    assert len(files) == 4
    next(iter(files)).unlink()
    again = fedtempo.compare(
        Problem(own_data, **own_times), ["weighted", favourites], seeds=2, out=tmp_path / "out", **SHORT
    )
    assert again.to_pandas().equals(first.to_pandas())
    changed = [path for path, then in files.items() if path.stat().st_mtime_ns != then]
    assert changed == [next(iter(files))]


@pytest.mark.parametrize("change", ["data", "times", "training"])
def test_another_problem_is_another_run(problem, own_data, own_times, tmp_path, change):
    fedtempo.compare(problem, ["weighted"], seeds=1, out=tmp_path, **SHORT)
    other, training = problem, dict(SHORT)
    if change == "data":
        data = fedtempo.data.synthetic.synthetic_data(alpha=1, beta=1, num_clients=10, num_samples=1000, seed=1)
        other = Problem(data, **own_times)
    elif change == "times":
        other = Problem(own_data, compute_time=2.0, upload_time=1.0)
    else:
        training["step_size"] = 0.01
    fedtempo.compare(other, ["weighted"], seeds=1, out=tmp_path, **training)
    assert len(list(tmp_path.rglob(RECORDS))) == 2


@pytest.fixture
def aimed(config):
    """A configuration with a target."""
    config.write_text(config.read_text().replace("[stop]", "[stop]\ntarget_loss = 1.0"))
    return config


def test_a_file_gives_the_same_records_in_python_as_on_the_command_line(aimed, tmp_path):
    assert command("compare", aimed, "--policies", "uniform", "--seeds", 1, "-o", tmp_path / "shell", "--jobs", 1) == 0
    fedtempo.compare(aimed, ["uniform"], seeds=1, out=tmp_path / "python", jobs=1)
    (shell,) = (tmp_path / "shell").rglob(RECORDS)
    (python,) = (tmp_path / "python").rglob(RECORDS)
    assert shell.read_bytes() == python.read_bytes()
    assert shell.parent.name == python.parent.name


def test_training_that_a_call_names_goes_over_what_policies_have_in_the_file(aimed):
    def first_steps(**training):
        runs = fedtempo.compare(aimed, ["uniform", "weighted"], seeds=1, jobs=1, **training).runs
        return [run.records[0].step_size[0] for run in runs]

    assert first_steps() == [0.1, 0.05]
    assert first_steps(step_size=0.02) == [0.02, 0.02]


def test_a_problem_from_a_file_trains_as_the_file_does(aimed):
    own = fedtempo.compare(aimed, ["uniform"], seeds=1, jobs=1)
    header = own.runs[0].header.config
    training, stop = header["training"], header["stop"]
    found = fedtempo.compare(
        Problem.from_file(aimed), ["uniform"], seeds=1, jobs=1, **training,
        target_loss=stop.get("target_loss"), target_accuracy=stop.get("target_accuracy"),
        max_rounds=stop.get("max_rounds"), time_limit=stop.get("max_time"),
    )  # fmt: skip
    assert found.runs[0].records == own.runs[0].records


SCRIPT = """
import sys, time
import numpy as np
import fedtempo
from fedtempo.data.synthetic import synthetic_data

def slow(fleet):
    return fleet.data_share

data = synthetic_data(alpha=1.0, beta=1.0, num_clients=10, num_samples=1000, seed=0)
problem = fedtempo.Problem(data, compute_time=np.arange(1, 11), upload_time=1.0)
found = fedtempo.compare(
    problem, {"tempo": "tempo", "mine": slow}, seeds=2, max_rounds=150, target_loss=0.1, cohort_size=3, step_size=0.05,
    out=sys.argv[1], jobs=int(sys.argv[2]),
)
found.report(sys.argv[1] + "/page.html")
"""


def outputs_of(folder):
    return {
        path.relative_to(folder): path.read_bytes() for name in (RECORDS, "page.html") for path in folder.rglob(name)
    }


@pytest.fixture
def script(tmp_path):
    """A script that compares, into a folder and by so many processes."""
    (tmp_path / "script.py").write_text(SCRIPT)
    return [sys.executable, tmp_path / "script.py"]


def test_workers_get_functions_of_a_script(script, tmp_path):
    """Runs side by side give what they give one after another."""
    for jobs in ("1", "2"):
        subprocess.run([*script, tmp_path / jobs, jobs], check=True)
    assert len(outputs_of(tmp_path / "1")) == 5
    assert outputs_of(tmp_path / "1") == outputs_of(tmp_path / "2")


@pytest.mark.slow
def test_killed_half_way_and_started_again_it_ends_with_the_same_bytes(script, tmp_path):
    subprocess.run([*script, tmp_path / "whole", "2"], check=True)
    process = subprocess.Popen([*script, tmp_path / "killed", "2"], start_new_session=True)
    deadline = time.monotonic() + 60
    while not list((tmp_path / "killed").rglob(RECORDS)) and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(0.3)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    subprocess.run([*script, tmp_path / "killed", "2"], check=True)
    assert outputs_of(tmp_path / "whole") == outputs_of(tmp_path / "killed")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"policies": []}, "policies must name at least one"),
        ({"policies": ["tempoo"]}, "did you mean 'tempo'"),
        ({"policies": {"tempo": favourites}}, "not give a built-in policy's name to another"),
        ({"policies": {"mine": lambda fleet: 1 / 0}}, "ZeroDivisionError"),
        ({"policies": {"mine": lambda fleet: np.ones(3)}}, "mine"),
        ({"policies": {"mine": ("tempo", {"memmory": True})}}, "did you mean 'memory'"),
        ({"problem": 3}, "problem must be a fedtempo.Problem or the path"),
        ({"problem": "nowhere.toml"}, "nowhere.toml"),
        ({"target_loss": None}, "have a target"),
        ({"seeds": 0}, "seeds must be"),
        ({"seeds": [1, 1]}, "different seeds"),
        ({"cohort_sise": 3}, "did you mean 'cohort_size'"),
        ({"policies": None}, "policies must be a list"),
        ({"policies": ["tempo", "tempo"]}, "have different names"),
        ({"policies": {"a": ("tempo", "x")}}, "a pair of one and its options"),
        ({"preset": "best"}, "a Problem has none"),
        ({"jobs": "2"}, "jobs must be"),
        ({"seeds": 2.0}, "seeds must be"),
        ({"target_accuracy": 70}, "target_accuracy must lie between 0 and 1 without a metric of your own, got 70"),
        ({"policies": [("tempo", {"memmory": True})]}, "did you mean 'memory'"),
    ],
)
def test_bad_arguments_get_one_sentence(problem, tmp_path, change, sentence):
    asked = {"problem": problem, "policies": ["weighted"], "seeds": 1, "out": tmp_path / "out", **SHORT, **change}
    with pytest.raises(InputError) as refused:
        fedtempo.compare(asked.pop("problem"), asked.pop("policies"), **asked)
    assert sentence in str(refused.value)
    assert not (tmp_path / "out").exists()


def test_the_summary_of_a_comparison_is_json(problem):
    found = fedtempo.compare(problem, "weighted", seeds=1, **SHORT)
    assert json.loads(found.to_pandas().to_json())["policy"] == {"0": "weighted"}
