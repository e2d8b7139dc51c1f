"""Synthetic(α, β): data drawn from a linear model of each client's own, as in Li et al. (FedProx, 2020)."""

import numpy as np

from fedtempo.checks import InputError, Integers, Vector, check_count, check_nonnegative
from fedtempo.data.federation import FederatedData
from fedtempo.data.partition import apportion
from fedtempo.randomness import stream

NUM_FEATURES = 60
NUM_CLASSES = 10
SMALLEST_SIZE = 50
MAX_ATTEMPTS = 200
ENOUGH_SAMPLES = 100  # for each class to be drawn, if there are clients enough
FEATURE_SPREAD = np.arange(1, NUM_FEATURES + 1) ** -0.6  # √Σ_jj with Σ_jj = j^-1.2


def synthetic_data(
    *, alpha: float, beta: float, num_clients: int, num_samples: int, seed: int, test_share: float = 0.1
) -> FederatedData:
    """Draw the training data of all clients, num_samples in all, and test_share times as many samples for testing.

    Client k has inputs x ~ N(v_k, Σ) with v_kj ~ N(B_k, 1) and B_k ~ N(0, β), a model W_k, b_k ~ N(u_k, 1) with
    u_k ~ N(0, α), and labels argmax(softmax(W_k x + b_k)). As in the code of Li et al., α and β are standard
    deviations, and u_k is one number for all of W_k and b_k: it adds the same to each class, so α changes no label.

    Test samples come from the same clients in the same proportions; the training data does not depend on test_share.
    Where clients are so few that a class comes out empty, their models and samples are drawn anew.
    """
    check_nonnegative("alpha", alpha)
    check_nonnegative("beta", beta)
    if check_nonnegative("test_share", test_share) == 0:
        raise InputError(name="test_share", rule="be positive", got="0", remedy="accuracy is measured on test samples")
    sizes = synthetic_sizes(num_clients, num_samples, stream(seed, "synthetic", "sizes"))
    test_sizes = apportion(max(1, round(test_share * num_samples)), sizes)
    for attempt in range(MAX_ATTEMPTS):
        train = _Samples(sizes, stream(seed, "synthetic", attempt, "train"))
        test = _Samples(test_sizes, stream(seed, "synthetic", attempt, "test"))
        _draw(train, test, alpha, beta, stream(seed, "synthetic", attempt, "models"))
        if np.unique(train.labels).size == NUM_CLASSES:
            break
    else:
        raise _too_few_classes(train.labels, num_clients)
    return FederatedData(
        inputs=train.inputs, labels=train.labels, offsets=train.offsets,
        test_inputs=test.inputs, test_labels=test.labels,
        num_classes=NUM_CLASSES, input_shape=(NUM_FEATURES,), name=f"Synthetic({alpha:g}, {beta:g})",
    )  # fmt: skip


def _too_few_classes(labels: Integers, num_clients: int) -> InputError:
    """Say that no draw held each class: a client's own model leaves some out, however many samples it has."""
    missing = int(np.argmin(np.bincount(labels, minlength=NUM_CLASSES)))
    more = ["more samples"] if labels.size < ENOUGH_SAMPLES or num_clients >= NUM_CLASSES else []
    more += ["more clients"] if num_clients < NUM_CLASSES else []
    return InputError(
        name=f"each of the {NUM_CLASSES} classes",
        rule="be held by a client",
        got=f"no sample of class {missing} for {num_clients} clients in {MAX_ATTEMPTS} draws",
        remedy=f"take {' or '.join(more)}",
    )


def synthetic_sizes(num_clients: int, total: int, rng: np.random.Generator) -> Integers:
    """Return sizes 50 + lognormal(4, 2) of which the second part is scaled so that they sum to the total.

    Scaling that part alone keeps the smallest size of 50, and so at least two batches of 24. Where the total is below
    100 samples a client, half of it is shared equally instead.
    """
    check_count("num_clients", num_clients)
    check_count("num_samples", total)
    smallest = max(1, min(SMALLEST_SIZE, total // (2 * num_clients)))
    return apportion(total, rng.lognormal(4, 2, num_clients), smallest)


class _Samples:
    """Arrays that are filled client by client."""

    def __init__(self, sizes: Integers, rng: np.random.Generator) -> None:
        self.offsets = np.concatenate([[0], np.cumsum(sizes)])
        self.inputs = np.empty((self.offsets[-1], NUM_FEATURES), dtype=np.float32)
        self.labels = np.empty(self.offsets[-1], dtype=np.int64)
        self._rng = rng

    def fill(self, client: int, centre: Vector, weights: Vector, bias: Vector) -> None:
        rows = slice(self.offsets[client], self.offsets[client + 1])
        x = centre + FEATURE_SPREAD * self._rng.standard_normal((rows.stop - rows.start, NUM_FEATURES))
        self.inputs[rows] = x
        self.labels[rows] = (x @ weights + bias).argmax(axis=1)  # softmax keeps the order


def _draw(train: _Samples, test: _Samples, alpha: float, beta: float, models: np.random.Generator) -> None:
    """Draw each client's model and centre, and fill its rows."""
    for client in range(train.offsets.size - 1):
        u, b = alpha * models.standard_normal(), beta * models.standard_normal()
        v = b + models.standard_normal(NUM_FEATURES)
        weights = u + models.standard_normal((NUM_FEATURES, NUM_CLASSES))
        bias = u + models.standard_normal(NUM_CLASSES)
        for samples in (train, test):
            samples.fill(client, v, weights, bias)
