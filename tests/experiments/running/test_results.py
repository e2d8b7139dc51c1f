"""Results of runs: when targets were reached, and rounds on another link."""

import numpy as np
import pytest

from fedtempo import cohort_round_time
from fedtempo.checks import InputError
from fedtempo.engine.records import RECORDS, read_records
from fedtempo.experiments.running.grid import run_grid
from fedtempo.experiments.running.results import read_run
from support.grids import ONE_PROCESS, made_up, planned_runs


def test_a_run_tells_when_targets_were_reached(setup2, tmp_path):
    (run,) = run_grid("small", planned_runs(setup2, tmp_path, ["proposed"], [0]), ONE_PROCESS)
    trained = [record for record in read_records(run.folder / RECORDS).rounds if record.phase == "train"]
    assert len(run.time) == len(trained)
    assert run.pilot_time == pytest.approx(sum(r.round_time for r in run.records if r.phase != "train"))
    assert run.time_trained == pytest.approx(run.summary.time)
    target = float(np.sort(run.loss)[2])
    first = next(i for i, record in enumerate(trained) if record.loss <= target)
    assert run.round_of(loss=target) == first + 1
    assert run.time_to(loss=target) == pytest.approx(sum(r.round_time for r in trained[: first + 1]))
    assert run.time_to(loss=0.0001) is None
    both = run.round_of(loss=target, accuracy=float(run.accuracy.max()))
    assert both == max(first, int(run.accuracy.argmax())) + 1


def test_rounds_are_timed_anew_on_another_link(setup2, tmp_path):
    (run,) = run_grid("small", planned_runs(setup2, tmp_path, ["uniform"], [0]), ONE_PROCESS)
    np.testing.assert_allclose(run.round_times("paper", "paper"), np.diff(run.time, prepend=0.0))
    for record, shared in zip(run.trained, run.round_times("shared", "physical"), strict=True):
        times = np.array(record.compute_time), np.array(record.upload_time)
        assert shared == pytest.approx(cohort_round_time(*times, link="shared"))


def test_a_run_that_has_not_ended_has_no_end():
    run = made_up("uniform", 0, [2.0, 1.0], 5.0, end=None, pilot=3.0)
    assert (run.end, run.summary, run.time_limit) == (None, None, None)
    assert (run.time.tolist(), run.time_trained, run.pilot_time) == ([5.0, 10.0], 10.0, 3.0)
    assert made_up("uniform", 0, [], 1.0).time_trained == 0.0


def test_a_run_that_was_killed_at_its_start_is_refused(tmp_path):
    (tmp_path / RECORDS).write_bytes(b'{"header":{"pol')
    with pytest.raises(InputError, match="must hold the records of a run, got no line"):
        read_run(tmp_path / RECORDS)
