"""Optimisers by name or function, and those that are refused."""

import numpy as np
import pytest
import torch

from fedtempo.checks import InputError
from fedtempo.learning.optimisers import known_optimisers, optimiser_of
from fedtempo.learning.torch_module import TorchTrainer
from support.trainers import linear_module, work_of


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
        (
            lambda weights: torch.optim.SGD([{"params": weights[:1]}, {"params": weights[1:], "lr": 1.0}], lr=0.0),
            "the first parameter group of the optimiser must have a learning rate above 0, .*got 0",
        ),
        ("SparseAdam", "optimiser must step along the gradients of the module, got RuntimeError"),
    ],
)
def test_what_is_no_optimiser_is_refused(data, optimiser, said):
    with pytest.raises(InputError, match=said):
        TorchTrainer(data, linear_module, optimiser=optimiser)


def test_groups_of_parameters_keep_the_ratios_of_their_learning_rates(data):
    def with_fast_head(weights):
        return torch.optim.SGD([{"params": weights[:1]}, {"params": weights[1:], "lr": 5.0}], lr=0.5)

    model, work = np.zeros((1, 610), np.float32), work_of(data, [1], steps=1, size=0.01)
    grouped, plain = (
        TorchTrainer(data, linear_module, optimiser=one).train(model, work).update[0] for one in (with_fast_head, "sgd")
    )
    np.testing.assert_array_equal(grouped[:600], plain[:600])
    np.testing.assert_allclose(grouped[600:], 10 * plain[600:], rtol=1e-6)


def test_a_single_group_may_have_any_learning_rate(data):
    model, work = np.zeros((1, 610), np.float32), work_of(data, [1])
    still, plain = (
        TorchTrainer(data, linear_module, optimiser=one).train(model, work).update
        for one in (lambda weights: torch.optim.SGD(weights, lr=0.0), "sgd")
    )
    np.testing.assert_array_equal(still, plain)
