"""Optimisers by name or function, and those that are refused."""

import pytest
import torch

from fedtempo.checks import InputError
from fedtempo.learning.optimisers import known_optimisers, optimiser_of
from fedtempo.learning.torch_module import TorchTrainer
from support.trainers import linear_module


def test_names_are_those_of_torch_in_any_case():
    assert {"SGD", "Adam", "AdamW", "RMSprop"} <= set(known_optimisers())
    assert optimiser_of("aDaMw") is torch.optim.AdamW
    assert optimiser_of(None) is None


@pytest.mark.parametrize(
    ("optimiser", "said"),
    [
        ("adm", r"optimiser must be one of torch.optim, got 'adm'; did you mean 'adam'\?"),
        ("lbfgs", "optimiser must be one of torch.optim, got 'lbfgs'"),
        (7, "optimiser must be a name in torch.optim or a function from parameters to an optimiser, got 7"),
        (
            torch.optim.SGD([torch.zeros(1, requires_grad=True)]),
            "a function from parameters to an optimiser, got SGD; each client and round has a new one",
        ),
        (lambda weights: weights, "be a function that makes a torch.optim.Optimizer, got one that made list"),
        (lambda weights, size: None, "optimiser must step along the gradients of the module, got TypeError"),
        ("SparseAdam", "optimiser must step along the gradients of the module, got RuntimeError"),
    ],
)
def test_what_is_no_optimiser_is_refused(data, optimiser, said):
    with pytest.raises(InputError, match=said):
        TorchTrainer(data, linear_module, optimiser=optimiser)
