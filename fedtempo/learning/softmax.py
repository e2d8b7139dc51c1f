"""Softmax regression, fast: all clients of a call in one compiled loop, evaluation in blocks that fit the cache."""

from typing import Any

import numpy as np
import numpy.typing as npt

from fedtempo.checks import Integers, Vector
from fedtempo.data.federation import FederatedData
from fedtempo.learning.compiled import compiled, exp, run_kernel, sgd_step, slopes_of_cross_entropy
from fedtempo.learning.trainer import Evaluation, LocalResult, LocalWork, Parameters

FLOATS_AT_ONCE = 65_536  # of one evaluation block: 256 KiB


class SoftmaxTrainer:
    """Multinomial logistic regression in single precision; parameters are the rows [w_c, b_c] of each class."""

    def __init__(self, data: FederatedData) -> None:
        """Take the data, and keep a copy for evaluation that is cut into blocks with samples side by side."""
        self.data = data
        self.shape = (data.num_classes, data.inputs.shape[1] + 1)
        self.num_parameters = self.shape[0] * self.shape[1]
        self.blocks = _blocks(data.inputs, data.labels)
        self.test_blocks = _blocks(data.test_inputs, data.test_labels)

    def initial_model(self, rng: np.random.Generator) -> Parameters:
        """Return zeros: the loss is convex."""
        return np.zeros(self.num_parameters, dtype=np.float32)

    def train(self, models: Parameters, work: LocalWork) -> LocalResult:
        """Run local SGD for each client of ``work``."""
        return run_kernel(_train, self.data, models.reshape(-1, *self.shape), work)

    def evaluate(self, model: Parameters) -> Evaluation:
        """Return the loss over all training data and the accuracy on the test data."""
        weights, bias = self._split(model)
        loss = sum(_total_loss(weights, bias, inputs, labels) for inputs, labels in self.blocks)
        right = sum(int(((weights @ x + bias[:, None]).argmax(axis=0) == y).sum()) for x, y in self.test_blocks)
        return Evaluation(loss / len(self.data.labels), right / max(1, len(self.data.test_labels)))

    def client_losses(self, model: Parameters, clients: Integers) -> Vector:
        """Return F_i(w) for some clients."""
        weights, bias = self._split(model)
        means = []
        for client in clients.tolist():
            inputs, labels = self.data.client(client)
            losses = [_total_loss(weights, bias, x, y) for x, y in _blocks(inputs, labels)]
            means.append(sum(losses) / len(labels))
        return np.array(means)

    def _split(self, model: Parameters) -> tuple[Parameters, Parameters]:
        rows = model.reshape(self.shape)
        return np.ascontiguousarray(rows[:, :-1]), rows[:, -1].copy()


def _blocks(inputs: Parameters, labels: Integers) -> list[tuple[Parameters, Integers]]:
    """Cut samples into blocks (feature, sample): products with few classes are fastest along contiguous samples."""
    size = max(64, FLOATS_AT_ONCE // inputs.shape[1])
    return [
        (np.ascontiguousarray(inputs[start : start + size].T), np.array(labels[start : start + size]))
        for start in range(0, len(labels), size)
    ]


@compiled
def _total_loss(weights: Parameters, bias: Parameters, inputs: Parameters, labels: Integers) -> float:
    """Return the summed cross-entropy of one block of samples."""
    logits = np.dot(weights, inputs)
    classes, samples = logits.shape
    highest = np.full(samples, -np.inf, dtype=np.float32)
    for c in range(classes):
        for s in range(samples):
            logits[c, s] += bias[c]
            highest[s] = max(highest[s], logits[c, s])
    total = np.zeros(samples, dtype=np.float32)
    for c in range(classes):
        for s in range(samples):
            total[s] += exp(logits[c, s] - highest[s])
    loss, product = 0.0, 1.0
    for s in range(samples):
        loss += highest[s] - logits[labels[s], s]
        product *= total[s]  # at most the number of classes: one logarithm serves several samples
        if product > 1e200:
            loss += np.log(product)
            product = 1.0
    return loss + np.log(product)


@compiled
def _train(
    inputs: Parameters,
    labels: Integers,
    models: Parameters,
    start: Integers,
    rows: npt.NDArray[np.int64],
    local_steps: Integers,
    step_size: Parameters,
    weight_decay: Any,  # noqa: ANN401
    update: Parameters,
    path: Vector,
) -> None:
    """Run local SGD for each client, one after another."""
    classes, width = models.shape[1:]
    features, batch = width - 1, rows.shape[2]
    x = np.ones((batch, width), dtype=np.float32)  # the last column stays 1, for the bias
    logits, room = np.empty((classes, batch), dtype=np.float32), np.empty((2, batch), dtype=np.float32)
    gradient = np.empty((classes, width), dtype=np.float32)
    weights = np.empty((classes, width), dtype=np.float32)
    for k in range(len(start)):
        weights[:] = models[start[k]]
        largest, total_norm, total_loss = 0.0, 0.0, 0.0
        for step in range(local_steps[k]):
            for s in range(batch):
                row = rows[k, step, s]
                for j in range(features):
                    x[s, j] = inputs[row, j]
            np.dot(weights, x.T, logits)
            total_loss += slopes_of_cross_entropy(logits, labels[rows[k, step]], room)
            np.dot(logits, x, gradient)
            norm = sgd_step(weights.reshape(-1), gradient.reshape(-1), step_size[k], weight_decay)
            largest = max(largest, norm)
            total_norm += norm
        update[k] = weights - models[start[k]]
        path[k, 0] = largest
        path[k, 1] = total_norm / local_steps[k]
        path[k, 2] = total_loss / (local_steps[k] * batch)
