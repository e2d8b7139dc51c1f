"""Data for short runs of a policy."""

import pytest

from fedtempo.data.synthetic import synthetic_data


@pytest.fixture(scope="module")
def small_data():
    return synthetic_data(alpha=1.0, beta=1.0, num_clients=8, num_samples=800, seed=1)
