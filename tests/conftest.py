"""Fleets for tests: random ones over many decades, and a small one whose cohorts can all be enumerated."""

import signal

import numpy as np
import pytest
from hypothesis import settings
from threadpoolctl import threadpool_limits

from fedtempo import Fleet
from fedtempo.simulator.kernels import load_kernels

threadpool_limits(limits=1)  # tests run side by side, one to a core
signal.signal(signal.SIGINT, signal.default_int_handler)  # which shells take from what they run in the background
settings.register_profile("fedtempo", deadline=None, derandomize=True, max_examples=200)
settings.load_profile("fedtempo")


def random_fleet(rng: np.random.Generator, size: int, decades: float = 2.0) -> Fleet:
    """Return a fleet whose shares, norms and times each spread over so many decades; some compute in no time at all."""

    def spread() -> np.ndarray:
        return 10 ** rng.uniform(-decades / 2, decades / 2, size)

    share = spread()
    compute_time = spread() * (rng.random(size) > 0.1)
    return Fleet(share / share.sum(), spread(), compute_time, spread(), float(10 ** rng.uniform(-2, 2)))


@pytest.fixture(autouse=True)
def wide_output(monkeypatch):
    """Print as into a pipe, whatever terminal the tests run in."""
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.fixture(scope="session", autouse=True)
def compiled():
    """Compile the kernels beforehand, so that no command of a test says that it compiles them, whatever the machine."""
    load_kernels()


@pytest.fixture
def small_fleet() -> Fleet:
    return Fleet(
        data_share=np.array([0.1, 0.5, 0.15, 0.25]),
        gradient_bound=np.array([3.0, 0.5, 1.0, 2.0]),
        compute_time=np.array([1.0, 0.2, 4.0, 0.2]),
        upload_time=np.array([0.3, 2.0, 0.7, 1.1]),
        total_bandwidth=1.7,
    )
