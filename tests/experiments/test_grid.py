"""Grids of runs: found again, resumed, and ended by Ctrl-C."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fedtempo.engine.records import LOCK, RECORDS
from fedtempo.experiments.config import read_experiment
from fedtempo.experiments.grid import Job, has_ended, last_line, run_grid
from fedtempo.files import lock
from fedtempo.simulator.simulation import Simulation
from support.grids import jobs_of
from support.paths import ROOT


def test_finished_runs_are_found_again_by_what_they_are(setup2, tmp_path):
    jobs = jobs_of(setup2, tmp_path / "runs")
    written = run_grid(jobs, processes=2)
    before = [(path.stat().st_mtime_ns, path.read_bytes()) for path in written]
    assert [path.parent.name.rsplit("-", 1)[0] for path in written] == [
        "uniform-seed0", "uniform-seed1", "weighted-seed0", "weighted-seed1",
    ]  # fmt: skip
    assert run_grid(jobs, processes=1) == written
    assert [(path.stat().st_mtime_ns, path.read_bytes()) for path in written] == before
    same = jobs_of(setup2, tmp_path / "runs", policy={"proposed": {"floor": 0.2}})
    assert [job.folder for job in same] == [job.folder for job in jobs], "another policy's options do not matter"
    for setting in ({"training": {"cohort_size": 2}}, {"stop": {"max_rounds": 9}}):
        other = jobs_of(setup2, tmp_path / "runs", **setting)
        assert not {job.folder for job in other} & {job.folder for job in jobs}
    best, _ = read_experiment(setup2, "best")
    assert Job(best, {}, "uniform", 0, tmp_path).folder.name != jobs[0].folder.name


def test_a_grid_on_one_process_runs_each_round_once_and_ends_at_ctrl_c(setup2, tmp_path, monkeypatch):
    jobs, rounds, plain = jobs_of(setup2, tmp_path / "runs", ["uniform"]), [], Simulation._round

    def interrupted(simulation):
        rounds.append((simulation.seed, simulation.rounds_done))
        if rounds[-1] == (0, 5):
            signal.raise_signal(signal.SIGINT)
        return plain(simulation)

    monkeypatch.setattr(Simulation, "_round", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_grid(jobs, processes=1)
    assert rounds == [(0, number) for number in range(6)]
    assert [has_ended(job) for job in jobs] == [True, False]


def test_ctrl_c_while_workers_start_is_heard(setup2, tmp_path, monkeypatch):
    def started(parallel, calls):
        signal.raise_signal(signal.SIGINT)
        return (path for path in ())

    monkeypatch.setattr("joblib.Parallel.__call__", started)
    with pytest.raises(KeyboardInterrupt):
        run_grid(jobs_of(setup2, tmp_path / "runs"), processes=2)


def test_the_last_line_is_found_without_reading_the_rest(tmp_path):
    path = tmp_path / "lines"
    for size in (10, 5000, 100_000):
        lines = [{"number": i, "text": "x" * size} for i in range(3)]
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        assert last_line(path)["number"] == 2
        path.write_text(path.read_text() + '{"half')
        assert last_line(path)["number"] == 2
    path.write_text('{"half')
    assert last_line(path) == {}
    path.write_text("")
    assert last_line(path) == {}


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
from support.grids import jobs_of
job = jobs_of(Path({str(setup2)!r}), Path({str(tmp_path / "runs")!r}), ["uniform"], [0])[0]
if os.fork() == 0:
    job.run()
else:
    while not any(Path({str(tmp_path / "runs")!r}).rglob("records.jsonl")):
        pass
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
    job = jobs_of(setup2, tmp_path / "runs", ["uniform"], [0])[0]
    size = -1
    for _ in range(100):
        time.sleep(0.2)
        before, size = size, (job.folder / RECORDS).stat().st_size
        if before == size:
            break
    assert before == size
    assert not has_ended(job)
    shutil.rmtree(job.folder)


def test_records_of_other_data_are_refused(setup2, tmp_path, monkeypatch):
    jobs = jobs_of(setup2, tmp_path / "runs", ["uniform"], [0])
    (path,) = run_grid(jobs, processes=1)
    path.write_text(path.read_text().replace('"data_checksum":"', '"data_checksum":"0', 1))
    with pytest.raises(ValueError, match="got other data"):
        run_grid(jobs, processes=1)


def test_who_has_waited_for_the_lock_does_not_run_again(setup2, tmp_path):
    (job,) = jobs_of(setup2, tmp_path / "runs", ["uniform"], [0])
    whole = job.run().read_bytes()
    (job.folder / RECORDS).write_bytes(whole[: len(whole) // 2].rsplit(b"\n", 1)[0] + b"\n")
    with open(job.folder / LOCK, "ab") as locked, open(job.folder / RECORDS, "r+b") as stream:
        assert lock(locked)
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(job.run)
            time.sleep(0.5)
            stream.write(whole)  # the other process ends its run
            stream.flush()
            changed = os.stat(job.folder / RECORDS).st_mtime_ns
            locked.close()
            assert waiting.result(timeout=30).read_bytes() == whole
    assert os.stat(job.folder / RECORDS).st_mtime_ns == changed


def test_workers_that_were_started_elsewhere_write_to_the_right_folder(setup2, tmp_path, monkeypatch):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        for path in run_grid(jobs_of(setup2, Path("runs"), seeds=[0]), processes=2):
            assert path.is_relative_to(tmp_path / name)
            assert path.exists()
