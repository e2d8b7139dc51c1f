"""Sums have one order: whatever multiplies has one thread, from the first round of a new process on."""

import subprocess
import sys

import pytest

SEEN = """
from threadpoolctl import threadpool_info

def threads():
    return {one["num_threads"] for one in threadpool_info()}
"""
BY_FILE = """
import sys
from pathlib import Path
from fedtempo.experiments.running.planned import plan_run
from fedtempo.experiments.running.runner import run
from fedtempo.experiments.settings.config_file import load_experiment

planned = plan_run(load_experiment(sys.argv[1]), "weighted", 0, Path(sys.argv[2]))
run(planned, lambda loop, record: print(threads()))
"""
IN_PYTHON = """
import fedtempo
from fedtempo.data.synthetic import synthetic_data
from fedtempo.policies.fixed import FixedSampling

class Watching(FixedSampling):
    def __init__(self, setting):
        super().__init__(setting.fleet, fedtempo.weighted_sampling(setting.fleet), setting.cohort_size)

    def observe(self, report):
        print(threads())

data = synthetic_data(alpha=1.0, beta=1.0, num_clients=5, num_samples=400, seed=0)
fedtempo.simulate(data, compute_time=1.0, upload_time=1.0, policy=Watching, cohort_size=2, max_rounds=2)
"""


@pytest.mark.parametrize("code", [BY_FILE, IN_PYTHON], ids=["file", "python"])
def test_a_new_process_trains_with_one_thread_from_its_first_round_on(config, tmp_path, code):
    command = [sys.executable, "-c", SEEN + code, config, tmp_path / "run"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert shown
    assert set(shown) == {"{1}"}
