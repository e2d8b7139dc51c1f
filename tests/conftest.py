"""What every test has: kernels that are compiled, output as into a pipe, and small fleets, data and experiments."""

import signal

import numpy as np
import pytest
from hypothesis import settings
from threadpoolctl import threadpool_limits

from fedtempo import Fleet
from fedtempo.data.synthetic import synthetic_data
from fedtempo.simulator.kernels import load_kernels
from support.runs import SMALL

threadpool_limits(limits=1)  # tests run side by side, one to a core
signal.signal(signal.SIGINT, signal.default_int_handler)  # which shells take from what they run in the background
settings.register_profile("fedtempo", deadline=None, derandomize=True, max_examples=200)
settings.load_profile("fedtempo")


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
    """A fleet whose cohorts can all be enumerated."""
    return Fleet(
        data_share=np.array([0.1, 0.5, 0.15, 0.25]),
        gradient_bound=np.array([3.0, 0.5, 1.0, 2.0]),
        compute_time=np.array([1.0, 0.2, 4.0, 0.2]),
        upload_time=np.array([0.3, 2.0, 0.7, 1.1]),
        total_bandwidth=1.7,
    )


@pytest.fixture(scope="module")
def data():
    """Data of twelve clients."""
    return synthetic_data(alpha=1.0, beta=1.0, num_clients=12, num_samples=1500, seed=1)


@pytest.fixture(scope="module")
def times():
    """Times of these twelve clients."""
    return {"compute_time": np.linspace(0.1, 2.0, 12), "upload_time": np.linspace(1.5, 0.2, 12)}


@pytest.fixture
def config(tmp_path):
    """The file of a small experiment."""
    path = tmp_path / "small.toml"
    path.write_text(SMALL)
    return path


@pytest.fixture
def setup2(tmp_path):
    """The file of a small experiment under the name of a setup of the paper, with options for the paper's schemes."""
    more = "[policy.statistical]\nlosses = [2.2]\n[policy.proposed-oracle]\nbeta_over_alpha = 2.0\n"
    path = tmp_path / "setup2.toml"
    path.write_text(SMALL.replace("[presets.best", f"{more}[presets.best"))
    return path
