"""A loss and a metric of one's own: regression, where each client has sensors with an offset of its own."""

import numpy as np
from torch import nn
from torch.nn.functional import mse_loss

import fedtempo
from fedtempo import FederatedData

rng = np.random.default_rng(0)
clients, samples = 30, 100
owner = np.repeat(np.arange(clients), samples)
inputs = rng.normal(size=(owner.size, 8)).astype(np.float32) + rng.normal(size=clients)[owner, None]
values = np.sin(inputs[:, :3]).sum(axis=1) + 0.1 * rng.normal(size=owner.size)
data = FederatedData.from_arrays(inputs, values, clients=clients, split=owner, name="sensors")


def network() -> nn.Module:
    """Return a new network with one output."""
    return nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1), nn.Flatten(0))


problem = fedtempo.Problem(
    data, network, compute_time=rng.exponential(size=clients), upload_time=0.5, loss=mse_loss,
    metric=lambda outputs, labels: -(outputs - labels).abs().mean(),  # the larger the better
)  # fmt: skip
found = fedtempo.compare(
    problem, ["tempo", "weighted"], seeds=2, target_loss=0.2, cohort_size=5, step_size=0.02, schedule="constant"
)
print(found)
