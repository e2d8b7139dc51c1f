"""Softmax regression, fast: all clients of a call in one compiled loop, evaluation in blocks that fit the cache."""

from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from fedtempo.checks import Integers, Vector
from fedtempo.data.federation import FederatedData
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
        clients = len(work.start)
        update = np.empty((clients, *self.shape), dtype=np.float32)
        path = np.empty((clients, 3))
        _train(
            self.data.inputs,
            self.data.labels,
            models.reshape(-1, *self.shape),
            work.start,
            work.rows,
            work.local_steps,
            work.step_size.astype(np.float32),
            np.float32(work.weight_decay),
            update,
            path,
        )
        return LocalResult(
            update=update.reshape(clients, -1),
            largest_gradient_norm=path[:, 0],
            mean_gradient_norm=path[:, 1],
            mean_loss=path[:, 2],
        )

    def evaluate(self, model: Parameters) -> Evaluation:
        """Return the loss over all training data and the accuracy on the test data."""
        weights = model.reshape(self.shape)
        loss = sum(_losses(weights, block).sum(dtype=np.float64) for block in self.blocks)
        right = sum(int((_logits(weights, x).argmax(axis=0) == y).sum()) for x, y, _ in self.test_blocks)
        return Evaluation(float(loss) / len(self.data.labels), right / max(1, len(self.data.test_labels)))

    def client_losses(self, model: Parameters, clients: Integers) -> Vector:
        """Return F_i(w) for some clients."""
        weights = model.reshape(self.shape)
        means = []
        for client in clients.tolist():
            blocks = _blocks(*self.data.client(client))
            means.append(np.concatenate([_losses(weights, block) for block in blocks]).mean(dtype=np.float64))
        return np.array(means)


def _blocks(inputs: Parameters, labels: Integers) -> list[tuple[Parameters, Integers, Integers]]:
    """Cut samples into blocks (feature, sample): products with few classes are fastest along contiguous samples."""
    size = max(64, FLOATS_AT_ONCE // inputs.shape[1])
    starts = range(0, len(labels), size)
    return [
        (np.ascontiguousarray(inputs[s : s + size].T), labels[s : s + size], np.arange(len(labels[s : s + size])))
        for s in starts
    ]


def _logits(weights: Parameters, inputs: Parameters) -> Parameters:
    logits = weights[:, :-1] @ inputs
    logits += weights[:, -1:]
    return logits


def _losses(weights: Parameters, block: tuple[Parameters, Integers, Integers]) -> Parameters:
    inputs, labels, columns = block
    logits = _logits(weights, inputs)
    logits -= logits.max(axis=0)
    own = logits[labels, columns]
    np.exp(logits, out=logits)
    return np.asarray(np.log(logits.sum(axis=0)) - own)


@numba.njit(cache=True, error_model="numpy", fastmath={"reassoc", "contract", "nsz"})
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
    """Run local SGD; reorders sums of floats, but always in the same way, so equal input gives equal bytes."""
    classes, width = models.shape[1:]
    features, batch = width - 1, rows.shape[2]
    x = np.ones((batch, width), dtype=np.float32)  # the last column stays 1, for the bias
    delta = np.empty((batch, classes), dtype=np.float32)  # logits, then chances less 1 for the right class
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
            np.dot(x, weights.T, delta)
            for s in range(batch):
                label = labels[rows[k, step, s]]
                highest = delta[s, 0]
                for c in range(1, classes):
                    highest = max(highest, delta[s, c])
                own = delta[s, label] - highest
                total = np.float32(0)
                for c in range(classes):
                    chance = np.exp(delta[s, c] - highest)
                    delta[s, c] = chance
                    total += chance
                total_loss += np.log(total) - own
                scale = np.float32(1) / (total * batch)
                for c in range(classes):
                    delta[s, c] *= scale
                delta[s, label] -= np.float32(1) / batch
            np.dot(delta.T, x, gradient)
            square = np.float32(0)
            for c in range(classes):
                for j in range(width):
                    slope = gradient[c, j] + weight_decay * weights[c, j]
                    square += slope * slope
                    weights[c, j] -= step_size[k] * slope
            norm = np.sqrt(square)
            largest = max(largest, norm)
            total_norm += norm
        for c in range(classes):
            for j in range(width):
                update[k, c, j] = weights[c, j] - models[start[k], c, j]
        path[k, 0] = largest
        path[k, 1] = total_norm / local_steps[k]
        path[k, 2] = total_loss / (local_steps[k] * batch)
