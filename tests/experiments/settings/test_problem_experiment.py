"""What training has where nobody names a setting: the same in Python as in the file that `fedtempo init` writes."""

import tomllib
from dataclasses import asdict

import numpy as np
import pytest

import fedtempo
from fedtempo.data.synthetic import synthetic_data
from fedtempo.engine.settings import TrainingSettings
from fedtempo.experiments.settings.config import for_policy
from fedtempo.experiments.settings.problem_experiment import OUT_OF_THE_BOX, problem_experiment
from fedtempo.experiments.settings.template import TEMPLATE

DATA = synthetic_data(alpha=1.0, beta=1.0, num_clients=4, num_samples=200, seed=0)
PROBLEM = fedtempo.Problem(DATA, compute_time=np.ones(4), upload_time=1.0)


def training(**asked):
    return problem_experiment(PROBLEM, {"training": asked, "stop": {"max_rounds": 1}}).training


def test_init_writes_what_calls_without_settings_have():
    written = tomllib.loads(TEMPLATE)["training"]
    assert asdict(TrainingSettings(**written)) == asdict(training())
    assert set(OUT_OF_THE_BOX) <= set(written)


def test_what_somebody_names_lies_over_it():
    assert training(upload_bits=8).upload_bits == 8
    assert training(upload_bits=8).step_size == "auto"
    assert training(cohort_size=5).step_size == 0.1, "whoever names K has the paper's settings"


def test_a_setting_that_excludes_another_is_not_met_by_it():
    looks = training(evaluate_every=2)
    assert (looks.evaluate_every, looks.evaluate_growth) == (2, 0.0)
    sparse = training(upload_top=0.1, error_feedback=True)
    assert (sparse.upload_bits, sparse.upload_top) == (32, 0.1)


@pytest.mark.parametrize(("usual", "own", "schedule"), [(0.1, "auto", "constant"), (0.1, 0.2, "inverse")])
def test_a_policys_own_step_size_brings_its_schedule(usual, own, schedule):
    asked = {"training": {"cohort_size": 2, "step_size": usual}, "stop": {"max_rounds": 1}}
    experiment = problem_experiment(PROBLEM, asked | {"policy": {"weighted": {"training": {"step_size": own}}}})
    assert for_policy(experiment, "weighted")[0].schedule == schedule
