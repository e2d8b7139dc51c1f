"""Who does the computing of simulated clients: this process, or nodes of another engine."""

from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from fedtempo.checks import InputError, Integers, Vector
from fedtempo.engine.clients import Start
from fedtempo.engine.settings import TrainingSettings
from fedtempo.learning.batches import Batches
from fedtempo.learning.quantisation import Quantiser
from fedtempo.learning.sparsification import keep_largest
from fedtempo.learning.trainer import (
    Buffers,
    Evaluation,
    LocalResult,
    LocalWork,
    Parameters,
    Trainer,
    buffered,
    whole_steps,
)
from fedtempo.state import NoState, Stateful


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class Work:
    """Local steps that some clients are to run, one entry for each of them."""

    clients: Integers
    local_steps: Integers
    step_size: Vector
    upload_bits: Integers | None = None  # of a number in each update; None: as they are, and nothing is measured
    rest: Parameters | None = None  # what each did not send before, as rows, to add now; None: it is forgotten


class Workers(Stateful, Protocol):
    """Whatever does the computing."""

    def train(self, work: Work, start: Start) -> LocalResult:
        """Run the local steps of some clients."""

    def losses(self, clients: Integers, start: Start) -> Vector:
        """Return F_i of the model for some clients."""

    def evaluate(self, model: Parameters, buffers: Buffers) -> Evaluation | None:
        """Return the loss over all training data and the accuracy on the test data."""


class LocalWorkers:
    """A trainer in this process. Batches go by the number of the round, so there is nothing to carry over."""

    def __init__(
        self,
        trainer: Trainer,
        batches: Batches,
        training: TrainingSettings | None = None,
        quantiser: Quantiser | None = None,
    ) -> None:
        """Take the model, its data, how batches are drawn from them, how steps follow from these, and who rounds."""
        self.trainer, self.batches, self.buffered = trainer, batches, buffered(trainer)
        self.quantiser = quantiser or Quantiser(0)
        self.training = training or TrainingSettings(cohort_size=1)
        _check_optimiser(trainer, self.training)
        self.state = NoState()

    def train(self, work: Work, start: Start) -> LocalResult:
        """Run the local steps of all clients in one call."""
        training = self.training
        rows = self.batches.draw(work.clients, start.round_index, int(work.local_steps.max(initial=1)))
        deviation = None if start.deviation is None else start.deviation(work.clients)
        local = LocalWork(
            start=np.zeros(len(work.clients), dtype=np.int64),
            rows=rows,
            local_steps=work.local_steps,
            step_size=work.step_size,
            weight_decay=training.weight_decay,
            clip_norm=training.clip_norm,
            proximal=training.proximal,
            local_schedule=training.local_schedule,
            buffers=None if self.buffered is None else start.buffers[None],
            gradient_share=1.0 if start.direction is None else 1.0 - training.local_direction,
            shifts=self._shifts(start, work, deviation),
            shift_of=None if deviation is None else np.arange(len(work.clients)),
        )
        result = self.trainer.train(start.model[None], local)
        if deviation is not None:
            moved = whole_steps(training.local_schedule, work.local_steps) * work.step_size
            result = replace(result, update=result.update + _column(moved) * deviation)
        return self._sent(result, work, start.round_index)

    def _shifts(self, start: Start, work: Work, deviation: Parameters | None) -> Parameters | None:
        """Return what steps follow beside gradients, as rows.

        SCAFFOLD's correction is c - c_i, with c_i the mean gradient along the client's last path and c their mean. Its
        part of the update is known, so it is taken out again: what is sent and remembered are the gradients alone,
        c_i⁺ = c_i - c + (w - w_i)/(E η) (option II). Where all paths have E steps, the server's step along the memory,
        ȳ + mean (y_i⁺ - y_i), is that of SCAFFOLD, the mean of w_i - w over η.
        """
        if deviation is not None:
            return deviation
        return None if start.direction is None else np.float32(-self.training.local_direction) * start.direction[None]

    def _sent(self, result: LocalResult, work: Work, round_index: int) -> LocalResult:
        """Return what arrives of each update, and with error feedback what does not.

        With e what was not sent before, x = Δ + e is cut or rounded to C(x), and e becomes x - C(x).
        """
        share, bits = self.training.upload_top, work.upload_bits
        if bits is None and not share:
            return result
        updates, noise = np.array(result.update, dtype=np.float32), result.noise
        if work.rest is not None:
            updates += work.rest
        whole = None if work.rest is None else updates.copy()
        if share:
            keep_largest(updates, share)
        elif bits is not None:
            noise = self.quantiser.round(updates, bits, work.clients, round_index, nearest=whole is not None)
        with np.errstate(invalid="ignore"):  # where an update is not finite
            rest = None if whole is None else whole - updates
        return replace(result, update=updates, noise=noise, rest=rest)

    def losses(self, clients: Integers, start: Start) -> Vector:
        """Return F_i of the model for some clients."""
        if self.buffered is not None:
            return self.buffered.client_losses(start.model, clients, start.buffers)
        return self.trainer.client_losses(start.model, clients)

    def evaluate(self, model: Parameters, buffers: Buffers) -> Evaluation:
        """Return how good a model is."""
        return self.trainer.evaluate(model) if self.buffered is None else self.buffered.evaluate(model, buffers)


def _check_optimiser(trainer: Trainer, training: TrainingSettings) -> None:
    """Refuse what is added to gradients where steps are not along them: its units would be others."""
    if getattr(trainer, "optimiser", None) is None:
        return
    for name in ("local_direction", "local_correction"):
        if getattr(training, name):
            remedy = "choose one of them: Adam and the like change how long a step along a gradient is"
            raise InputError(name, "go with plain SGD on clients", "an optimiser of the model", remedy)


def _column(values: Vector) -> Parameters:
    """Return one number for each client, to multiply rows with."""
    return values.astype(np.float32)[:, np.newaxis]
