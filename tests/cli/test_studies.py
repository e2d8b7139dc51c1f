"""`fedtempo compare` as people call it: its table, what it refuses, and Ctrl-C."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import asdict

import psutil
import pytest

from fedtempo.engine.records import RECORDS
from fedtempo.experiments.comparing.statistics import Target, outcomes
from fedtempo.experiments.running.results import read_runs
from support.marks import slow_after
from support.runs import command


def test_compare_prints_a_table_and_writes_what_scripts_read(setup2, tmp_path, capsys):
    written, page = tmp_path / "runs.json", tmp_path / "page.html"
    arguments = ["compare", setup2, "--policies", "uniform,proposed", "--seeds", 2, "--first-seed", 3, "--jobs", 2]
    arguments += ["--target-loss", 1.4, "--json", written, "--report", page, "-o", tmp_path / "runs"]
    assert command(*arguments) == 0
    shown = capsys.readouterr().out
    assert "| uniform |" in shown
    assert "over proposed" in shown
    rows = json.loads(written.read_text())
    assert [(row["policy"], row["seed"]) for row in rows] == [
        ("uniform", 3), ("uniform", 4), ("proposed", 3), ("proposed", 4),
    ]  # fmt: skip
    for row in rows:
        assert set(row) == {
            "policy", "seed", "reached", "time_to_target", "time_with_pilots", "pilot_time", "rounds", "final_loss",
        }  # fmt: skip
        assert (row["pilot_time"] > 0) == (row["policy"] == "proposed")
    read = outcomes(read_runs([tmp_path / "runs"]), Target(loss=1.4))  # in the order of their names
    assert sorted(rows, key=lambda row: (row["policy"], row["seed"])) == [asdict(one) for one in read]
    assert "<html" in page.read_text()[:2000]
    limited = [*arguments[:-6], "--target-loss", 1.4, "--time-limit", 5, "--json", written, "-o", tmp_path / "runs"]
    assert command(*limited) == 0
    for row in json.loads(written.read_text()):
        assert row["reached"] or row["time_to_target"] == 5


@pytest.mark.parametrize(("ending", "begins"), [("png", b"\x89PNG"), ("pdf", b"%PDF"), ("svg", b"<?xml")])
def test_compare_draws_the_curves(setup2, tmp_path, capsys, ending, begins):
    pytest.importorskip("matplotlib")
    picture = tmp_path / f"curves.{ending}"
    arguments = ["--policies", "uniform", "--seeds", 1, "--jobs", 1, "--target-loss", 2, "-o", tmp_path / "runs"]
    assert command("compare", setup2, *arguments, "--plot", picture) == 0
    assert picture.read_bytes().startswith(begins)
    assert f"wrote {picture}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--policies", "uniform", "--plot", "curves.doc"], "--plot must end in .png, .pdf or .svg"),
        (["--policies", "uniform,uniform"], "distinct names"),
        (["--policies", " , "], "distinct names"),
        (["--policies", "unifrom"], "did you mean 'uniform'"),
        (["--policies", "uniform", "--seeds", "0"], "--seeds must be"),
        (["--policies", "uniform", "--first-seed", "-1"], "--first-seed must be"),
        (["--policies", "uniform", "--jobs", "0", "--target-loss", "1"], "--jobs must be"),
        (["--policies", "uniform"], "must have a target"),
    ],
)
def test_bad_comparisons_get_one_sentence(setup2, capsys, arguments, said):
    assert command("compare", setup2, *arguments) == 2
    shown = capsys.readouterr().err
    assert said in shown
    assert len(shown.strip().splitlines()) == 1


def test_a_diverging_run_is_part_of_the_comparison(setup2, tmp_path, capsys):
    setup2.write_text(setup2.read_text().replace("step_size = 0.05", "step_size = 1e9"))
    arguments = ["--policies", "uniform,weighted", "--seeds", 1, "--target-loss", 1.4, "-o", tmp_path / "runs"]
    assert command("compare", setup2, *arguments, "--json", tmp_path / "runs.json") == 0
    assert re.search(r"\| weighted \| > [\d.,]+, 1 of 1 diverged \|", capsys.readouterr().out)
    uniform, weighted = json.loads((tmp_path / "runs.json").read_text())
    assert not weighted["reached"]
    trained = [run.time[-1] for run in read_runs([tmp_path / "runs"]) if run.end == "max_rounds"]
    assert len(trained) == 1, "uniform is not the one to diverge"
    assert [row["time_to_target"] for row in (uniform, weighted)] == trained * 2, "as in the table"
    limited = [*arguments, "--time-limit", 70, "--json", tmp_path / "limited.json"]
    assert command("compare", setup2, *limited) == 0
    _, weighted = json.loads((tmp_path / "limited.json").read_text())
    assert weighted["time_to_target"] == 70.0


@pytest.mark.parametrize("pause", slow_after(1, [0.0, 0.02, 0.1]))
def test_ctrl_c_twice_ends_a_comparison_with_one_sentence(setup2, tmp_path, pause):
    """In a session of its own, whose processes all hear it, as those of a terminal do."""
    setup2.write_text(setup2.read_text().replace("max_rounds = 6", "max_rounds = 1000000"))
    arguments = ["--policies", "uniform,weighted", "--seeds", "2", "--jobs", "2", "--target-loss", "0.001"]
    shown = [sys.executable, "-m", "fedtempo", "compare", setup2, *arguments, "-o", tmp_path / "runs"]
    process = subprocess.Popen(shown, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    deadline = time.monotonic() + 60
    while not any((tmp_path / "runs").rglob(RECORDS)) and time.monotonic() < deadline:
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    time.sleep(pause)
    os.killpg(process.pid, signal.SIGINT)
    out, error = process.communicate(timeout=30)
    assert (process.returncode, out.strip()) == (130, "")
    folder = tmp_path / "runs" / "setup2"
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
