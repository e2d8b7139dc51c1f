"""Modules and devices that are refused, each in one sentence."""

import numpy as np
import pytest
import torch
from torch import nn

from fedtempo.checks import InputError
from fedtempo.data.federation import FederatedData
from fedtempo.learning.torch_module import TorchTrainer
from support.modules import normed
from support.trainers import work_of


def failing():
    raise KeyError("hidden size")


class Counting(nn.Module):
    """A module that fails in training alone, after some batches."""

    def __init__(self):
        super().__init__()
        self.last, self.seen = nn.Linear(60, 10), 0

    def forward(self, inputs):
        self.seen += 1
        if self.seen > 8:
            raise RuntimeError("out of\n patience")
        return self.last(inputs)


@pytest.mark.parametrize(
    ("module", "said"),
    [
        (nn.Linear(60, 10), "the model must be a function that makes a module, got a Linear itself"),
        (lambda: "net", "must be a function that makes a torch.nn.Module, got a function that made str"),
        (failing, "must be a function that makes a module, got KeyError: 'hidden size'"),
        (lambda: nn.Linear(61, 10), r"the module must take inputs of shape \(60,\), got RuntimeError"),
        (lambda: nn.Linear(60, 9), r"the module must give 10 numbers for a sample, got shape \(2, 9\)"),
        (lambda: nn.LSTM(60, 10), "the module must give 10 numbers for a sample, got a tuple"),
        (lambda: nn.LazyLinear(10), "the module must know its sizes when it is made, got lazy layers; give each layer"),
        (nn.Identity, "the module must have parameters to train, got none"),
        (lambda: nn.Linear(60, 10).requires_grad_(False), "the module must have parameters to train, got none"),
        (
            lambda: nn.Sequential(nn.BatchNorm1d(60, track_running_stats=False), nn.Linear(60, 10)),
            "batch normalisation '0' of the module must keep running statistics.*track_running_stats=False; leave that",
        ),
        (
            lambda: nn.Sequential(nn.ReLU(inplace=True), nn.Linear(60, 10)),
            "the module must leave its inputs as they are.*leave out inplace=True",
        ),
    ],
)
def test_modules_that_do_not_fit_are_refused(data, module, said):
    with pytest.raises(InputError, match=said) as caught:
        TorchTrainer(data, module)
    assert "\n" not in str(caught.value)


def test_what_a_module_raises_later_is_one_sentence_too(data):
    trainer = TorchTrainer(data, Counting)
    with pytest.raises(
        InputError, match=r"the module must train on its batches, got RuntimeError: out of patience in test"
    ):
        trainer.train(np.zeros((1, 610), np.float32), work_of(data, [1]))
    with pytest.raises(InputError, match="the module must be evaluated on the data") as caught:
        trainer.evaluate(np.zeros(610, np.float32))
    assert isinstance(caught.value.__cause__, RuntimeError), "whose traceback is kept"


class Overlapping(nn.Module):
    """A module that has outputs and gradients, but of which all biases lie in one place."""

    def __init__(self):
        super().__init__()
        self.last, self.bias = nn.Linear(60, 10), nn.Parameter(torch.zeros(1).expand(10))

    def forward(self, inputs):
        return self.last(inputs) + self.bias


def test_a_module_that_cannot_take_a_step_is_refused_before_a_run(data):
    with pytest.raises(InputError, match="the module must train on its batches, got RuntimeError: unsupported"):
        TorchTrainer(data, Overlapping)


class Applying(nn.Module):
    """A linear layer after some function of its inputs."""

    def __init__(self, function, last=None):
        super().__init__()
        self.function, self.last = function, last or nn.Linear(60, 10)

    def forward(self, inputs):
        return self.last(self.function(inputs))


ACROSS_SAMPLES = {
    "statistics": lambda x: (x - x.mean(0)) / x.std(0),
    "statistics with a small constant": lambda x: (x - x.mean(0)) / (x.std(0) + 1e-5),
    "the largest": lambda x: x / x.abs().amax(0),
    "softmax": lambda x: 10 * x.softmax(dim=0),
    "one scale": lambda x: x / x.norm(),
    "a running sum": lambda x: x.cumsum(0),
}


@pytest.mark.parametrize("function", ACROSS_SAMPLES.values(), ids=ACROSS_SAMPLES)
def test_a_module_whose_evaluation_depends_on_how_samples_are_batched_is_refused(data, function):
    with pytest.raises(InputError, match="the module must give a sample the same outputs beside any others, since"):
        TorchTrainer(data, lambda: Applying(function))


def test_attention_over_the_batch_is_refused(data):
    """As it comes of leaving out batch_first=True."""

    def module(batch_first):
        attention = nn.TransformerEncoderLayer(6, 1, 8, batch_first=batch_first)
        return nn.Sequential(nn.Unflatten(1, (10, 6)), attention, nn.Flatten(), nn.Linear(60, 10))

    TorchTrainer(data, lambda: module(True))
    with pytest.raises(InputError, match="the module must give a sample the same outputs"):
        TorchTrainer(data, lambda: module(False))


def alone_is_special(inputs):
    if len(inputs) == 1:
        raise ValueError("one sample")
    return inputs


def own_noise():
    generator = torch.Generator().manual_seed(0)
    return lambda x: x + torch.randn(x.shape, generator=generator)


SAMPLE_BY_SAMPLE = {
    "statistics of a sample": lambda x: (x - x.mean(1, keepdim=True)) / x.std(1, keepdim=True),
    "noise": lambda x: x + torch.randn_like(x),
    "noise of its own": own_noise(),
    "samples alone are special": alone_is_special,
    "samples alone are squeezed": lambda x: x.squeeze(),
}


@pytest.mark.parametrize("function", SAMPLE_BY_SAMPLE.values(), ids=SAMPLE_BY_SAMPLE)
def test_a_module_that_takes_samples_one_by_one_is_accepted(data, function):
    TorchTrainer(data, lambda: Applying(function))


@pytest.mark.parametrize("optimiser", [None, "adam", "SparseAdam"])
def test_sparse_gradients_are_refused_before_a_run(optimiser):
    tokens, labels = np.arange(60).reshape(30, 2) % 5, np.arange(30) % 2
    data = FederatedData(tokens, labels, [0, 10, 30], tokens, labels, 2, (2,), "made up", tokens=True)

    def module():
        return nn.Sequential(nn.Embedding(5, 4, sparse=True), nn.Flatten(), nn.Linear(8, 2))

    with pytest.raises(InputError, match="the module must have dense gradients, got sparse ones; leave out sparse"):
        TorchTrainer(data, module, optimiser=optimiser)


@pytest.mark.parametrize("optimiser", [None, "adam"])
def test_the_trial_leaves_no_traces(data, optimiser):
    model = np.random.default_rng(0).normal(size=TorchTrainer(data, normed).num_parameters).astype(np.float32)
    tried, again = (TorchTrainer(data, normed, optimiser=optimiser) for _ in range(2))
    again._try()
    first, second = (one.initial_model(np.random.default_rng(0)) for one in (tried, again))
    np.testing.assert_array_equal(first, second)
    assert tried.evaluate(model) == again.evaluate(model)
    found, expected = (one.train(model[None], work_of(data, [1])) for one in (again, tried))
    np.testing.assert_array_equal(found.update, expected.update)
    np.testing.assert_array_equal(found.buffers, expected.buffers)


@pytest.mark.parametrize("device", ["gpu", "cuda:99", "", "meta"])
def test_devices_that_torch_does_not_have_are_refused(data, device):
    if device.startswith("cuda") and torch.cuda.is_available():
        pytest.skip("it may be there")
    with pytest.raises(InputError, match=f"device must be one that torch has on this machine, got '{device}'"):
        TorchTrainer(data, lambda: nn.Linear(60, 10), device=device)


def test_a_module_without_an_output_for_the_last_class_is_refused_before_a_run(data):
    """With a loss of one's own, whose outputs need not be one number for each class."""
    with pytest.raises(InputError, match="the loss must take the module's outputs and the labels, got IndexError"):
        TorchTrainer(data, lambda: nn.Linear(60, 9), loss=nn.functional.cross_entropy)
