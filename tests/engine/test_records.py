"""Folders of runs: which run a folder holds, what of it is taken up, and what is read back out of it."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from test_run import SMALL, command

from fedtempo import InputError, files
from fedtempo.engine.records import CHECKPOINT, RECORDS, RunFiles, RunNotice, read_lines
from fedtempo.experiments import runner
from fedtempo.experiments.config import read_experiment
from fedtempo.experiments.readback import estimate_fleet
from fedtempo.policies.registry import BUILT_IN
from fedtempo.simulator.simulation import Simulation
from fedtempo.theory.estimation import estimate_beta_over_alpha


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "small.toml"
    path.write_text(SMALL)
    return path


def stopped_run(config, folder, seed=0, policy="uniform"):
    """Run four rounds and stop, as a kill after a checkpoint does."""
    experiment, table = read_experiment(config)

    def stop(simulation, record):
        if simulation.rounds_done == 4:
            raise RuntimeError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fedtempo.engine.run.CHECKPOINT_SECONDS", 0.0)
        with pytest.raises(RuntimeError):
            runner.run(experiment, table, policy=policy, seed=seed, folder=folder, progress=stop)
    assert (folder / CHECKPOINT).exists()


def whole_run(config, folder, seed=0, policy="uniform", **over):
    experiment, table = read_experiment(config, over=over)
    runner.run(experiment, table, policy=policy, seed=seed, folder=folder)
    return (folder / RECORDS).read_bytes()


def change_header(folder, change):
    header, *rest = (folder / RECORDS).read_bytes().splitlines(keepends=True)
    record = json.loads(header)
    change(record["header"])
    line = json.dumps(record, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"
    (folder / RECORDS).write_bytes(line + b"".join(rest))
    return line


def test_a_checkpoint_of_another_run_is_not_taken_up(config, tmp_path):
    stopped_run(config, tmp_path / "out", seed=0)
    left = (tmp_path / "out" / CHECKPOINT).read_bytes()
    (tmp_path / "out" / RECORDS).unlink()
    whole = whole_run(config, tmp_path / "whole", seed=1)
    experiment, table = read_experiment(config)
    other = RunFiles(tmp_path / "out", runner.make_header(experiment, table, "uniform", 1))
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
    assert arrays.pop("clients_ready").size
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
    experiment, table = read_experiment(config)
    with pytest.warns(RunNotice, match="begun by other code and keeps its header"):
        runner.run(experiment, table, policy="uniform", seed=0, folder=tmp_path / "out")


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


@pytest.mark.parametrize("checkpoints", [0.0, 1e9])
@pytest.mark.parametrize("policy", ["proposed", "tempo"])
@pytest.mark.parametrize(
    ("shorter", "longer"),
    [
        ({"max_rounds": 7}, {"max_rounds": 12}),
        ({"max_time": 20.0}, {"max_time": 50.0}),
        ({"max_rounds": 4}, {"max_time": 60.0}),
    ],
)
def test_a_run_goes_on_to_a_later_limit(config, tmp_path, monkeypatch, checkpoints, policy, shorter, longer):
    config.write_text(SMALL.replace("local_steps = 5", "local_steps = 5\nevaluate_every = 3"))
    monkeypatch.setattr("fedtempo.engine.run.CHECKPOINT_SECONDS", checkpoints)
    begun = whole_run(config, tmp_path / "out", policy=policy, stop=shorter)
    whole = whole_run(config, tmp_path / "whole", policy=policy, stop=longer)
    assert len(begun) < len(whole)
    rounds = []
    experiment, table = read_experiment(config, over={"stop": longer})
    for _ in range(2):
        runner.run(
            experiment,
            table,
            policy=policy,
            seed=0,
            folder=tmp_path / "out",
            progress=lambda _, line: rounds.append(line),
        )
        assert (tmp_path / "out" / RECORDS).read_bytes() == whole
    if checkpoints == 0:
        again = len(begun.splitlines()) - 1  # all but its header
        assert len(rounds) == len(whole.splitlines()) - again + 1, (
            "only its last round, and its summary, are made again"
        )


@pytest.mark.parametrize("policy", sorted(BUILT_IN))
def test_a_run_of_any_policy_goes_on_from_its_start(config, tmp_path, policy):
    config.write_text(SMALL + "[policy.statistical]\nlosses = [2.2]\n[policy.proposed-oracle]\nbeta_over_alpha = 2.0\n")
    whole_run(config, tmp_path / "out", policy=policy, stop={"max_rounds": 1})
    whole = whole_run(config, tmp_path / "whole", policy=policy, stop={"max_rounds": 3})
    assert whole_run(config, tmp_path / "out", policy=policy, stop={"max_rounds": 3}) == whole


def test_a_run_that_was_killed_goes_on_to_another_limit(config, tmp_path):
    stopped_run(config, tmp_path / "out")
    with pytest.raises(InputError, match="max_rounds: 6 there, 3 here"):
        whole_run(config, tmp_path / "out", stop={"max_rounds": 3})
    whole = whole_run(config, tmp_path / "whole", stop={"max_rounds": 9})
    assert whole_run(config, tmp_path / "out", stop={"max_rounds": 9}) == whole


def test_a_shorter_limit_or_another_target_is_another_run(config, tmp_path):
    kept = whole_run(config, tmp_path / "out", stop={"max_rounds": 8})
    for stop in ({"max_rounds": 7}, {"max_time": 3.0}, {"max_rounds": 9, "target_loss": 1.0}):
        with pytest.raises(InputError, match="got another run's records"):
            whole_run(config, tmp_path / "out", stop=stop)
    assert (tmp_path / "out" / RECORDS).read_bytes() == kept


class Killed(BaseException):
    """A kill, as far as one can be made inside a process."""


def killed_before(patch, line):
    """Break off the opening of a run's files before it comes to its line of that number; return the lines so far."""
    plain, lines = RunFiles.open, []
    traced = {method.__code__ for method in (plain, RunFiles.save, files.whole_files.__wrapped__)}

    def trace(frame, event, _):
        if frame.f_code not in traced:
            return None
        if event == "line":
            lines.append(frame.f_lineno)
            if len(lines) == line:
                raise Killed
        return trace

    def opened(run_files):
        before = sys.gettrace()
        sys.settrace(trace)
        try:
            return plain(run_files)
        finally:
            sys.settrace(before)

    patch.setattr(RunFiles, "open", opened)
    return lines


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # a kill leaves files open
@pytest.mark.parametrize("then", [8, 12])
def test_a_kill_while_a_run_takes_a_later_limit_loses_no_round(config, tmp_path, monkeypatch, then):
    monkeypatch.setattr("fedtempo.engine.run.CHECKPOINT_SECONDS", 0.0)
    monkeypatch.setattr("fedtempo.engine.records.LOCK_PATIENCE", 0.0)
    begun = whole_run(config, tmp_path / "begun", stop={"max_rounds": 8})
    whole = {8: begun, 12: whole_run(config, tmp_path / "whole", stop={"max_rounds": 12})}
    rounds, plain = [], Simulation._round

    def counted(simulation):
        rounds.append(simulation.rounds_done)
        return plain(simulation)

    for line in range(1, 1000):
        out = tmp_path / f"killed{line}"
        shutil.copytree(tmp_path / "begun", out)
        with monkeypatch.context() as patch:
            lines = killed_before(patch, line)
            try:
                whole_run(config, out, stop={"max_rounds": 12})
                break
            except Killed:
                pass
        rounds.clear()
        with monkeypatch.context() as patch:
            patch.setattr(Simulation, "_round", counted)
            assert whole_run(config, out, stop={"max_rounds": then}) == whole[then]
        assert min(rounds, default=8) >= 7, "of eight, only the last round is made again"
    assert line > len(lines) > 10


def test_limits_are_compared_once_nobody_else_can_change_them(config, tmp_path, monkeypatch):
    whole_run(config, tmp_path / "out", stop={"max_rounds": 4})
    plain, longer = RunFiles.lock, []

    def late(run_files):
        monkeypatch.setattr(RunFiles, "lock", plain)
        longer.append(whole_run(config, tmp_path / "out", stop={"max_rounds": 9}))  # as another process might
        run_files.lock()

    monkeypatch.setattr(RunFiles, "lock", late)
    with pytest.raises(InputError, match="max_rounds: 9 there, 6 here"):
        whole_run(config, tmp_path / "out", stop={"max_rounds": 6})
    assert (tmp_path / "out" / RECORDS).read_bytes() == longer[0]


@pytest.mark.parametrize("damage", [Path.unlink, lambda checkpoint: checkpoint.write_bytes(b"x")])
def test_a_finished_run_without_a_whole_checkpoint_is_kept(config, tmp_path, damage):
    kept = whole_run(config, tmp_path / "out", stop={"max_rounds": 8})
    damage(tmp_path / "out" / CHECKPOINT)
    with pytest.raises(InputError, match="max_rounds: 8 there, 9 here"):
        whole_run(config, tmp_path / "out", stop={"max_rounds": 9})
    assert (tmp_path / "out" / RECORDS).read_bytes() == kept


def test_a_run_that_reached_its_target_has_no_need_of_a_later_limit(config, tmp_path):
    stop = {"target_loss": 2.2, "max_rounds": 20}
    kept = whole_run(config, tmp_path / "out", stop=stop)
    assert b'"end":"target"' in kept
    assert whole_run(config, tmp_path / "out", stop=stop | {"max_rounds": 50}) == kept


def test_the_header_names_the_preset(config, tmp_path):
    for preset in ("paper", "best"):
        assert command("run", config, "--policy", "uniform", "--preset", preset, "-o", tmp_path / preset) == 0
        header = next(read_lines(tmp_path / preset / RECORDS))["header"]
        assert header["preset"] == preset
        assert "preset" not in header["config"]


def git(folder, *arguments):
    identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run(["git", "-C", folder, *identity, *arguments], check=True, capture_output=True)


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not on the PATH")
def test_the_commit_is_that_of_the_package_alone(tmp_path, monkeypatch):
    def commit_of(root):
        code = root / "fedtempo" / "experiments" / "runner.py"
        code.parent.mkdir(parents=True, exist_ok=True)
        code.touch()
        monkeypatch.setattr(runner, "__file__", str(code))
        return runner._commit.__wrapped__()

    assert commit_of(tmp_path / "nowhere") is None
    git(tmp_path, "init")
    commit_of(tmp_path)
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-m", "first")
    assert len(commit_of(tmp_path)) == 40
    (tmp_path / "notes.txt").write_text("not code")
    assert len(commit_of(tmp_path)) == 40
    (tmp_path / "fedtempo" / "more.py").write_text("changed = True")
    assert commit_of(tmp_path)[40:] == "+"
    assert commit_of(tmp_path / ".venv" / "lib" / "site-packages") is None, "this is the HEAD of whoever installed it"


def rounds_to(folder, target, phase="train"):
    rounds = [record for record in read_lines(folder / RECORDS) if record.get("phase") == phase]
    return next((r["round"] + 1 for r in rounds if r["loss"] is not None and r["loss"] <= target), np.nan)


LOSSES = [1.0, 0.9]
COMPARABLE = f"""
[policy.proposed]
losses = {LOSSES}
max_rounds = 60
[policy.proposed.training]
cohort_size = 2
[policy.uniform.training]
cohort_size = 2
[policy.weighted.training]
cohort_size = 2
"""


@pytest.mark.parametrize("every", [1, 2])
def test_rounds_are_averaged_over_the_runs_of_a_scheme(config, tmp_path, every):
    text = SMALL.replace("local_steps = 5", f"local_steps = 5\nevaluate_every = {every}")
    config.write_text(text[: text.index("[policy.proposed]")] + COMPARABLE)
    runs = {scheme: [tmp_path / scheme / str(seed) for seed in range(3)] for scheme in ("uniform", "weighted")}
    for scheme, folders in runs.items():
        for seed, folder in enumerate(folders):
            whole_run(config, folder, seed, scheme, stop={"max_rounds": 60})
    whole_run(config, tmp_path / "proposed", 3, "proposed")
    files = [folder / RECORDS for folders in runs.values() for folder in folders] + [tmp_path / "proposed" / RECORDS]
    expected = {}
    for scheme, folders in runs.items():
        each = [[rounds_to(folder, target) for target in LOSSES] for folder in folders]
        each.append([rounds_to(tmp_path / "proposed", target, f"pilot-{scheme}") for target in LOSSES])
        expected[scheme] = np.mean(each, axis=0)
    assert np.isfinite([*expected.values()]).all()
    for order in (files, files[::-1]):
        found = estimate_fleet(order)
        wanted = estimate_beta_over_alpha(found.fleet, *expected.values(), cohort_size=2)
        np.testing.assert_array_equal(found.beta_over_alpha.ratios, wanted.ratios)
        np.testing.assert_array_equal(found.beta_over_alpha.values, wanted.values)


@pytest.mark.parametrize(
    ("old", "new", "differing"),
    [
        ("cohort_size = 3", "cohort_size = 4", "cohort size"),
        ("step_size = 0.05", "cohort_size = 2", "cohort size"),
        ("losses = [2.2, 2.1]", "losses = [2.2]", "losses"),
        ("mean = 1.0", "mean = 2.0", "times"),
        ("samples = 800", "samples = 801", "clients"),
        ("[stop]", '[channel]\nkind = "fading"\n[stop]', "channel"),
    ],
)
def test_runs_that_do_not_go_together_are_refused(config, tmp_path, capsys, old, new, differing):
    whole_run(config, tmp_path / "runs" / "a", policy="weighted")
    assert old in SMALL
    config.write_text(SMALL.replace(old, new))
    whole_run(config, tmp_path / "runs" / "b", policy="weighted")
    assert command("estimate", tmp_path / "runs", "-o", tmp_path / "x.csv") == 2
    (error,) = capsys.readouterr().err.splitlines()
    assert f"must have the same {differing} as" in error
    assert not (tmp_path / "x.csv").exists()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"no records\n", "must hold the records of a run, got something else in line 1"),
        (b"[1]\n", "must hold the records of a run, got something else in line 1"),
        (b"\xff\xfe\n", "must hold the records of a run, got something else in line 1"),
        (b"", "must hold the whole records of a run, got none of experiment"),
        (b'{"header":{"policy":"uniform"}}\n', "got none of experiment, seed, config"),
        (b'{"round":0,"members":[1]}\n', "got none of experiment"),
    ],
)
@pytest.mark.parametrize("reader", ["estimate", "export"])
def test_other_files_are_refused(tmp_path, capsys, reader, content, said):
    (tmp_path / "other.jsonl").write_bytes(content)
    assert command(reader, tmp_path / "other.jsonl", "-o", tmp_path / "x.csv") == 2
    (error,) = capsys.readouterr().err.splitlines()
    assert said in error


@pytest.mark.parametrize("reader", ["estimate", "export"])
def test_rounds_that_lack_something_are_refused(config, tmp_path, capsys, reader):
    header, first, *_ = whole_run(config, tmp_path / "out").splitlines(keepends=True)
    (tmp_path / "out" / RECORDS).write_bytes(header + first.replace(b'"upload_time"', b'"upload"'))
    assert command(reader, tmp_path / "out", "-o", tmp_path / "x.csv") == 2
    assert "got none of upload_time" in capsys.readouterr().err


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
    rounds, (experiment, table) = [], read_experiment(config)
    runner.run(
        experiment, table, policy="uniform", seed=0, folder=tmp_path / "out",
        progress=lambda simulation, record: rounds.append(record.get("round")),
    )  # fmt: skip
    assert rounds == [4, 5, None], "a checkpoint stands after the fourth round"
    config.write_text(SMALL)
    _, *whole = whole_run(config, tmp_path / "whole").splitlines()
    assert (tmp_path / "out" / RECORDS).read_bytes().splitlines()[1:] == whole


def test_headers_of_other_settings_are_compared_as_they_are(config, tmp_path):
    stopped_run(config, tmp_path / "out")
    change_header(tmp_path / "out", lambda header: header["config"]["training"].update(old_setting=1))
    with pytest.raises(InputError, match=r"\(config.training.old_setting: 1 there, nothing here\)"):
        whole_run(config, tmp_path / "out")


@pytest.mark.parametrize("content", [b"", b'{"header":{"pol'])
def test_runs_killed_at_their_start_are_passed_over(config, tmp_path, capsys, content):
    whole_run(config, tmp_path / "runs" / "a")
    (tmp_path / "runs" / "b").mkdir()
    (tmp_path / "runs" / "b" / RECORDS).write_bytes(content)
    for reader, page in (("report", "x.html"), ("export", "x.csv"), ("estimate", "y.csv")):
        assert command(reader, tmp_path / "runs", "-o", tmp_path / page) == 0
        (note,) = (line for line in capsys.readouterr().err.splitlines() if "passed over" in line)
        assert note.startswith(f"note: {tmp_path / 'runs' / 'b' / RECORDS} without a line passed over")
    assert command("report", tmp_path / "runs" / "b", "-o", tmp_path / "x.html") == 2
    assert "must hold records of runs (records.jsonl), got none" in capsys.readouterr().err
