"""The trainers of a softmax model, and work for them."""

import numpy as np
from torch import nn

from fedtempo.learning.batches import Batches
from fedtempo.learning.readable import ReadableSoftmax
from fedtempo.learning.softmax import SoftmaxTrainer
from fedtempo.learning.torch_module import TorchTrainer
from fedtempo.learning.trainer import LocalWork


def linear_module():
    module = nn.Linear(60, 10)
    nn.init.zeros_(module.weight)
    nn.init.zeros_(module.bias)
    return module


def trainers(data):
    return {
        "readable": ReadableSoftmax(data),
        "softmax": SoftmaxTrainer(data),
        "torch": TorchTrainer(data, linear_module),
    }


def work_of(data, clients, *, seed=0, round_index=0, steps=5, size=0.1, decay=0.0, **rule):
    clients = np.array(clients)
    batches = Batches(data.offsets, batch_size=24, seed=seed)
    return LocalWork(
        start=np.zeros(len(clients), dtype=np.int64),
        rows=batches.draw(clients, round_index, steps),
        local_steps=np.full(len(clients), steps),
        step_size=np.full(len(clients), size),
        weight_decay=decay,
        **rule,
    )
