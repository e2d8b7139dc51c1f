"""A small problem of one's own."""

import numpy as np
import pytest

from fedtempo import Problem
from fedtempo.data.synthetic import synthetic_data

SIZE = 10


@pytest.fixture(scope="session")
def own_data():
    return synthetic_data(alpha=1.0, beta=1.0, num_clients=SIZE, num_samples=1000, seed=0)


@pytest.fixture
def own_times():
    rng = np.random.default_rng(5)
    return {"compute_time": rng.exponential(size=SIZE), "upload_time": rng.exponential(size=SIZE)}


@pytest.fixture
def problem(own_data, own_times):
    return Problem(own_data, **own_times)
