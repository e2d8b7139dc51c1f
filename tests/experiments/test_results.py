"""Results of runs: when targets were reached, and rounds on another link."""

import numpy as np
import pytest

from fedtempo import cohort_round_time
from fedtempo.engine.records import RECORDS, read_lines
from fedtempo.experiments.grid import run_grid
from fedtempo.experiments.results import read_run
from support.grids import jobs_of


def test_a_run_tells_when_targets_were_reached(setup2, tmp_path):
    run = read_run(run_grid(jobs_of(setup2, tmp_path, ["proposed"], [0]), processes=1)[0])
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


def test_rounds_are_timed_anew_on_another_link(setup2, tmp_path):
    run = read_run(run_grid(jobs_of(setup2, tmp_path, ["uniform"], [0]), processes=1)[0])
    np.testing.assert_allclose(run.round_times("paper", "paper"), np.diff(run.time, prepend=0.0))
    for record, shared in zip(run.trained, run.round_times("shared", "physical"), strict=True):
        times = np.array(record["compute_time"]), np.array(record["upload_time"])
        assert shared == pytest.approx(cohort_round_time(*times, link="shared"))
