"""Kernels before they are needed."""

from fedtempo.data.synthetic import synthetic_data
from fedtempo.simulator.api import simulate


def load_kernels() -> None:
    """Load what training and evaluation of a softmax regression run, or compile it where this machine has not yet."""
    data = synthetic_data(alpha=1.0, beta=1.0, num_clients=10, num_samples=800, seed=0)
    simulate(data, compute_time=1.0, upload_time=1.0, cohort_size=1, local_steps=1, max_rounds=1)
