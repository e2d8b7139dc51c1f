"""Default folders: named after the experiment; those of earlier versions are found."""

from pathlib import Path

from fedtempo.engine.records import RECORDS
from fedtempo.experiments.running.folders import experiment_folder, run_folder
from fedtempo.experiments.settings.config_file import load_experiment
from support.runs import command


def test_folders_are_named_after_the_experiment_and_presets_beside_it(tmp_path):
    assert experiment_folder(tmp_path, "my") == tmp_path / "my"
    assert experiment_folder(tmp_path, "my", "best") == tmp_path / "my-best"
    (tmp_path / "my/best").mkdir(parents=True)
    assert experiment_folder(tmp_path, "my", "best") == tmp_path / "my/best", "of an earlier version"
    assert experiment_folder(tmp_path, "my") == tmp_path / "my"


def test_a_changed_run_has_a_folder_by_what_it_is(config, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    experiment = load_experiment(config)
    assert run_folder("small", experiment, "uniform", 3) == Path("runs/small/uniform-seed3")
    changed = run_folder("small", experiment, "uniform", 3, changed=True)
    assert changed.parent == Path("runs/small")
    assert changed.name.startswith("uniform-seed3-")
    assert run_folder("small", experiment, "mine:in_turn", 3) == Path("runs/small/mine_in_turn-seed3")


def test_runs_of_earlier_versions_are_found(config, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    former = tmp_path / "runs/small/paper/weighted/seed0"
    assert command("run", config, "--policy", "weighted", "-o", former) == 0
    before = (former / RECORDS).stat().st_mtime_ns
    assert command("run", config, "--policy", "weighted") == 0
    assert [path.parent for path in tmp_path.rglob(RECORDS)] == [former]
    assert (former / RECORDS).stat().st_mtime_ns == before
    compare = ["compare", config, "--policies", "uniform", "--seeds", 1, "--jobs", 1, "--target-loss", 1]
    assert command(*compare) == 0
    (tmp_path / "runs/compare/small").rename(tmp_path / "runs/compare/now")
    (tmp_path / "runs/compare/small").mkdir()
    (tmp_path / "runs/compare/now").rename(tmp_path / "runs/compare/small/paper")
    found = sorted(tmp_path.rglob(RECORDS))
    assert command(*compare) == 0
    assert sorted(tmp_path.rglob(RECORDS)) == found
