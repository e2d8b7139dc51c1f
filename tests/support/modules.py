"""Small torch modules, and data for them."""

import numpy as np
import torch
from torch import nn

from fedtempo.data.federation import FederatedData


def normed():
    """A network with batch normalisation, for the synthetic data."""
    return nn.Sequential(nn.Linear(60, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Linear(12, 10))


def normed_inputs():
    """Batch normalisation of the inputs themselves: its statistics are those of the data."""
    return nn.Sequential(nn.BatchNorm1d(60, momentum=1.0), nn.Linear(60, 10))


def image_federation(shape=(3, 8, 8), clients=4, samples=80):
    """Noise as images, of which a channel tells the class."""
    rng = np.random.default_rng(0)
    labels = np.arange(samples) % 3
    inputs = rng.normal(size=(samples, *shape)).astype(np.float32)
    inputs[np.arange(samples), labels % shape[0]] += 2.0
    flat = inputs.reshape(samples, -1)
    return FederatedData(
        flat, labels, np.linspace(0, samples, clients + 1).astype(int), flat[:20], labels[:20], 3, shape, "made up"
    )


class Viewing(nn.Module):
    """A module that views its maps as they lie in memory."""

    def __init__(self):
        super().__init__()
        self.maps, self.last = nn.Conv2d(3, 4, 3, padding=1), nn.Linear(4 * 8 * 8, 3)

    def forward(self, images):
        return self.last(torch.relu(self.maps(images)).view(-1, 4 * 8 * 8))


class Tied(nn.Module):
    """A module of which two layers share their weights."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.last = nn.Linear(60, 60), nn.Linear(60, 60), nn.Linear(60, 10)
        self.second.weight = self.first.weight

    def forward(self, inputs):
        return self.last(self.second(torch.relu(self.first(inputs))))
