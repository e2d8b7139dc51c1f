"""The paper's parts from a small configuration: where runs go, what tables say of themselves, what fails first."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from fedtempo.engine.records import RECORDS
from fedtempo.experiments.paper import impacts as reproduced_impacts
from fedtempo.experiments.paper import reproduce
from fedtempo.experiments.paper import setup as reproduced_setup
from fedtempo.experiments.running import provenance
from fedtempo.experiments.running.planned import run_settings
from fedtempo.experiments.running.problem import load_data, problem_of
from fedtempo.experiments.running.results import read_run
from fedtempo.experiments.running.runner import simulation_of
from fedtempo.experiments.settings.config_file import load_experiment
from fedtempo.learning.softmax import SoftmaxTrainer
from fedtempo.simulator.simulation import make_policy
from support.grids import cells
from support.runs import SMALL, command

POLICIES = "[policy.statistical]\nlosses = [2.2]\n[policy.proposed-oracle]\nbeta_over_alpha = 2.0\n"


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "setup2.toml"
    path.write_text(SMALL.replace("[presets.best", f"{POLICIES}[presets.best"))
    return path


def reproduced(config, what, *more):
    folder = config.parent
    arguments = ["--configs", folder, "--seeds", 1, "--jobs", 1, "--records", folder / "runs", "-o", folder / "out"]
    return command("reproduce", what, *arguments, *more)


def test_runs_beside_a_setup_do_not_mix_with_its_own(config, tmp_path, monkeypatch):
    monkeypatch.setattr(reproduced_impacts, "IMPACT_OF_K", {2: 1.0})
    monkeypatch.setattr(reproduced_impacts, "IMPACT_OF_E", (3,))
    monkeypatch.setattr(reproduced_setup, "estimate", lambda *_: SimpleNamespace(value=7.0))
    for what in ("setup2", "impact-of-k", "impact-of-e"):
        assert reproduced(config, what) == 0
    found = {
        folder.name: sorted(read_run(path).policy for path in folder.rglob(RECORDS))
        for folder in (tmp_path / "runs").iterdir()
    }
    assert found == {
        "setup2": ["proposed", "proposed-oracle", "statistical", "uniform", "weighted"],
        "setup2-best-k": ["proposed-oracle"],
        "impact-of-k": ["proposed-oracle"],
        "impact-of-e": ["proposed-oracle", "uniform", "weighted"],
    }


def test_tables_say_by_what_they_were_made(config, tmp_path, monkeypatch):
    monkeypatch.setattr(provenance, "_commit", lambda: "0123abc")
    provenance.made_with.cache_clear()
    assert reproduced(config, "setup2") == 0
    provenance.made_with.cache_clear()
    title, about = (tmp_path / "out" / "setup2.md").read_text().splitlines()[:3:2]
    assert title == "# Setup 2: softmax regression, Synthetic(1, 1), 10 clients"
    said = f"Made by `fedtempo reproduce setup2 --seeds 1 --configs {tmp_path}` with fedtempo "
    assert about.startswith(said)
    assert f"numpy {np.__version__}, commit 0123abc. Data: " in about


def test_the_default_folder_of_setups_is_not_named(config, tmp_path, monkeypatch):
    (tmp_path / "configs").mkdir()
    config.rename(tmp_path / "configs" / "setup2.toml")
    monkeypatch.chdir(tmp_path)
    assert command("reproduce", "setup2", "--seeds", 1, "--jobs", 1) == 0
    assert "`fedtempo reproduce setup2 --seeds 1` with" in (tmp_path / "reproduction/setup2.md").read_text()


def test_data_that_stand_in_for_others_are_named_and_noted(config, tmp_path, monkeypatch, capsys):
    name, titles = "MNIST instead of EMNIST", []
    data = load_data(load_experiment(config).data)
    stand_in = replace(data, name=name, complete=False)
    for module in ("problem", "notices"):
        monkeypatch.setattr(f"fedtempo.experiments.running.{module}.load_data", lambda _: stand_in)
    draw = reproduce.draw_comparison
    monkeypatch.setattr(
        reproduce,
        "draw_comparison",
        lambda *what, title, **how: titles.append(title) or draw(*what, title=title, **how),
    )
    # Samples of their own, so that nothing that this process remembers of the others stands for them.
    text = config.read_text().replace('kind = "synthetic"', 'kind = "emnist"', 1)
    config.write_text(text.replace("samples = 800", "samples = 801"))
    assert reproduced(config, "setup2") == 0
    assert titles == [f"Setup 2: softmax regression, {name}, 10 clients"]
    assert (tmp_path / "out" / "setup2.md").read_text().startswith(f"# {titles[0]}\n")
    assert f"note: the data are {name}, not the whole of EMNIST" in capsys.readouterr().err


def test_what_all_parts_need_is_asked_for_before_the_first_runs(config, tmp_path, monkeypatch, capsys):
    for setup in ("setup1", "setup3"):
        (tmp_path / f"{setup}.toml").write_text(config.read_text())
    (tmp_path / "setup3.toml").write_text(config.read_text().replace('kind = "synthetic"', 'kind = "mnist"', 1))
    monkeypatch.setenv("FEDTEMPO_DATA", str(tmp_path))
    monkeypatch.setenv("FEDTEMPO_CACHE", str(tmp_path))
    assert reproduced(config, "all") == 2
    assert "MNIST must be on this machine" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


def test_each_table_is_printed_when_its_part_is_done(config, tmp_path, monkeypatch, capsys):
    for setup in ("setup1", "setup3"):
        (tmp_path / f"{setup}.toml").write_text(config.read_text())
    printed = []

    def stopped(study):
        printed.append(capsys.readouterr().out)
        raise KeyboardInterrupt

    monkeypatch.setitem(reproduce.REPRODUCERS, "impact-of-k", stopped)
    assert reproduced(config, "all") == 130
    for setup in ("setup1", "setup2", "setup3"):
        assert f"wrote {tmp_path / 'out' / setup}.md" in printed[0]
    assert "# Setup 3: " in printed[0]


def test_a_reproduction_without_its_setups_says_how_to_name_them(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for what in ("reproduce", "leaderboard"):
        assert command(what, *(["setup2"] if what == "reproduce" else []), "--configs", "none") == 2
        (error,) = capsys.readouterr().err.splitlines()
        assert "--configs" in error
        assert "fedtempo init" not in error


@pytest.mark.parametrize("option", ["-o", "--records"])
def test_a_file_in_the_place_of_a_folder_is_refused(config, tmp_path, capsys, option):
    (tmp_path / "afile").write_text("")
    for what in (["reproduce", "setup2"], ["leaderboard"]):
        assert command(*what, "--configs", tmp_path, option, tmp_path / "afile") == 2
        (error,) = capsys.readouterr().err.splitlines()
        assert "afile must be a folder, got a file" in error


def test_the_policy_of_a_run_is_made_without_evaluating_a_model(config, monkeypatch):
    experiment = load_experiment(config)
    whole = [simulation_of(experiment, "proposed-oracle", seed).policy.sampling_prob for seed in (0, 1)]
    assert not np.array_equal(*whole), "an oracle knows the gradients of its own run"
    monkeypatch.delattr(SoftmaxTrainer, "evaluate")
    for seed in (0, 1):
        policy = make_policy(problem_of(experiment), run_settings(experiment, "proposed-oracle", seed))
        np.testing.assert_array_equal(policy.sampling_prob, whole[seed])


def test_round_times_are_those_of_the_runs_own_q(config, tmp_path):
    assert reproduced(config, "setup2") == 0
    table = (tmp_path / "out" / "setup2.md").read_text().split("## Round times")[1]
    rows = [row[0] for row in cells(table)]
    assert rows == ["policy", "uniform", "weighted", "statistical", "proposed", "proposed-oracle"]


def test_a_missing_package_is_named_before_anything_runs(config, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("fedtempo.cli.options.find_spec", lambda name: None)
    arguments = ["--policies", "uniform", "--seeds", 1, "--target-loss", 1, "-o", tmp_path / "runs"]
    for what, package in (
        (["compare", config, *arguments, "--report", tmp_path / "page.html"], "plotly"),
        (["reproduce", "setup2", "--configs", tmp_path], "matplotlib"),
        (["leaderboard", "--configs", tmp_path], "matplotlib"),
    ):
        assert command(*what) == 2
        (error,) = capsys.readouterr().err.splitlines()
        assert f"needs {package}, which is not installed" in error
    assert not Path(tmp_path / "runs").exists()
