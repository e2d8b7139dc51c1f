"""Modules of torch: which are refused, and equal runs with dropout and frozen weights."""

import numpy as np
import pytest
import torch
from torch import nn

from fedtempo.checks import InputError
from fedtempo.learning.torch_module import TorchTrainer
from support.trainers import work_of


def test_a_module_with_buffers_is_refused(data):
    with pytest.raises(InputError, match="buffers"):
        TorchTrainer(data, lambda: nn.Sequential(nn.BatchNorm1d(60), nn.Linear(60, 10)))


def test_modules_that_do_not_fit_are_refused(data):
    for module, said in (
        (nn.Linear(60, 10), "function that makes a module"),
        (lambda: nn.Linear(61, 10), "must take inputs of shape"),
        (lambda: nn.Linear(60, 9), "10 numbers for a sample"),
    ):
        with pytest.raises(InputError, match=said):
            TorchTrainer(data, module)


def test_a_module_with_dropout_and_frozen_weights_gives_equal_runs(data):
    def module():
        made = nn.Sequential(nn.Linear(60, 20), nn.Dropout(0.5), nn.Linear(20, 10))
        made[0].weight.requires_grad = False
        return made

    trainer = TorchTrainer(data, module)
    model = trainer.initial_model(np.random.default_rng(0))[None]
    first = trainer.train(model, work_of(data, [1, 4]))
    torch.rand(7)
    again = trainer.train(model, work_of(data, [4, 1]))
    np.testing.assert_array_equal(first.update, again.update[::-1])
    frozen = first.update[:, : 60 * 20]
    assert not frozen.any()
    assert first.update[:, 60 * 20 :].any()
