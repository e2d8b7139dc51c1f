"""Softmax regression as one would write it on a board: slow, and the reference that fast trainers must equal."""

import numpy as np

from fedtempo.checks import Integers, Vector
from fedtempo.data.federation import FederatedData
from fedtempo.learning.trainer import Evaluation, LocalResult, LocalWork, Parameters


class ReadableSoftmax:
    """Multinomial logistic regression in double precision; parameters are the rows [w_c, b_c] of each class."""

    def __init__(self, data: FederatedData) -> None:
        """Take the data; a column of ones makes the bias a weight."""
        self.data = data
        self.inputs, self.test_inputs = (np.c_[x, np.ones(len(x))] for x in (data.inputs, data.test_inputs))
        self.shape = (data.num_classes, self.inputs.shape[1])
        self.num_parameters = self.shape[0] * self.shape[1]

    def initial_model(self, rng: np.random.Generator) -> Parameters:
        """Return zeros: the loss is convex."""
        return np.zeros(self.num_parameters, dtype=np.float32)

    def loss_and_gradient(self, weights: Vector, x: Vector, y: Integers) -> tuple[float, Vector]:
        """Return the mean cross-entropy of some samples and its gradient."""
        logits = x @ weights.T
        logits -= logits.max(axis=1, keepdims=True)
        chances = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        right = np.arange(len(y)), y
        loss = -float(np.log(chances[right]).mean())
        chances[right] -= 1
        return loss, np.asarray(chances.T @ x / len(y))

    def train(self, models: Parameters, work: LocalWork) -> LocalResult:
        """Run w ← w - η (∇F_i(w, ξ) + λ w), clipped and shifted, and then towards the start, E times each."""
        updates, paths = [], []
        for k, start in enumerate(work.start):
            first = models[start].reshape(self.shape).astype(np.float64)
            weights, path = first.copy(), []
            for rows, size in zip(work.rows[k, : work.local_steps[k]], work.step_sizes[k], strict=False):
                loss, gradient = self.loss_and_gradient(weights, self.inputs[rows], self.data.labels[rows])
                gradient += work.weight_decay * weights
                norm = float(np.linalg.norm(gradient))
                path.append((norm, loss))
                gradient *= min(1.0, work.clip_norm / norm) if work.clip_norm and norm else 1.0
                if work.shifts is not None:
                    row = 0 if work.shift_of is None else work.shift_of[k]
                    gradient = work.gradient_share * gradient + work.shifts[row].reshape(self.shape)
                weights -= size * gradient
                weights = first + (weights - first) / (1 + size * work.proximal)
            updates.append((weights - first).ravel().astype(np.float32))
            paths.append((np.max(path, axis=0)[0], *np.mean(path, axis=0)))
        largest, mean, loss = np.array(paths).T
        return LocalResult(
            update=np.array(updates), largest_gradient_norm=largest, mean_gradient_norm=mean, mean_loss=loss
        )

    def evaluate(self, model: Parameters) -> Evaluation:
        """Return the loss over all training data and the accuracy on the test data."""
        weights = model.reshape(self.shape).astype(np.float64)
        loss, _ = self.loss_and_gradient(weights, self.inputs, self.data.labels)
        guesses = (self.test_inputs @ weights.T).argmax(axis=1)
        return Evaluation(loss, float((guesses == self.data.test_labels).mean()))

    def client_losses(self, model: Parameters, clients: Integers) -> Vector:
        """Return F_i(w) for some clients."""
        weights = model.reshape(self.shape).astype(np.float64)
        rows = [slice(self.data.offsets[i], self.data.offsets[i + 1]) for i in clients]
        return np.array([self.loss_and_gradient(weights, self.inputs[r], self.data.labels[r])[0] for r in rows])
