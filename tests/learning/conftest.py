"""Data that trainers learn from."""

import pytest

from fedtempo.data.synthetic import synthetic_data


@pytest.fixture(scope="module")
def data():
    return synthetic_data(alpha=1.0, beta=1.0, num_clients=8, num_samples=900, seed=3)
