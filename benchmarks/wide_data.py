"""Data whose softmax regression has 250,000 numbers, a megabyte in single precision: uploads without ballast."""

import numpy as np

from fedtempo import FederatedData

FEATURES, CLASSES = 499, 500  # (499 + 1) x 500 parameters


def wide_data(clients, samples=100, seed=0):
    """Return points around a centre of each class; client i of ten has the classes that end in i."""
    rng = np.random.default_rng(seed)
    labels = np.arange(clients * samples) % CLASSES
    centres = rng.normal(0, 1 / np.sqrt(FEATURES), (CLASSES, FEATURES))
    inputs = 3 * centres[labels] + rng.normal(0, 1 / np.sqrt(FEATURES), (labels.size, FEATURES))
    owners = np.arange(labels.size) % clients
    return FederatedData.from_arrays(inputs.astype(np.float32), labels, split=owners, seed=seed, name="wide")
