"""Kernels before they are needed."""

from fedtempo.data.synthetic import synthetic_data
from fedtempo.engine.settings import StopSettings, TrainingSettings
from fedtempo.learning.threads import one_thread
from fedtempo.simulator.problem import Problem
from fedtempo.simulator.simulation import RunSettings, make_simulation


def load_kernels() -> None:
    """Load what training and evaluation of a softmax regression run, or compile it where this machine has not yet."""
    data = synthetic_data(alpha=1.0, beta=1.0, num_clients=10, num_samples=800, seed=0)
    problem = Problem(data, compute_time=1.0, upload_time=1.0)
    training, stop = TrainingSettings(cohort_size=1, local_steps=1), StopSettings(max_rounds=1)
    settings = RunSettings(policy="weighted", training=training, stop=stop, seed=0)
    with one_thread():
        for _ in make_simulation(problem, settings).rounds():
            pass
