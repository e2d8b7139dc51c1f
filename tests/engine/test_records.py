"""Folders of runs: which run a folder holds, and what of it is taken up."""

import json

import numpy as np
import pytest

from fedtempo import InputError
from fedtempo.engine.records import RECORDS, RunNotice
from fedtempo.engine.run_folder import CHECKPOINT, RunFolder
from fedtempo.experiments.running.planned import make_header
from fedtempo.experiments.settings.config_file import load_experiment
from support.grids import made_up
from support.runs import SMALL, change_header, command, run_file, stopped_run, whole_run


def test_two_processes_do_not_write_one_run(tmp_path, monkeypatch):
    monkeypatch.setattr("fedtempo.engine.run_folder.LOCK_PATIENCE", 0.3)
    header = made_up("uniform", 0, [], 1.0).header
    first = RunFolder(tmp_path / "run", header)
    first.open()
    with pytest.raises(ValueError, match="one process"):
        RunFolder(tmp_path / "run", header).open()
    first.close()
    second = RunFolder(tmp_path / "run", header)
    second.open()
    second.close()


def test_a_checkpoint_of_another_run_is_not_taken_up(config, tmp_path):
    stopped_run(config, tmp_path / "out", seed=0)
    left = (tmp_path / "out" / CHECKPOINT).read_bytes()
    (tmp_path / "out" / RECORDS).unlink()
    whole = whole_run(config, tmp_path / "whole", seed=1)
    other = RunFolder(tmp_path / "out", make_header(load_experiment(config), "uniform", 1))
    assert other.open() is None
    assert not (tmp_path / "out" / CHECKPOINT).exists(), "a run that begins anew leaves no old checkpoint"
    other.close()
    (tmp_path / "out" / RECORDS).write_bytes(whole[:-200])
    (tmp_path / "out" / CHECKPOINT).write_bytes(left)
    assert whole_run(config, tmp_path / "out", seed=1) == whole


@pytest.mark.parametrize("length", [0, 1, 100, -10])
def test_a_damaged_checkpoint_is_passed_over(config, tmp_path, length):
    stopped_run(config, tmp_path / "out")
    checkpoint = tmp_path / "out" / CHECKPOINT
    checkpoint.write_bytes(checkpoint.read_bytes()[:length])
    assert whole_run(config, tmp_path / "out") == whole_run(config, tmp_path / "whole")


def test_a_checkpoint_of_other_code_is_refused_in_a_sentence(config, tmp_path):
    stopped_run(config, tmp_path / "run", policy="fedbuff")
    checkpoint = tmp_path / "run" / CHECKPOINT
    with np.load(checkpoint) as file:
        arrays = dict(file)
    state = json.loads(arrays["clients.values"].tobytes())
    assert arrays["clients." + state["flight"].pop("ready")["array"]].size
    arrays["clients.values"] = np.frombuffer(json.dumps(state).encode(), dtype=np.uint8)
    np.savez(checkpoint, **arrays)
    with pytest.raises(InputError, match=r"must be a checkpoint of this version of fedtempo.*ready.*to start again"):
        whole_run(config, tmp_path / "run", policy="fedbuff")


def test_a_checkpoint_that_is_no_checkpoint_is_passed_over(config, tmp_path):
    stopped_run(config, tmp_path / "out")
    np.save(tmp_path / "other.npy", np.zeros(3))
    (tmp_path / "other.npy").replace(tmp_path / "out" / CHECKPOINT)
    assert whole_run(config, tmp_path / "out") == whole_run(config, tmp_path / "whole")


def test_a_run_of_other_code_goes_on_under_its_header(config, tmp_path, capsys):
    whole = whole_run(config, tmp_path / "whole").splitlines(keepends=True)
    stopped_run(config, tmp_path / "out")
    header = change_header(
        tmp_path / "out", lambda header: (header.update(commit="0ld"), header["versions"].update(numpy="1.0"))
    )
    arguments = ["run", config, "--policy", "uniform", "-o", tmp_path / "out"]
    for _ in range(2):  # unfinished, then finished
        assert command(*arguments) == 0
        (note,) = capsys.readouterr().err.splitlines()
        assert f"versions.numpy: '1.0' there, '{np.__version__}' here; commit: '0ld' there" in note
        assert (tmp_path / "out" / RECORDS).read_bytes() == b"".join([header, *whole[1:]])
    with pytest.warns(RunNotice, match="begun by other code and keeps its header"):
        run_file(config, tmp_path / "out")


def test_another_run_is_refused_with_what_differs_and_what_to_do(config, tmp_path, capsys):
    arguments = ["run", config, "--policy", "uniform", "-o", tmp_path / "out"]
    assert command(*arguments) == 0
    config.write_text(SMALL.replace("cohort_size = 3", "cohort_size = 4"))
    assert command(*arguments) == 2
    (error,) = capsys.readouterr().err.splitlines()
    assert "(config.training.cohort_size: 3 there, 4 here); choose another folder, or delete this one" in error
    config.write_text(SMALL.replace("samples = 800", "samples = 900").replace("local_steps = 5", "batch_size = 6"))
    assert command(*arguments, "--seed", 7) == 2
    (error,) = capsys.readouterr().err.splitlines()
    assert "(seed: 0 there, 7 here; config.data.samples: 800 there, 900 here; config.training.local_steps" in error
    assert "; and " in error


def test_a_diverged_run_fails_again_when_it_is_given_again(config, tmp_path, capsys):
    config.write_text(SMALL.replace("local_steps = 5", "local_steps = 5\nstep_size = 1e6"))
    said = []
    for _ in range(2):
        assert command("run", config, "--policy", "uniform", "-o", tmp_path / "out") == 1
        printed = capsys.readouterr()
        assert "simulated time" not in printed.out
        said.append(printed.err)
    assert "diverged in round" in said[0]
    assert said[0] == said[1]


def test_another_file_in_a_runs_place_is_refused(config, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / RECORDS).write_text("no records\n")
    with pytest.raises(InputError, match="got something else in line 1"):
        whole_run(config, tmp_path / "out")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("local_steps = 5", "local_steps = 5\nevaluate_every = 1"),
        ("[model]", "seed = 0\n[model]"),
        ("mean = 1.0", "mean = 1"),
        ("losses = [2.2, 2.1]", "losses = [2.2]"),  # of another policy
        ('name = "small"', 'name = "little"'),
    ],
)
def test_a_run_goes_on_however_its_file_is_written(config, tmp_path, old, new):
    stopped_run(config, tmp_path / "out")
    assert old in SMALL
    config.write_text(SMALL.replace(old, new, 1))
    rounds = []
    run_file(config, tmp_path / "out", progress=lambda loop, record: rounds.append(record.round))
    assert rounds == [4, 5], "a checkpoint stands after the fourth round"
    config.write_text(SMALL)
    _, *whole = whole_run(config, tmp_path / "whole").splitlines()
    assert (tmp_path / "out" / RECORDS).read_bytes().splitlines()[1:] == whole


def test_headers_of_other_settings_are_compared_as_they_are(config, tmp_path):
    stopped_run(config, tmp_path / "out")
    change_header(tmp_path / "out", lambda header: header["config"]["training"].update(old_setting=1))
    with pytest.raises(InputError, match=r"\(config.training.old_setting: 1 there, nothing here\)"):
        whole_run(config, tmp_path / "out")
