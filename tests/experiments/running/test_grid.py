"""Grids of runs: found again, resumed, and ended by Ctrl-C."""

import os
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from fedtempo.checks import InputError
from fedtempo.engine.loop import Loop
from fedtempo.engine.records import RECORDS, HeaderLine, Summary, encode
from fedtempo.engine.run_folder import LOCK
from fedtempo.experiments.running.grid import Execution, GridInterrupted, has_ended, last_line, run_grid
from fedtempo.experiments.running.planned import plan_runs, until
from fedtempo.experiments.running.processes import compute
from fedtempo.experiments.running.provenance import made_with
from fedtempo.experiments.settings.config_file import load_experiment
from fedtempo.files import lock
from support.grids import ONE_PROCESS, TWO_PROCESSES, made_up, planned_runs
from support.paths import ROOT


def test_finished_runs_are_found_again_by_what_they_are(setup2, tmp_path):
    planned = planned_runs(setup2, tmp_path / "runs")
    found = run_grid("small", planned, TWO_PROCESSES)
    written = [run.folder / RECORDS for run in found]
    assert written == [run.records for run in planned]
    before = [(path.stat().st_mtime_ns, path.read_bytes()) for path in written]
    assert [path.parent.name.rsplit("-", 1)[0] for path in written] == [
        "uniform-seed0", "uniform-seed1", "weighted-seed0", "weighted-seed1",
    ]  # fmt: skip
    assert [run.folder for run in run_grid("small", planned, ONE_PROCESS)] == [run.folder for run in planned]
    assert [(path.stat().st_mtime_ns, path.read_bytes()) for path in written] == before
    same = planned_runs(setup2, tmp_path / "runs", policy={"proposed": {"floor": 0.2}})
    assert [run.folder for run in same] == [run.folder for run in planned], "another policy's options do not matter"
    for setting in ({"training": {"cohort_size": 2}}, {"stop": {"max_rounds": 9}}):
        other = planned_runs(setup2, tmp_path / "runs", **setting)
        assert not {run.folder for run in other} & {run.folder for run in planned}
    (best,) = plan_runs(load_experiment(setup2, "best"), ["uniform"], [0], tmp_path)
    assert best.folder.name != planned[0].folder.name


def test_a_run_that_is_asked_for_twice_runs_once(setup2, tmp_path, monkeypatch):
    planned, started = planned_runs(setup2, tmp_path / "runs", ["uniform"], [0, 0, 1]), []
    monkeypatch.setattr(
        "fedtempo.experiments.running.processes.compute", lambda run, pid: started.append(run.seed) or compute(run, pid)
    )
    found = run_grid("small", planned, ONE_PROCESS)
    assert started == [0, 1]
    assert found[0] is found[1]
    assert found[1].folder != found[2].folder


def test_whoever_watches_sees_what_is_left_and_each_end(setup2, tmp_path):
    planned, seen = planned_runs(setup2, tmp_path / "runs", ["uniform"], [0, 1]), []

    @contextmanager
    def watch(grid):
        seen.append((grid.title, len(grid.runs), len(grid.unfinished)))
        yield lambda run: seen.append(run.seed)

    run_grid("first", planned[:1], Execution(jobs=1, watch=watch))
    run_grid("both", planned, Execution(jobs=2, watch=watch))
    run_grid("again", planned, Execution(jobs=1, watch=watch))
    assert seen == [("first", 1, 1), 0, ("both", 2, 1), 1, ("again", 2, 0)]


def test_the_commit_is_asked_for_once_and_never_by_workers(setup2, tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr("fedtempo.experiments.running.provenance._commit", lambda: asked.append(1) or "0123abc")
    made_with.cache_clear()
    try:
        found = run_grid("small", planned_runs(setup2, tmp_path / "runs"), TWO_PROCESSES)
    finally:
        made_with.cache_clear()
    assert asked == [1]
    assert {run.header.commit for run in found} == {"0123abc"}


def test_a_grid_on_one_process_runs_each_round_once_and_ends_at_ctrl_c(setup2, tmp_path, monkeypatch):
    planned, rounds, plain = planned_runs(setup2, tmp_path / "runs", ["uniform"]), [], Loop._round

    def interrupted(loop):
        rounds.append((loop.seed, loop.state.rounds_done))
        if rounds[-1] == (0, 5):
            signal.raise_signal(signal.SIGINT)
        return plain(loop)

    monkeypatch.setattr(Loop, "_round", interrupted)
    with pytest.raises(GridInterrupted) as stopped:
        run_grid("small", planned, ONE_PROCESS)
    assert rounds == [(0, number) for number in range(6)]
    assert [has_ended(run) for run in planned] == [True, False]
    assert (stopped.value.ended, stopped.value.total, stopped.value.folder) == (1, 2, tmp_path / "runs")


def test_ctrl_c_while_workers_start_is_heard(setup2, tmp_path, monkeypatch):
    def started(parallel, calls):
        signal.raise_signal(signal.SIGINT)
        return (path for path in ())

    monkeypatch.setattr("joblib.Parallel.__call__", started)
    with pytest.raises(KeyboardInterrupt):
        run_grid("small", planned_runs(setup2, tmp_path / "runs"), TWO_PROCESSES)


@pytest.mark.parametrize("size", [10, 5000, 100_000])
def test_the_last_line_is_found_without_reading_the_rest(tmp_path, size):
    path, run = tmp_path / "lines", made_up("uniform", 0, [2.0, 1.0, 0.5], 1.0)
    header = encode(HeaderLine(msgspec.structs.replace(run.header, data="x" * size)))
    path.write_bytes(header)
    assert last_line(path).header.data == "x" * size
    rounds = b"".join(encode(msgspec.structs.replace(record, note={"x": "x" * size})) for record in run.records)
    for half in (b"", b'{"half'):
        path.write_bytes(header + rounds + half)
        assert last_line(path).round == 2
    path.write_bytes(header + rounds + encode(run.summary))
    assert last_line(path) == run.summary
    assert isinstance(last_line(path), Summary)
    for nothing in (b'{"half', b""):
        path.write_bytes(nothing)
        assert last_line(path) is None


@pytest.mark.slow
def test_a_ray_cluster_runs_the_same_grid(setup2, tmp_path):
    """In a process of its own, since Ray leaves threads and warnings behind."""
    pytest.importorskip("ray")
    arguments = ["compare", setup2, "--policies", "uniform,weighted", "--seeds", "2", "--target-loss", "1.4"]
    for name, more in (("here", ["--jobs", "1"]), ("there", ["--ray", "local"])):
        shown = [sys.executable, "-m", "fedtempo", *arguments, *more, "-o", tmp_path / name]
        subprocess.run(shown, check=True, capture_output=True, timeout=120)
    here = sorted((tmp_path / "here").rglob(RECORDS))
    assert len(here) == 4
    for path in here:
        assert path.read_bytes() == (tmp_path / "there" / path.relative_to(tmp_path / "here")).read_bytes()


def test_an_orphan_gives_way(setup2, tmp_path):
    """Whoever waited for a run was killed: the worker ends, so that a new grid may go on with the run."""
    setup2.write_text(setup2.read_text().replace("max_rounds = 6", "max_rounds = 30000"))
    script = f"""
import os, sys
sys.path.insert(0, {str(ROOT / "tests")!r})
from pathlib import Path
from fedtempo.experiments.running.processes import compute
from support.grids import planned_runs
(run,) = planned_runs(Path({str(setup2)!r}), Path({str(tmp_path / "runs")!r}), ["uniform"], [0])
parent = os.getpid()
if os.fork() == 0:
    compute(run, parent)
else:
    while not any(Path({str(tmp_path / "runs")!r}).rglob("records.jsonl")):
        pass
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
    (run,) = planned_runs(setup2, tmp_path / "runs", ["uniform"], [0])
    size = -1
    for _ in range(100):
        time.sleep(0.2)
        before, size = size, run.records.stat().st_size
        if before == size:
            break
    assert before == size
    assert not has_ended(run)
    shutil.rmtree(run.folder)


def test_records_of_other_data_are_refused(setup2, tmp_path):
    planned = planned_runs(setup2, tmp_path / "runs", ["uniform"], [0])
    run_grid("small", planned, ONE_PROCESS)
    path = planned[0].records
    path.write_text(path.read_text().replace('"data_checksum":"', '"data_checksum":"0', 1))
    with pytest.raises(InputError, match="got other data"):
        run_grid("small", planned, ONE_PROCESS)


def test_who_has_waited_for_the_lock_does_not_run_again(setup2, tmp_path):
    (run,) = planned_runs(setup2, tmp_path / "runs", ["uniform"], [0])
    compute(run, os.getpid())
    whole = run.records.read_bytes()
    run.records.write_bytes(whole[: len(whole) // 2].rsplit(b"\n", 1)[0] + b"\n")
    with open(run.folder / LOCK, "ab") as locked, open(run.records, "r+b") as stream:
        assert lock(locked)
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(compute, run, os.getpid())
            time.sleep(0.5)
            stream.write(whole)  # the other process ends its run
            stream.flush()
            changed = os.stat(run.records).st_mtime_ns
            locked.close()
            assert waiting.result(timeout=30) == run.folder
    assert run.records.read_bytes() == whole
    assert os.stat(run.records).st_mtime_ns == changed


def test_workers_that_were_started_elsewhere_write_to_the_right_folder(setup2, tmp_path, monkeypatch):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        for run in run_grid("small", planned_runs(setup2, Path("runs"), seeds=[0]), TWO_PROCESSES):
            assert run.folder.is_relative_to(tmp_path / name)
            assert run.end == "max_rounds"


@pytest.mark.parametrize("jobs", [0, -2, -7])
def test_somebody_must_compute(jobs):
    with pytest.raises(InputError, match=f"jobs must be a number of processes, or -1 for one to each core, got {jobs}"):
        Execution(jobs=jobs)


def test_a_run_has_ended_for_a_limit_that_its_records_go_beyond(setup2, tmp_path):
    (one,) = planned_runs(setup2, tmp_path / "runs", ["uniform"], [0], stop={"max_time": 30.0})
    shorter, longer = until(one, 15.0), until(one, 60.0)
    run_grid("small", [one], ONE_PROCESS)
    assert [has_ended(run) for run in (shorter, one, longer)] == [True, True, False]
    lines = one.records.read_bytes().splitlines(keepends=True)
    one.records.write_bytes(b"".join(lines[:-1]))
    assert [has_ended(run) for run in (shorter, one, longer)] == [True, False, False], "killed before the summary"
    one.records.write_bytes(b"".join(lines[:2]))
    assert not has_ended(shorter), "killed before this limit too"
    run_grid("small", [shorter], ONE_PROCESS)
    assert has_ended(shorter)
    (read,) = run_grid("small", [longer], ONE_PROCESS)
    assert read.time_limit == 60.0
    assert read.time_trained >= 60.0
