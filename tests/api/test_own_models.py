"""Data, models and losses of one's own: the same in Python and in a configuration, drawn as what they are."""

import numpy as np
import pytest

import fedtempo
from fedtempo import FederatedData, InputError, Problem

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

TRAINING = {"cohort_size": 3, "local_steps": 4, "batch_size": 8, "step_size": 0.05, "schedule": "constant"}
CONFIG = """
name = "mine"
[data]
kind = "arrays"
file = "mine.npz"
clients = 6
split = "dirichlet"
concentration = 1.0
seed = 3
test = 0.2
[model]
kind = "own_net:network"
loss = "own_net:loss"
optimiser = "Adam"
[times]
compute = { kind = "constant", value = 2.0 }
upload = { kind = "constant", value = 0.5 }
[training]
cohort_size = 3
local_steps = 4
batch_size = 8
step_size = 0.05
schedule = "constant"
[stop]
max_rounds = 5
target_loss = 0.01
"""
MODULE = """
from torch import nn
from torch.nn.functional import cross_entropy

def network():
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))

def loss(outputs, labels):
    return 2 * cross_entropy(outputs, labels)
"""


@pytest.fixture
def arrays():
    rng = np.random.default_rng(0)
    labels = np.arange(240) % 3
    return rng.normal(size=(240, 4)).astype(np.float32) + labels[:, None], labels


def network():
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))


def twice_the_entropy(outputs, labels):
    return 2 * torch.nn.functional.cross_entropy(outputs, labels)


@pytest.mark.parametrize("policy", ["weighted", "tempo"])
def test_a_problem_is_the_same_in_python_and_in_a_configuration(arrays, tmp_path, monkeypatch, policy):
    np.savez(tmp_path / "mine.npz", inputs=arrays[0], labels=arrays[1])
    (tmp_path / "own_net.py").write_text(MODULE)
    (tmp_path / "mine.toml").write_text(CONFIG)
    by_file = fedtempo.compare(tmp_path / "mine.toml", [policy], seeds=1, jobs=1)
    data = FederatedData.from_arrays(*arrays, clients=6, split="dirichlet", concentration=1.0, seed=3, test=0.2)
    problem = Problem(data, network, compute_time=2.0, upload_time=0.5, loss=twice_the_entropy, optimiser="Adam")
    in_python = fedtempo.compare(problem, [policy], seeds=1, jobs=1, max_rounds=5, target_loss=0.01, **TRAINING)
    assert by_file.runs[0].records == in_python.runs[0].records
    assert by_file.runs[0].header.data_checksum == in_python.runs[0].header.data_checksum


def test_the_trained_model_comes_back(arrays, tmp_path):
    data = FederatedData.from_arrays(*arrays, clients=6, seed=3, test=0.2)
    problem = Problem(data, network, compute_time=2.0, upload_time=0.5)
    run = fedtempo.simulate(problem, max_rounds=6, out=tmp_path / "run", **TRAINING)
    again = fedtempo.simulate(problem, max_rounds=6, out=tmp_path / "run", **TRAINING)
    for one in (run, again):
        module = one.to_module()
        outputs = module(torch.from_numpy(data.test_inputs.copy()))
        right = float((outputs.argmax(1) == torch.from_numpy(data.test_labels.copy())).float().mean())
        assert right == pytest.approx(run.summary.accuracy)


def test_a_device_may_be_one_of_torch(arrays):
    data, times = FederatedData.from_arrays(*arrays, clients=6), {"compute_time": 2.0, "upload_time": 0.5}
    asked = {"max_rounds": 3, **TRAINING}
    usual = fedtempo.simulate(data, model=network, device="cpu", **times, **asked)
    cpu = torch.device("cpu")
    problem = Problem(data, network, device=cpu, **times)
    assert problem.description == Problem(data, network, **times).description
    assert fedtempo.simulate(problem, device=cpu, **asked).records == usual.records
    assert fedtempo.simulate(data, model=network, device=cpu, **times, **asked).records == usual.records


def negative_error(outputs, labels):
    return -(outputs - labels).abs().mean()


def test_a_metric_of_ones_own_is_drawn_as_it_is(arrays, tmp_path):
    values = arrays[0].sum(axis=1)
    data = FederatedData.from_arrays(arrays[0], values, clients=6, split="iid")
    problem = Problem(
        data, lambda: nn.Sequential(nn.Linear(4, 1), nn.Flatten(0)), compute_time=1.0, upload_time=1.0,
        loss=torch.nn.functional.mse_loss, metric=negative_error,
    )  # fmt: skip
    found = fedtempo.compare(problem, ["weighted"], seeds=1, jobs=1, max_rounds=8, target_accuracy=-9.0, **TRAINING)
    assert "negative_error -9" in str(found)
    axes = found.plot().axes
    assert [one.get_ylabel() for one in axes] == ["loss", "negative_error", "loss"]
    assert axes[1].get_title() == "(b) negative_error against time"
    assert found.runs[0].accuracy.max() <= 0
    found.report(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "negative_error" in page
    assert "accuracy (%)" not in page
    assert "Negative_error against time" in page
    assert "The problem was made in Python" in page
    assert "Flower" not in page.split("<h3>What was run")[1]
    run = fedtempo.simulate(problem, policy="weighted", max_rounds=1, **TRAINING)
    assert "negative_error" in str(run)
    assert "accuracy" not in str(run)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"model": lambda: nn.Linear(4, 7)}, "give 3 numbers for a sample"),
        ({"model": lambda: nn.Linear(5, 3)}, "take inputs of shape"),
        ({"model": lambda: 1 / 0}, "ZeroDivisionError"),
        ({"model": "resnet"}, "model must be softmax"),
        ({"optimiser": "Adamm"}, "did you mean 'adam'"),
        ({"loss": lambda outputs, labels: outputs}, "loss"),
        ({"device": "moon"}, "device must be"),
    ],
)
def test_what_does_not_fit_gets_one_sentence(arrays, tmp_path, change, said):
    data = FederatedData.from_arrays(*arrays, clients=6)
    settings = {"model": network, "compute_time": 1.0, "upload_time": 1.0} | change
    asked = {"seeds": 1, "jobs": 1, "max_rounds": 2, "target_loss": 1.0, "out": tmp_path / "out", **TRAINING}
    with pytest.raises(InputError) as refused:
        fedtempo.compare(Problem(data, **settings), ["weighted"], **asked)
    assert said in str(refused.value)
    assert not (tmp_path / "out").exists()
