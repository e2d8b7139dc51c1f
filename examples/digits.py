"""Digits of 30 clients and a CNN with BatchNorm: tempo, weighted sampling and a sampler of one's own."""

import numpy as np
from sklearn.datasets import load_digits
from torch import nn

import fedtempo

network = lambda: nn.Sequential(  # noqa: E731
    nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Flatten(), nn.Linear(1024, 10)
)
fast_first = lambda fleet: (q := fleet.data_share / fleet.compute_time**0.5) / q.sum()  # noqa: E731

(images, labels), rng = load_digits(return_X_y=True), np.random.default_rng(0)
data = fedtempo.FederatedData.from_arrays(images.reshape(-1, 8, 8) / 16, labels, clients=30, name="digits")
problem = fedtempo.Problem(data, network, compute_time=rng.exponential(size=30), upload_time=rng.exponential(size=30))
found = fedtempo.compare(
    problem, {"tempo": "tempo", "weighted": "weighted", "mine": fast_first}, seeds=3, target_loss=0.3, cohort_size=6,
    local_steps=10, step_size=0.1, schedule="constant", out="runs/digits",
)  # fmt: skip
print(found.table())
print(found.to_pandas())
found.plot().savefig("digits.png", dpi=200)
found.report("digits.html")
