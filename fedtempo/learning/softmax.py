"""Softmax regression, fast: all clients of a call in one compiled loop, evaluation in blocks that fit the cache."""

from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from fedtempo.checks import Integers, Vector
from fedtempo.data.federation import FederatedData
from fedtempo.learning.compiled import (
    StepRule,
    careful_step,
    check_classes_of_numbers,
    compiled,
    exp,
    run_kernel,
    sgd_step,
    slopes_of_cross_entropy,
)
from fedtempo.learning.installed import torch_networks
from fedtempo.learning.trainer import Buffers, Evaluation, LocalResult, LocalWork, Parameters

FLOATS_AT_ONCE = 65_536  # of one evaluation block: 256 KiB


class SoftmaxTrainer:
    """Multinomial logistic regression in single precision; parameters are the rows [w_c, b_c] of each class."""

    def __init__(self, data: FederatedData) -> None:
        """Take the data."""
        check_classes_of_numbers("softmax", data)
        self.data = data
        self.shape = (data.num_classes, data.inputs.shape[1] + 1)
        self.num_parameters = self.shape[0] * self.shape[1]

    @cached_property
    def blocks(self) -> Parameters:
        """A copy of the training inputs, cut for evaluation; who trains alone needs none."""
        return _blocks(self.data.inputs)

    @cached_property
    def test_blocks(self) -> Parameters:
        """A copy of the test inputs, cut for evaluation."""
        return _blocks(self.data.test_inputs)

    def initial_model(self, rng: np.random.Generator) -> Parameters:
        """Return zeros: the loss is convex."""
        return np.zeros(self.num_parameters, dtype=np.float32)

    def train(self, models: Parameters, work: LocalWork) -> LocalResult:
        """Run local SGD for each client of ``work``."""
        return run_kernel(_train, self.data, models.reshape(-1, *self.shape), work)

    def evaluate(self, model: Parameters) -> Evaluation:
        """Return the loss over all training data and the accuracy on the test data."""
        weights, bias = self._split(model)
        loss = _total_loss(weights, bias, self.blocks, self.data.labels)
        right = _right_answers(weights, bias, self.test_blocks, self.data.test_labels)
        return Evaluation(loss / len(self.data.labels), right / max(1, len(self.data.test_labels)))

    def client_losses(self, model: Parameters, clients: Integers) -> Vector:
        """Return F_i(w) for some clients."""
        weights, bias = self._split(model)
        means = []
        for client in clients.tolist():
            inputs, labels = self.data.client(client)
            means.append(_total_loss(weights, bias, _blocks(inputs), labels) / len(labels))
        return np.array(means)

    def module_with(self, model: Parameters, buffers: Buffers | None = None) -> Any:  # noqa: ANN401
        """Return the same model as a ``torch.nn.Linear``, which takes flat inputs and returns logits."""
        return torch_networks("to_module").linear(model.reshape(self.shape))

    def _split(self, model: Parameters) -> tuple[Parameters, Parameters]:
        rows = model.reshape(self.shape)
        return np.ascontiguousarray(rows[:, :-1]), rows[:, -1].copy()


def _blocks(inputs: Parameters) -> Parameters:
    """Cut samples into blocks (feature, sample): products with few classes are fastest along contiguous samples."""
    size = min(max(64, FLOATS_AT_ONCE // inputs.shape[1]), max(1, len(inputs)))
    count = -(-len(inputs) // size)
    filled = np.zeros((count * size, inputs.shape[1]), dtype=np.float32)
    filled[: len(inputs)] = inputs
    return np.ascontiguousarray(filled.reshape(count, size, -1).transpose(0, 2, 1))


@compiled
def _total_loss(weights: Parameters, bias: Parameters, blocks: Parameters, labels: Integers) -> float:
    """Return the summed cross-entropy of all samples; what fills up the last block does not count."""
    classes, width = len(bias), blocks.shape[2]
    logits = np.empty((classes, width), dtype=np.float32)
    highest, total = np.empty(width, dtype=np.float32), np.empty(width, dtype=np.float32)
    loss = 0.0
    for block in range(len(blocks)):
        np.dot(weights, blocks[block], logits)
        highest[:] = -np.inf
        for c in range(classes):
            for s in range(width):
                logits[c, s] += bias[c]
                highest[s] = max(highest[s], logits[c, s])
        total[:] = 0
        for c in range(classes):
            for s in range(width):
                total[s] += exp(logits[c, s] - highest[s])
        first = block * width
        product = 1.0
        for s in range(min(width, len(labels) - first)):
            loss += highest[s] - logits[labels[first + s], s]
            product *= total[s]  # at most the number of classes: one logarithm serves several samples
            if product > 1e200:
                loss += np.log(product)
                product = 1.0
        loss += np.log(product)
    return loss


@compiled
def _right_answers(weights: Parameters, bias: Parameters, blocks: Parameters, labels: Integers) -> int:
    """Return how many samples have their own class as the likeliest."""
    right, width = 0, blocks.shape[2]
    for block in range(len(blocks)):
        logits = np.dot(weights, blocks[block])
        first = block * width
        for s in range(min(width, len(labels) - first)):
            likeliest = 0
            for c in range(len(bias)):
                if logits[c, s] + bias[c] > logits[likeliest, s] + bias[likeliest]:
                    likeliest = c
            right += likeliest == labels[first + s]
    return right


@compiled
def _train(
    inputs: Parameters,
    labels: Integers,
    models: Parameters,
    start: Integers,
    rows: npt.NDArray[np.int64],
    local_steps: Integers,
    step_size: Parameters,
    shifts: Parameters,
    shift_of: Integers,
    rule: StepRule,
) -> tuple[Parameters, Vector]:
    """Run local SGD for each client, one after another."""
    update, path = np.empty((len(start), *models.shape[1:]), dtype=np.float32), np.empty((len(start), 3))
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
            if rule.plain:
                norm = sgd_step(weights.reshape(-1), gradient.reshape(-1), step_size[k, step], rule.weight_decay)
            else:
                begin, shift = models[start[k]].reshape(-1), shifts[shift_of[k]]
                norm = careful_step(weights.reshape(-1), gradient.reshape(-1), begin, shift, step_size[k, step], rule)
            largest = max(largest, norm)
            total_norm += norm
        update[k] = weights - models[start[k]]
        path[k, 0] = largest
        path[k, 1] = total_norm / local_steps[k]
        path[k, 2] = total_loss / (local_steps[k] * batch)
    return update, path
