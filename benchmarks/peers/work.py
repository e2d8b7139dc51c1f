"""The work that every simulator under comparison does, the data it does it on, and the line it reports.

NumPy is all that this file needs, so that each environment can import it.
"""

import argparse
import functools
import json
import time
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class Work:
    """Federated averaging: K clients a round, each E steps of SGD from the global model, their mean by data size."""

    setup: str
    network: str  # softmax, lenet5 or cnn, the network of configs/cifar10.toml
    input_shape: tuple[int, ...]
    num_samples: int
    num_clients: int  # N
    cohort_size: int  # K
    local_steps: int  # E
    evaluate_every: int  # rounds between two evaluations of the loss over all training data
    evaluation_batch: int  # the fastest found for PyTorch
    num_classes: int = 10
    batch_size: int = 24
    learning_rate: float = 0.01  # constant: the step size has no cost, and this one is stable on noise

    @property
    def samples_trained(self) -> int:
        """Samples that go through a gradient in one round."""
        return self.cohort_size * self.local_steps * self.batch_size


SIZES = [
    # setup, network, input_shape, num_samples, num_clients, cohort_size, local_steps, evaluate_every, evaluation_batch
    ("setup1", "softmax", (784,), 33_036, 40, 4, 50, 1, 4096),
    ("setup2", "softmax", (60,), 20_509, 100, 10, 50, 1, 4096),
    ("setup3", "lenet5", (1, 28, 28), 15_129, 100, 10, 50, 5, 128),
    ("cifar10", "cnn", (3, 32, 32), 10_000, 100, 4, 20, 10, 128),
]
WORKS = {sizes[0]: Work(*sizes) for sizes in SIZES}


@functools.cache
def make_data(setup: str, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return inputs, labels and offsets: client i holds the samples from offsets[i] up to offsets[i + 1].

    Inputs are standard normal, labels uniform; shares of the data are lognormal, each client with one batch at least.
    """
    work = WORKS[setup]
    rng = np.random.default_rng(seed)
    inputs = rng.standard_normal((work.num_samples, *work.input_shape), dtype=np.float32)
    labels = rng.integers(work.num_classes, size=work.num_samples)
    shares = np.cumsum(rng.lognormal(size=work.num_clients))
    spare = work.num_samples - work.num_clients * work.batch_size
    ends = np.rint(spare * shares / shares[-1]).astype(int) + work.batch_size * np.arange(1, work.num_clients + 1)
    return inputs, labels, np.concatenate([[0], ends])


class Measurement:
    """Times the rounds after the warm-up and refuses to report any other amount of work than the setup's.

    A peer adds the samples it passes through the model to `trained` and `evaluated`, and keeps the last loss in `loss`.
    """

    def __init__(self, work: Work, rounds: int, warmup: int, evaluate_every: int) -> None:
        """Time so many rounds after so many for warm-up."""
        if warmup < 1:
            raise ValueError(f"warmup must be at least 1, got {warmup}; compilation and caches would be timed")
        if rounds < 1 or rounds % evaluate_every:
            raise ValueError(f"rounds must be a positive multiple of evaluate_every={evaluate_every}, got {rounds}")
        self.work, self.rounds, self.warmup, self.evaluate_every = work, rounds, warmup, evaluate_every
        self.trained = self.evaluated = self.rounds_ended = 0
        self.loss = float("nan")
        self.started = self.ended = 0.0

    @classmethod
    def from_arguments(cls, description: str | None) -> "Measurement":
        """Read the command line that all peers share."""
        parser = argparse.ArgumentParser(description=description)
        parser.add_argument("--setup", choices=sorted(WORKS), default="setup2")
        parser.add_argument("--rounds", type=int, default=20, help="timed rounds")
        parser.add_argument("--warmup", type=int, default=3, help="rounds before the clock starts")
        parser.add_argument("--evaluate-every", type=int, help="rounds; default: that of the setup")
        given = parser.parse_args()
        work = WORKS[given.setup]
        return cls(work, given.rounds, given.warmup, given.evaluate_every or work.evaluate_every)

    @property
    def total_rounds(self) -> int:
        """Rounds with the warm-up."""
        return self.warmup + self.rounds

    @property
    def evaluation_due(self) -> bool:
        """Whether the round under way ends with an evaluation."""
        return (self.rounds_ended + 1) % self.evaluate_every == 0

    def round_ended(self) -> None:
        """Note the end of a round; the clock starts with the end of the last warm-up round."""
        self.rounds_ended += 1
        if self.rounds_ended == self.warmup:
            self.trained = self.evaluated = 0
            self.started = time.perf_counter()
        self.ended = time.perf_counter()

    def report(self, peer: str, version: str) -> None:
        """Print the JSON line."""
        work = self.work
        counted = self.rounds_ended, self.trained, self.evaluated
        evaluations = self.rounds // self.evaluate_every
        expected = self.total_rounds, self.rounds * work.samples_trained, evaluations * work.num_samples
        if counted != expected:
            raise RuntimeError(f"{peer}: rounds, samples trained and evaluated must be {expected}, got {counted}")
        if not np.isfinite(self.loss):
            raise RuntimeError(f"{peer}: the loss must be finite, got {self.loss}")
        seconds = self.ended - self.started
        line = {
            "peer": peer,
            "version": version,
            "setup": work.setup,
            "rounds": self.rounds,
            "seconds": round(seconds, 4),
            "rounds_per_second": round(self.rounds / seconds, 4),
            "threads": 1,
            "evaluate_every": self.evaluate_every,
            "loss": round(self.loss, 4),
        }
        print(json.dumps(line), flush=True)
