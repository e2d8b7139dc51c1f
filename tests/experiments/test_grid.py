"""Grids of runs, comparisons and reproductions: found again, resumed after kills, and told as they were."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pytest
from test_run import SMALL, command

from fedtempo import Fleet, cohort_round_time, round_time_bounds
from fedtempo.engine.records import LOCK, RECORDS, RunFiles, read_lines
from fedtempo.engine.settings import TrainingSettings
from fedtempo.experiments.comparison import Target, as_json, ratio, times_to
from fedtempo.experiments.config import read_experiment
from fedtempo.experiments.grid import Job, has_ended, last_line, run_grid
from fedtempo.experiments.paper import SETUPS
from fedtempo.experiments.results import Run, read_run, read_runs
from fedtempo.experiments.tables import (
    amount,
    factor,
    gains_table,
    interval,
    round_time_table,
    rounds_table,
    seconds,
    time_table,
)
from fedtempo.experiments.tuning import Candidate, at_the_edge
from fedtempo.files import lock
from fedtempo.simulator.simulation import Simulation

ORACLE = "[policy.proposed-oracle]\nbeta_over_alpha = 2.0\n"


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "setup2.toml"
    path.write_text(SMALL.replace("[presets.best", f"[policy.statistical]\nlosses = [2.2]\n{ORACLE}[presets.best"))
    return path


def jobs_of(config, root, policies=("uniform", "weighted"), seeds=(0, 1), **over):
    experiment, table = read_experiment(config, over=over)
    return [Job(experiment, table, policy, seed, root) for policy in policies for seed in seeds]


def test_finished_runs_are_found_again_by_what_they_are(config, tmp_path):
    jobs = jobs_of(config, tmp_path / "runs")
    written = run_grid(jobs, processes=2)
    before = [(path.stat().st_mtime_ns, path.read_bytes()) for path in written]
    assert [path.parent.name.rsplit("-", 1)[0] for path in written] == [
        "uniform-seed0", "uniform-seed1", "weighted-seed0", "weighted-seed1",
    ]  # fmt: skip
    assert run_grid(jobs, processes=1) == written
    assert [(path.stat().st_mtime_ns, path.read_bytes()) for path in written] == before
    same = jobs_of(config, tmp_path / "runs", policy={"proposed": {"floor": 0.2}})
    assert [job.folder for job in same] == [job.folder for job in jobs], "another policy's options do not matter"
    for setting in ({"training": {"cohort_size": 2}}, {"stop": {"max_rounds": 9}}):
        other = jobs_of(config, tmp_path / "runs", **setting)
        assert not {job.folder for job in other} & {job.folder for job in jobs}
    best, _ = read_experiment(config, "best")
    assert Job(best, {}, "uniform", 0, tmp_path).folder.name != jobs[0].folder.name


def test_a_grid_on_one_process_runs_each_round_once_and_ends_at_ctrl_c(config, tmp_path, monkeypatch):
    jobs, rounds, plain = jobs_of(config, tmp_path / "runs", ["uniform"]), [], Simulation._round

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


def test_ctrl_c_while_workers_start_is_heard(config, tmp_path, monkeypatch):
    def started(parallel, calls):
        signal.raise_signal(signal.SIGINT)
        return (path for path in ())

    monkeypatch.setattr("joblib.Parallel.__call__", started)
    with pytest.raises(KeyboardInterrupt):
        run_grid(jobs_of(config, tmp_path / "runs"), processes=2)


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


def test_two_processes_do_not_write_one_run(tmp_path, monkeypatch):
    monkeypatch.setattr("fedtempo.engine.records.LOCK_PATIENCE", 0.3)
    first = RunFiles(tmp_path / "run", {"seed": 0})
    first.open()
    with pytest.raises(ValueError, match="one process"):
        RunFiles(tmp_path / "run", {"seed": 0}).open()
    first.close()
    second = RunFiles(tmp_path / "run", {"seed": 0})
    second.open()
    second.close()


def test_a_run_tells_when_targets_were_reached(config, tmp_path):
    run = read_run(run_grid(jobs_of(config, tmp_path, ["proposed"], [0]), processes=1)[0])
    trained = [line for line in read_lines(run.folder / RECORDS) if line.get("phase") == "train"]
    assert len(run.time) == len(trained)
    assert run.pilot_time == pytest.approx(sum(r["round_time"] for r in run.records if r["phase"] != "train"))
    assert run.time[-1] == pytest.approx(run.summary["time"])
    target = float(np.sort(run.loss)[2])
    first = next(i for i, record in enumerate(trained) if record["loss"] <= target)
    assert run.round_of(loss=target) == first + 1
    assert run.time_to(loss=target) == pytest.approx(sum(r["round_time"] for r in trained[: first + 1]))
    assert run.time_to(loss=0.0001) is None
    both = run.round_of(loss=target, accuracy=float(run.accuracy.max()))
    assert both == max(first, int(run.accuracy.argmax())) + 1


def test_rounds_are_timed_anew_on_another_link(config, tmp_path):
    run = read_run(run_grid(jobs_of(config, tmp_path, ["uniform"], [0]), processes=1)[0])
    np.testing.assert_allclose(run.round_times("paper", "paper"), np.diff(run.time, prepend=0.0))
    for record, shared in zip(run.trained, run.round_times("shared", "physical"), strict=True):
        times = np.array(record["compute_time"]), np.array(record["upload_time"])
        assert shared == pytest.approx(cohort_round_time(*times, link="shared"))


def test_statistics_of_times_are_those_of_the_textbook(config, tmp_path):
    jobs = jobs_of(config, tmp_path, seeds=range(4), stop={"max_rounds": 25})
    runs = [read_run(path) for path in run_grid(jobs, processes=2)]
    target = Target(loss=1.5)
    found = times_to(runs, target)
    uniform = np.array([run.time_to(loss=1.5) for run in runs[:4]], dtype=float)
    assert not np.isnan(uniform).any(), "the case must have a target that is reached"
    assert found["uniform"].mean == pytest.approx(uniform.mean())
    half = 3.182446 * uniform.std(ddof=1) / 2  # Student's t with three degrees of freedom
    assert found["uniform"].interval == pytest.approx((uniform.mean() - half, uniform.mean() + half))
    value, low, high = ratio(found["uniform"], found["weighted"])
    assert value == pytest.approx(uniform.mean() / found["weighted"].seconds.mean())
    assert low <= value <= high
    mean = uniform.mean()
    assert seconds(found["uniform"]) == f"{amount(mean)} ± {amount(uniform.std(ddof=1), mean)}"
    assert "–" in interval(found["uniform"])
    late = times_to(runs, target, time_limit=float(np.sort(uniform)[1]))["uniform"]
    assert late.missed == 2
    assert late.seconds.max() == np.sort(uniform)[1]
    assert seconds(late).startswith("> ")
    assert seconds(late).endswith("2 of 4 not reached")
    never = times_to(runs, Target(loss=0.001))
    assert never["uniform"].missed == 4
    assert never["uniform"].mean == pytest.approx(np.mean([run.time[-1] for run in runs[:4]]))
    assert factor(never["uniform"], found["weighted"]).startswith("> ")


def test_compare_prints_a_table_and_writes_what_scripts_read(config, tmp_path, capsys):
    written, page = tmp_path / "runs.json", tmp_path / "page.html"
    arguments = ["compare", config, "--policies", "uniform,proposed", "--seeds", 2, "--first-seed", 3, "--jobs", 2]
    arguments += ["--target-loss", 1.4, "--json", written, "--report", page, "-o", tmp_path / "runs"]
    assert command(*arguments) == 0
    shown = capsys.readouterr().out
    assert "| uniform |" in shown
    assert "over proposed" in shown
    rows = json.loads(written.read_text())
    assert [(row["policy"], row["seed"]) for row in rows] == [
        ("proposed", 3), ("proposed", 4), ("uniform", 3), ("uniform", 4),
    ]  # fmt: skip
    for row in rows:
        assert set(row) == {
            "policy", "seed", "reached", "time_to_target", "pilot_time", "rounds", "final_loss",
        }  # fmt: skip
        assert (row["pilot_time"] > 0) == (row["policy"] == "proposed")
    assert rows == as_json(read_runs([tmp_path / "runs"]), Target(loss=1.4))
    assert "<html" in page.read_text()[:2000]
    limited = [*arguments[:-6], "--target-loss", 1.4, "--time-limit", 5, "--json", written, "-o", tmp_path / "runs"]
    assert command(*limited) == 0
    for row in json.loads(written.read_text()):
        assert row["reached"] or row["time_to_target"] == 5


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--policies", "uniform,uniform"], "distinct names"),
        (["--policies", " , "], "distinct names"),
        (["--policies", "unifrom"], "did you mean 'uniform'"),
        (["--policies", "uniform", "--seeds", "0"], "--seeds must be"),
        (["--policies", "uniform", "--first-seed", "-1"], "--first-seed must be"),
        (["--policies", "uniform", "--jobs", "0", "--target-loss", "1"], "--jobs must be"),
        (["--policies", "uniform"], "must have a target"),
    ],
)
def test_bad_comparisons_get_one_sentence(config, capsys, arguments, said):
    assert command("compare", config, *arguments) == 2
    shown = capsys.readouterr().err
    assert said in shown
    assert len(shown.strip().splitlines()) == 1


def test_a_diverging_run_is_part_of_the_comparison(config, tmp_path):
    config.write_text(config.read_text().replace("step_size = 0.05", "step_size = 1e9"))
    arguments = ["--policies", "uniform,weighted", "--seeds", 1, "--target-loss", 1.4, "-o", tmp_path / "runs"]
    assert command("compare", config, *arguments, "--json", tmp_path / "runs.json") == 0
    uniform, weighted = json.loads((tmp_path / "runs.json").read_text())
    assert not weighted["reached"]
    trained = [run.time[-1] for run in read_runs([tmp_path / "runs"]) if run.summary["end"] == "max_rounds"]
    assert len(trained) == 1, "uniform is not the one to diverge"
    assert [row["time_to_target"] for row in (uniform, weighted)] == trained * 2, "as in the table"
    limited = [*arguments, "--time-limit", 70, "--json", tmp_path / "limited.json"]
    assert command("compare", config, *limited) == 0
    _, weighted = json.loads((tmp_path / "limited.json").read_text())
    assert weighted["time_to_target"] == 70.0


def test_a_ray_cluster_runs_the_same_grid(config, tmp_path):
    """In a process of its own, since Ray leaves threads and warnings behind."""
    pytest.importorskip("ray")
    arguments = ["compare", config, "--policies", "uniform,weighted", "--seeds", "2", "--target-loss", "1.4"]
    for name, more in (("here", ["--jobs", "1"]), ("there", ["--ray", "local"])):
        shown = [sys.executable, "-m", "fedtempo", *arguments, *more, "-o", tmp_path / name]
        subprocess.run(shown, check=True, capture_output=True, timeout=120)
    here = sorted((tmp_path / "here").rglob(RECORDS))
    assert len(here) == 4
    for path in here:
        assert path.read_bytes() == (tmp_path / "there" / path.relative_to(tmp_path / "here")).read_bytes()


REPRODUCE = """
import sys
from fedtempo.cli import main
main(["reproduce", "setup2", "--configs", sys.argv[1], "--seeds", "2", "--jobs", "2",
      "--records", sys.argv[2] + "/runs", "-o", sys.argv[2] + "/out"])
"""


def test_reproduce_killed_ten_times_ends_with_the_same_tables(config, tmp_path):
    config.write_text(config.read_text().replace("max_rounds = 6", "max_rounds = 400"))
    shown = [sys.executable, "-c", REPRODUCE, config.parent]
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
    subprocess.run([*shown, tmp_path / "whole"], check=True, capture_output=True, env=environment)
    chance, kills = random.Random(5), 0
    while kills < 10:
        process = subprocess.Popen([*shown, tmp_path / "killed"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            process.wait(timeout=chance.uniform(2.0, 5.0))
            break
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
            kills += 1
    assert kills >= 2
    subprocess.run([*shown, tmp_path / "killed"], check=True, capture_output=True, env=environment)
    for name in ("setup2.md", "setup2.png"):
        assert (tmp_path / "killed/out" / name).read_bytes() == (tmp_path / "whole/out" / name).read_bytes()
    ours, theirs = (sorted(path.name for path in (tmp_path / x / "runs").rglob("*-seed*")) for x in ("whole", "killed"))
    assert ours == theirs
    for path in (tmp_path / "whole/runs").rglob(RECORDS):
        assert path.read_bytes() == (tmp_path / "killed/runs" / path.relative_to(tmp_path / "whole/runs")).read_bytes()


def test_an_orphan_gives_way(config, tmp_path):
    """Whoever waited for a run was killed: the worker ends, so that a new grid may go on with the run."""
    config.write_text(config.read_text().replace("max_rounds = 6", "max_rounds = 30000"))
    script = f"""
import os, sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from pathlib import Path
from test_grid import jobs_of
job = jobs_of(Path({str(config)!r}), Path({str(tmp_path / "runs")!r}), ["uniform"], [0])[0]
if os.fork() == 0:
    job.run()
else:
    while not any(Path({str(tmp_path / "runs")!r}).rglob("records.jsonl")):
        pass
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
    job = jobs_of(config, tmp_path / "runs", ["uniform"], [0])[0]
    size = -1
    for _ in range(100):
        time.sleep(0.2)
        before, size = size, (job.folder / RECORDS).stat().st_size
        if before == size:
            break
    assert before == size
    assert not has_ended(job)
    shutil.rmtree(job.folder)


@pytest.mark.parametrize("pause", [0.0, 0.02, 0.1])
def test_ctrl_c_twice_ends_a_comparison_with_one_sentence(config, tmp_path, pause):
    """In a session of its own, whose processes all hear it, as those of a terminal do."""
    config.write_text(config.read_text().replace("max_rounds = 6", "max_rounds = 1000000"))
    arguments = ["--policies", "uniform,weighted", "--seeds", "2", "--jobs", "2", "--target-loss", "0.001"]
    shown = [sys.executable, "-m", "fedtempo", "compare", config, *arguments, "-o", tmp_path / "runs"]
    process = subprocess.Popen(shown, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    deadline = time.monotonic() + 60
    while not any((tmp_path / "runs").rglob(RECORDS)) and time.monotonic() < deadline:
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    time.sleep(pause)
    os.killpg(process.pid, signal.SIGINT)
    out, error = process.communicate(timeout=30)
    assert (process.returncode, out.strip()) == (130, "")
    folder = tmp_path / "runs" / "setup2" / "paper"
    assert error == (
        f"fedtempo: interrupted; 0 of 4 runs have ended, in {folder}; the same command goes on with the others\n"
    )
    _, left = psutil.wait_procs([one for one in psutil.process_iter() if in_session(one, process.pid)], timeout=10)
    assert [one for one in left if one.status() != psutil.STATUS_ZOMBIE] == []


def in_session(process, session):
    try:
        return os.getsid(process.pid) == session
    except ProcessLookupError:
        return False


def test_small_reproductions_of_the_impact_of_k_and_e(config, tmp_path):
    for what in ("impact-of-k", "impact-of-e"):
        arguments = ["--configs", config.parent, "--seeds", 1, "--jobs", 2, "--records", tmp_path / "runs"]
        assert command("reproduce", what, *arguments, "-o", tmp_path / "out") == 0
        assert f"fedtempo reproduce {what} --seeds 1" in (tmp_path / "out" / f"{what}.md").read_text()
        rows = cells((tmp_path / "out" / f"{what}.md").read_text())[1:]
        assert [row[0] for row in rows] == (
            ["1", "4", "10", "16"] if what == "impact-of-k" else ["10", "25", "50", "100"]
        )
        for row, path in ((row, path) for row in rows for path in (tmp_path / "runs").rglob(RECORDS)):
            run = read_run(path)
            if what == "impact-of-k" and sum(run.trained[0]["counts"]) == int(row[0]):
                assert amount(run.time_to(loss=1.2) or run.time[-1]) in row[1]
    assert command("reproduce", "table9", "-o", tmp_path / "out") == 2


def test_tuning_names_the_best_of_each_policy(config, tmp_path, capsys):
    arguments = ["tune", config, "--policies", "uniform,proposed", "--step-sizes", "0.05,1e9", "--cohort-sizes", "2,4"]
    arguments += ["--seeds", 2, "--target-loss", 1.6, "--preset", "best", "-o", tmp_path / "runs"]
    assert command(*arguments) == 0
    shown = capsys.readouterr().out
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in shown.splitlines() if line.startswith("| ")][
        1:
    ]
    assert len(rows) == 8
    assert "small, preset best, to loss 1.6, seeds 1000, 1001, for at most 6 rounds." in shown
    assert "- uniform, proposed: local_steps 5, batch_size 24, schedule inverse," in shown
    for policy in ("uniform", "proposed"):
        (best,) = [row for row in rows if row[0] == policy and row[4] == "best"]
        assert best[1] == "0.05", "a diverging step size is not the best"
        assert f"[presets.best.policy.{policy}.training]\nstep_size = 0.05\ncohort_size = {best[2]}" in shown
    runs = read_runs([tmp_path / "runs"])
    assert {run.seed for run in runs} == {1000, 1001}
    uniform = {
        size: np.mean([
            run.time_to(loss=1.6) or run.time[-1]
            for run in runs
            if run.policy == "uniform" and run.header["config"]["policy"]["uniform"]["training"]
            == {"step_size": 0.05, "cohort_size": size}
        ])
        for size in (2, 4)
    }  # fmt: skip
    (best,) = [row for row in rows if row[0] == "uniform" and row[4] == "best"]
    assert int(best[2]) == min(uniform, key=uniform.get)
    for sizes, said in (("fast", "must be numbers"), (",", "at least one step size")):
        assert command("tune", config, "--policies", "uniform", "--step-sizes", sizes, "--target-loss", 1) == 2
        assert said in capsys.readouterr().err
    assert command("tune", config, "--policies", "uniform", "--step-sizes", "0.1") == 2
    assert "must have a target" in capsys.readouterr().err


def candidate(policy, step_size, cohort_size, seconds, **more):
    run = made_up(policy, 0, [1.0], seconds)
    training = {"step_size": step_size, "cohort_size": cohort_size, **more}
    made = Candidate(policy, training, cohort_size, [])
    made.__dict__["runs"] = [run]
    return made


def test_tuning_says_where_the_best_lies_at_the_edge_of_what_was_tried():
    took = {(0.1, 4): 9.0, (0.2, 4): 5.0, (0.4, 4): 7.0, (0.1, 6): 9.0, (0.2, 6): 4.0, (0.4, 6): 8.0}
    found = [candidate("uniform", *settings, seconds) for settings, seconds in took.items()]
    target = Target(loss=1.0)
    assert at_the_edge(found, target) == ["uniform: cohort_size 6 is the largest that was tried; try 9 too"]
    deaf = [candidate("tempo", step, size, step) for step in (0.1, 0.3) for size in (1, 2)]
    assert at_the_edge(deaf, target) == ["tempo: step_size 0.1 is the smallest that was tried; try 0.033 too"]
    least = [candidate("uniform", 0.1, size, size) for size in (1, 2)]
    assert at_the_edge(least, target) == [], "one value is no grid, and no cohort is smaller than 1"
    plain = [candidate("uniform", step, 2, 9.0, server_momentum=0.0) for step in (0.1, 0.2, 0.4)]
    momentum = [candidate("uniform", step, 2, 1 / step, server_momentum=0.9) for step in (0.1, 0.2)]
    assert at_the_edge(plain + momentum, target) == [
        "uniform: step_size 0.2 is the largest that was tried; try 0.4 too"
    ]


def test_a_step_size_that_diverges_is_never_the_best(config, tmp_path, capsys):
    arguments = ["tune", config, "--policies", "uniform", "--step-sizes", "0.05,1e9", "--target-loss", 0.001]
    assert command(*arguments, "--seeds", 1, "-o", tmp_path / "runs") == 0
    assert "step_size = 0.05" in capsys.readouterr().out


def made_up(policy, seed, losses, seconds, *, end="max_rounds", pilot=0.0, counts=(2, 1)):
    """Return a run whose rounds take equal times and whose two members compute and upload in times of their own."""
    records = [
        {
            "round": r, "phase": "train", "round_time": seconds, "loss": loss, "accuracy": 1 - loss / 3,
            "members": [0, 1], "counts": list(counts), "compute_time": [1.0, 2.0], "upload_time": [0.5, 0.25],
            "largest_gradient_norm": [1.0, 2.0],
        }
        for r, loss in enumerate(losses)
    ]  # fmt: skip
    header = {
        "experiment": "made up", "policy": policy, "seed": seed, "samples": [30, 10], "data": "nothing",
        "config": {"times": {}, "training": {}, "stop": {}},
    }  # fmt: skip
    time = seconds * np.arange(1.0, len(losses) + 1)
    losses = np.array(losses)
    return Run(Path("nowhere"), header, {"end": end}, records, policy, seed, pilot, time, losses, 1 - losses / 3)


def cells(table):
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines() if line.startswith("| ")]


def test_missed_runs_make_bounds_and_are_never_dropped():
    runs = [made_up("uniform", s, [2.0, 1.0, 0.5], 10.0) for s in range(2)]
    runs += [made_up("proposed-oracle", 0, [2.0, 0.5], 4.0), made_up("proposed-oracle", 1, [2.0, 1.5, 1.4], 4.0)]
    target = Target(loss=0.5)
    heading, uniform, ours = cells(time_table(runs, target))
    assert heading[4] == "over proposed-oracle"
    assert uniform[:5] == ["uniform", "30.0 ± 0.0", "-", "3", "< 3.00 ×"]  # 30 s over more than (8 + 12)/2 s
    assert ours[1:4] == ["> 10.0, 1 of 2 not reached", "-", "> 2"]
    never = [made_up(policy, 0, [2.0, 1.9], 5.0) for policy in ("uniform", "proposed-oracle")]
    assert [row[4] for row in cells(time_table(never, target))[1:]] == ["-", "1"]
    steps = cells(gains_table(runs, target, [], 1))
    # Constant times of members: on an equal link member 0, drawn twice, has 2/3 of it for twice the work.
    equal = max(1 + 2 * 0.5 / (2 / 3), 2 + 0.25 / (1 / 3))
    assert steps[1][1] == f"{3 * equal:.2f}"
    shared = cohort_round_time([1.0, 2.0], [0.5, 0.25], link="shared")
    assert steps[5][1] == f"> {(2 + 3) / 2 * shared:.2f}, 1 of 2 not reached"
    assert steps[5][2].startswith("< ")


@pytest.mark.parametrize(
    ("rounds", "said"),
    [([10.0], "-"), ([10.0, 11.0], "-"), ([10.0, 10.0, 13.0], "6.7–15.3"), ([10.0, 10.0, 100.0], "up to 169.1")],
)
def test_intervals_take_three_seeds_and_are_not_cut_at_0(rounds, said):
    times = times_to([made_up("uniform", s, [1.0], taken) for s, taken in enumerate(rounds)], Target(loss=1.0))[
        "uniform"
    ]
    assert interval(times) == said


def test_diverged_runs_stand_at_the_longest_time_and_none_divides_by_zero():
    runs = [made_up("uniform", 0, [2.0, 1.0], 10.0), made_up("proposed", 0, [2.0], 1.0, end="diverged", pilot=7.0)]
    found = times_to(runs, Target(loss=1.0))
    assert found["proposed"].seconds.tolist() == [20.0]
    assert found["proposed"].rounds.tolist() == [1.0]
    assert cells(time_table(runs, Target(loss=1.0)))[1][4] == "< 1.00 ×"
    nothing = made_up("proposed", 0, [], 1.0, end="diverged")
    assert (
        ratio(times_to(runs[:1], Target(loss=1.0))["uniform"], times_to([nothing], Target(loss=1.0))["proposed"])[0]
        == np.inf
    )


def test_pilots_are_left_out_and_counted():
    runs = [made_up("uniform", 0, [1.0], 30.0), made_up("proposed", 0, [1.0], 10.0, pilot=20.0)]
    heading, uniform, proposed = cells(time_table(runs, Target(loss=1.0), {"uniform": (5.0, 1.0), "proposed": None}))
    assert heading[4:] == ["over proposed", "pilots (s)", "with pilots (s)", "over proposed, with pilots", "paper (s)"]
    assert uniform[4:] == ["3.00 ×", "none", "30.0", "1.00 ×", "5 ± 1"]
    assert proposed[4:] == ["1", "20.0", "30.0", "1", "not reached"]


def test_tables_of_rounds_and_round_times_are_those_of_the_theory():
    uniform = [made_up("uniform", s, [1.2, 1.1, 1.0], 5.0) for s in range(2)]
    weighted = [made_up("weighted", s, [1.1, 1.0 - 0.1 * s], 5.0) for s in range(2)]
    setup = replace(SETUPS["setup2"], losses=(1.1, 1.0), rounds_uniform=(7, 8), rounds_weighted=(5, 6))
    table = cells(rounds_table(uniform + weighted, setup, 3))
    assert table[1] == ["uniform", "2.0", "3.0"]
    assert table[3] == ["weighted", "1.0", "2.0"]
    assert table[5] == ["uniform / weighted", "2.00", "1.50"]
    q = np.array([0.5, 0.5])
    fleet = Fleet([0.75, 0.25], [1.0, 2.0], [1.0, 2.0], [0.5, 0.25])
    lower, upper = round_time_bounds(fleet, q, cohort_size=3)
    paper, other = TrainingSettings(cohort_size=3), TrainingSettings(cohort_size=3, link="shared")
    (row,) = cells(round_time_table(uniform, {"uniform": [q, q]}, {"uniform": paper}))[1:]
    assert [row[1], row[4], row[5]] == [f"{lower:.2f}", "5.00", f"{upper:.2f}"]
    (row,) = cells(round_time_table(uniform, {"uniform": [q, q]}, {"uniform": other}))[1:]
    assert [row[1], row[2], row[5]] == ["-", "-", "-"]


def test_records_of_other_data_are_refused(config, tmp_path, monkeypatch):
    jobs = jobs_of(config, tmp_path / "runs", ["uniform"], [0])
    (path,) = run_grid(jobs, processes=1)
    path.write_text(path.read_text().replace('"data_checksum":"', '"data_checksum":"0', 1))
    with pytest.raises(ValueError, match="got other data"):
        run_grid(jobs, processes=1)


def test_who_has_waited_for_the_lock_does_not_run_again(config, tmp_path):
    (job,) = jobs_of(config, tmp_path / "runs", ["uniform"], [0])
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


@pytest.mark.parametrize("preset", ["best", "authors-code"])
def test_other_presets_are_reproduced_too(config, tmp_path, preset):
    config.write_text(
        config.read_text() + "[presets.authors-code.policy.uniform]\nreplacement = false\n"
        "[presets.best.policy.uniform.training]\ncohort_size = 2\n"
    )
    arguments = ["--configs", config.parent, "--seeds", 1, "--jobs", 2, "--preset", preset]
    assert command("reproduce", "setup2", *arguments, "--records", tmp_path / "runs", "-o", tmp_path / "out") == 0
    text = (tmp_path / "out" / f"setup2-{preset}.md").read_text()
    assert "Table 3" in text
    assert "Table 2" not in text


def test_workers_that_were_started_elsewhere_write_to_the_right_folder(config, tmp_path, monkeypatch):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        for path in run_grid(jobs_of(config, Path("runs"), seeds=[0]), processes=2):
            assert path.is_relative_to(tmp_path / name)
            assert path.exists()
