"""Measure what the torch adapter costs beside a plain PyTorch loop that takes the same steps.

    python benchmarks/adapter.py

The network of configs/cifar10.toml, 100 clients, batches of 24, random data, one thread. Both run a round by turns,
so that both meet the same pace of the machine: the median of the pairs' ratios counts. Prints the table, and writes it
to benchmarks/adapter.md. benchmarks/simulator.py has whole rounds of the same network beside other simulators.
"""

import argparse
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from fedtempo.data.federation import FederatedData
from fedtempo.files import whole_file
from fedtempo.learning.batches import Batches
from fedtempo.learning.networks import GroupNormCNN
from fedtempo.learning.torch_module import TorchTrainer
from fedtempo.learning.trainer import LocalWork
from fedtempo.tables.table import Table

REPORT = Path(__file__).resolve().parent / "adapter.md"
CLIENTS, SAMPLES, COHORT_SIZE, STEPS, BATCH = 100, 5000, 4, 20, 24  # as in configs/cifar10.toml
GOAL = 1.05
# In one layout the steps are the same to the bit. In two, sums round differently: where that makes the second value of
# a pool the largest, a client takes another path, and after twenty steps all of a cohort may have.
LAYOUTS_APART = 0.1


def federation() -> FederatedData:
    """Return noise in the shape of CIFAR-10."""
    rng = np.random.default_rng(0)
    inputs, labels = rng.standard_normal((SAMPLES, 3072), dtype=np.float32), np.arange(SAMPLES) % 10
    offsets = np.linspace(0, SAMPLES, CLIENTS + 1).astype(np.int64)
    return FederatedData(inputs, labels, offsets, inputs[:100], labels[:100], 10, (3, 32, 32), "noise")


@dataclass(frozen=True)
class Case:
    """What is measured."""

    optimiser: str
    step_size: float
    channels_last: bool = False  # of the plain loop too: the adapter chooses it by itself

    def __str__(self) -> str:
        """Say what it is."""
        return self.optimiser + (", plain loop with channels last" if self.channels_last else "")


CASES = (Case("SGD", 0.01), Case("SGD", 0.01, True), Case("Adam", 1e-3, True))


class PlainLoop:
    """Local SGD as one would write it: a module, ``torch.optim.SGD``, batches by index."""

    def __init__(self, data: FederatedData, case: "Case") -> None:
        """Make the module."""
        layout = torch.channels_last if case.channels_last else torch.contiguous_format
        inputs = torch.from_numpy(data.inputs.reshape(-1, *data.input_shape).copy())
        self.inputs, self.module = inputs.contiguous(memory_format=layout), GroupNormCNN().to(memory_format=layout)
        self.labels, self.step_size = torch.from_numpy(data.labels.copy()), case.step_size
        self.optimiser = getattr(torch.optim, case.optimiser)

    def train(self, model: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Return the updates of some clients, and their losses as any loop would keep them."""
        updates, batches = [], torch.from_numpy(rows)
        weights, losses = torch.from_numpy(model), []
        self.module.train()
        for own in batches:
            nn.utils.vector_to_parameters(weights.clone(), self.module.parameters())
            optimiser = self.optimiser(self.module.parameters(), lr=self.step_size)
            for batch in own:
                optimiser.zero_grad()
                loss = cross_entropy(self.module(self.inputs[batch]), self.labels[batch])
                loss.backward()
                optimiser.step()
                losses.append(loss.item())
            after = nn.utils.parameters_to_vector(self.module.parameters()).detach()
            updates.append((after - weights).numpy())
        return np.array(updates)


def pairs(data: FederatedData, case: Case, count: int) -> np.ndarray:
    """Return the seconds of rounds by the plain loop and by the adapter, which must agree."""
    trainer = TorchTrainer(data, GroupNormCNN, optimiser=None if case.optimiser == "SGD" else case.optimiser)
    plain, batches = PlainLoop(data, case), Batches(data.offsets, batch_size=BATCH, seed=0)
    model, found = trainer.initial_model(np.random.default_rng(0)), []
    for r in range(count + 1):
        clients = np.random.default_rng(r).choice(CLIENTS, COHORT_SIZE, replace=False)
        rows = batches.draw(clients, r, STEPS)
        work = LocalWork(
            start=np.zeros(COHORT_SIZE, dtype=np.int64), rows=rows, local_steps=np.full(COHORT_SIZE, STEPS),
            step_size=np.full(COHORT_SIZE, case.step_size),
        )  # fmt: skip
        begun = time.process_time()
        expected = plain.train(model, rows)
        between = time.process_time()
        update = trainer.train(model[None], work).update
        found.append((between - begun, time.process_time() - between))
        check_agreement(update, expected, 1e-7 if case.channels_last else LAYOUTS_APART)
    return np.array(found[1:])


def check_agreement(update: np.ndarray, expected: np.ndarray, most: float) -> None:
    """Stop where the adapter does not take the plain loop's steps: nothing would be compared then."""
    apart = np.linalg.norm(update - expected, axis=1) / np.linalg.norm(expected, axis=1)
    if not apart.min() < most:
        raise SystemExit(f"updates must agree to {most}, got {apart.min():.3g} for the client that agrees best")


def main() -> None:
    """Measure, and write the report."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--pairs", type=int, default=20, help="rounds of each side")
    count = arguments.parse_args().pairs
    torch.set_num_threads(1)
    data, rows = federation(), []
    for case in CASES:
        seconds = pairs(data, case, count)
        ratios = seconds[:, 1] / seconds[:, 0]
        spread = 1.25 * 1.48 * np.median(np.abs(ratios - np.median(ratios))) / np.sqrt(len(ratios))
        step = 1e3 * np.median(seconds, axis=0) / (COHORT_SIZE * STEPS)
        rows.append([
            str(case), f"{step[0]:.2f}", f"{step[1]:.2f}", f"{np.median(ratios):.3f} ± {spread:.3f} ×", f"≤ {GOAL} ×",
        ])  # fmt: skip
    headings = ["optimiser", "plain loop (ms a step)", "adapter (ms a step)", "adapter over plain loop", "goal"]
    report = (
        f"# What the torch adapter costs\n\nMade by `python benchmarks/adapter.py` with torch {torch.__version__}: "
        f"{count} pairs of rounds, each of {COHORT_SIZE} clients with {STEPS} steps of {BATCH} samples.\n\n"
        f"{Table.from_rows(headings, rows)}\n"
    )
    print(report)
    with whole_file(REPORT) as stream:
        stream.write(report)


if __name__ == "__main__":
    main()
