"""Runs that have ended go on to later limits, and lose no round by a kill."""

import shutil
import sys
from pathlib import Path

import pytest

from fedtempo import InputError, files
from fedtempo.engine.loop import Loop
from fedtempo.engine.records import RECORDS
from fedtempo.engine.run_folder import CHECKPOINT, RunFolder
from fedtempo.policies.registry import BUILT_IN
from support.runs import SMALL, run_file, stopped_run, whole_run


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
    for _ in range(2):
        run_file(
            config, tmp_path / "out", policy, over={"stop": longer}, progress=lambda _, record: rounds.append(record)
        )
        assert (tmp_path / "out" / RECORDS).read_bytes() == whole
    if checkpoints == 0:
        before, after = (len(lines.splitlines()) - 2 for lines in (begun, whole))  # all but header and summary
        assert len(rounds) == after - before + 1, "of the rounds before, only the last one is made again"


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
    plain, lines = RunFolder.open, []
    traced = {method.__code__ for method in (plain, RunFolder.save, files.whole_files.__wrapped__)}

    def trace(frame, event, _):
        if frame.f_code not in traced:
            return None
        if event == "line":
            lines.append(frame.f_lineno)
            if len(lines) == line:
                raise Killed
        return trace

    def opened(run_folder):
        before = sys.gettrace()
        sys.settrace(trace)
        try:
            return plain(run_folder)
        finally:
            sys.settrace(before)

    patch.setattr(RunFolder, "open", opened)
    return lines


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # a kill leaves files open
@pytest.mark.parametrize("then", [8, 12])
def test_a_kill_while_a_run_takes_a_later_limit_loses_no_round(config, tmp_path, monkeypatch, then):
    monkeypatch.setattr("fedtempo.engine.run.CHECKPOINT_SECONDS", 0.0)
    monkeypatch.setattr("fedtempo.engine.run_folder.LOCK_PATIENCE", 0.0)
    begun = whole_run(config, tmp_path / "begun", stop={"max_rounds": 8})
    whole = {8: begun, 12: whole_run(config, tmp_path / "whole", stop={"max_rounds": 12})}
    rounds, plain = [], Loop._round

    def counted(loop):
        rounds.append(loop.state.rounds_done)
        return plain(loop)

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
            patch.setattr(Loop, "_round", counted)
            assert whole_run(config, out, stop={"max_rounds": then}) == whole[then]
        assert min(rounds, default=8) >= 7, "of eight, only the last round is made again"
    assert line > len(lines) > 10


def test_limits_are_compared_once_nobody_else_can_change_them(config, tmp_path, monkeypatch):
    whole_run(config, tmp_path / "out", stop={"max_rounds": 4})
    plain, longer = RunFolder.lock, []

    def late(run_folder):
        monkeypatch.setattr(RunFolder, "lock", plain)
        longer.append(whole_run(config, tmp_path / "out", stop={"max_rounds": 9}))  # as another process might
        run_folder.lock()

    monkeypatch.setattr(RunFolder, "lock", late)
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
