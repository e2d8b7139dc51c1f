"""What trains a model: by its name, a function or a trainer, with functions of one's own or without."""

import pytest
from torch import nn
from torch.nn.functional import cross_entropy

from fedtempo.checks import InputError
from fedtempo.data.synthetic import synthetic_data
from fedtempo.learning.softmax import SoftmaxTrainer
from fedtempo.learning.torch_module import TorchTrainer
from fedtempo.simulator.problem import make_trainer


@pytest.fixture(scope="module")
def data():
    return synthetic_data(alpha=1.0, beta=1.0, num_clients=5, num_samples=300, seed=0)


class Network(nn.Module):
    """A module with a method that trainers have as well."""

    def __init__(self):
        super().__init__()
        self.last = nn.Linear(60, 10)

    def forward(self, inputs):
        return self.last(inputs)

    def evaluate(self):
        return None


def test_functions_of_ones_own_go_to_the_module(data):
    own = {"loss": cross_entropy, "metric": lambda y, z: 7.0, "optimiser": "adam"}
    trainer = make_trainer(lambda: nn.Linear(60, 10), data, **own)
    assert isinstance(trainer, TorchTrainer)
    assert trainer.objective.own_loss is cross_entropy
    assert trainer.optimiser is not None
    assert isinstance(make_trainer(Network, data), TorchTrainer)


@pytest.mark.parametrize("name", ["loss", "metric", "optimiser"])
def test_models_that_are_not_on_torch_take_none(data, name):
    for model in ("softmax", SoftmaxTrainer(data)):
        with pytest.raises(InputError, match=f"{name} must be given with a model on torch.*give a function"):
            make_trainer(model, data, **{name: cross_entropy})


def test_what_is_no_model_is_refused(data):
    with pytest.raises(InputError, match=r"model must be softmax, .*a function that makes a torch module"):
        make_trainer("lenet", data)
