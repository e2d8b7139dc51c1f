"""Data of one's own: arrays, split among clients by name, and what the split looks like."""

import numpy as np
from sklearn.datasets import load_digits

import fedtempo
from fedtempo import FederatedData

digits = load_digits()
data = FederatedData.from_arrays(
    digits.images / 16, digits.target, clients=20, split="dirichlet", concentration=0.3, test=0.2, name="digits"
)
print(data.describe())

rng = np.random.default_rng(0)
run = fedtempo.simulate(
    data, compute_time=rng.exponential(size=20), upload_time=1.0, policy="tempo", cohort_size=5, max_rounds=100,
    target_accuracy=0.9, step_size=0.2, schedule="constant", out="runs/own-data",
)  # fmt: skip
print(run)
print(run.to_pandas()[["round", "time", "loss", "accuracy"]].tail(3))
