"""A model of one's own: a network with BatchNorm, trained by Adam, and given back as a torch module."""

import torch
from sklearn.datasets import load_digits
from torch import nn

import fedtempo
from fedtempo import FederatedData

digits = load_digits()
data = FederatedData.from_arrays(digits.images / 16, digits.target, clients=20, concentration=0.5, name="digits")


def network() -> nn.Module:
    """Return a new network for images of 8 × 8."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(256, 10)
    )


problem = fedtempo.Problem(data, network, compute_time=1.0, upload_time=0.5, optimiser="Adam")
run = fedtempo.simulate(
    problem, policy="tempo", cohort_size=5, max_rounds=60, step_size=0.01, schedule="constant", local_steps=10
)
print(run)
trained = run.to_module().eval()
with torch.inference_mode():
    print("class of the first test image:", int(trained(torch.tensor(data.test_inputs[:1]).view(1, 1, 8, 8)).argmax()))
