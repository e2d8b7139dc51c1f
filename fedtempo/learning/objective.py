"""What a torch module is trained for and judged by: cross-entropy and accuracy, or functions of one's own."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch.nn.functional import cross_entropy
from torch.utils._pytree import tree_leaves, tree_map, tree_map_only

from fedtempo.checks import InputError
from fedtempo.data.federation import FederatedData
from fedtempo.learning.module_errors import one_sentence

Loss = Callable[[Any, torch.Tensor], torch.Tensor]  # of outputs and labels: the mean over the batch
Metric = Callable[[Any, torch.Tensor], Any]  # of all test outputs and labels: a number


class Objective:
    """Loss over batches, where one of one's own is a mean and counts by its samples, and metric over all samples."""

    def __init__(self, data: FederatedData, loss: Loss | None = None, metric: Metric | None = None) -> None:
        """Take the functions; without a loss, labels are classes."""
        for name, function in (("loss", loss), ("metric", metric)):
            if function is not None and not callable(function):
                rule = "be a function of outputs and labels"
                raise InputError(name=name, rule=rule, got=repr(function))
        self.classes = data.num_classes if data.labels.ndim == 1 and data.labels.dtype.kind in "iu" else None
        if loss is None and not self.classes:
            rule = "be given where labels are no classes"
            raise InputError(name="loss", rule=rule, got="none", remedy="such as torch.nn.functional.mse_loss")
        self.own_loss, self.own_metric = loss, metric
        self.loss: Loss = cross_entropy if loss is None else self._loss_of_own
        self.knows_classes = True  # outputs are a number for each class, so that they have an accuracy

    def total_loss(self, outputs: torch.Tensor, labels: torch.Tensor) -> float:
        """Return the loss, summed over samples."""
        if self.own_loss is None:
            return float(cross_entropy(outputs, labels, reduction="sum"))
        with one_sentence("the loss", "return one number for the module's outputs and the labels"):
            return float(self.own_loss(outputs, labels)) * len(labels)

    def total_right(self, outputs: torch.Tensor, labels: torch.Tensor) -> float:
        """Return how many classes were found; NaN where outputs are no numbers for classes."""
        return int((outputs.argmax(dim=1) == labels).sum()) if self.knows_classes else math.nan

    def metric(self, batches: list[object], labels: torch.Tensor) -> float:
        """Return the metric of one's own, of the outputs of all batches at once: most metrics are no means."""
        assert self.own_metric is not None
        with one_sentence("the module", rule := "give a row of outputs for each sample where there is a metric"):
            outputs = tree_map(lambda *parts: torch.cat(torch.atleast_1d(parts)), *batches)
            if rows := {len(one) for one in tree_leaves(outputs)} - {len(labels)}:
                raise InputError(name="the module", rule=rule, got=f"{min(rows)} rows for {len(labels)} samples")
        with one_sentence("the metric", rule := "return one number for the module's outputs and the labels"):
            found = self.own_metric(outputs, labels)
            if isinstance(found, torch.Tensor) and found.numel() != 1:
                raise InputError("the metric", rule, _kind(found), "take the mean over the samples")
            return float(found)

    def check(self, outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Return the loss of some samples at first; refuse outputs and functions that do not fit."""
        shape = tuple(outputs.shape) if isinstance(outputs, torch.Tensor) else None
        wanted = (len(labels), self.classes)
        if self.own_loss is None and shape != wanted:
            got = f"shape {shape} for {len(labels)} samples" if shape else f"a {type(outputs).__name__}"
            raise InputError(name="the module", rule=f"give {self.classes} numbers for a sample", got=got)
        if shape and shape not in (wanted, tuple(labels.shape)) and outputs.numel() == labels.numel():
            raise InputError(
                name="the module's outputs",
                rule="have the shape of the labels, or losses set each output against each label",
                got=f"{shape} beside {tuple(labels.shape)}",
                remedy="give labels[:, None], or end the module with .squeeze(-1)",
            )
        self.knows_classes = bool(self.classes) and shape == wanted
        loss = self.loss(outputs, labels)
        if not isinstance(loss, torch.Tensor) or loss.numel() != 1 or not loss.requires_grad:
            rule = "return one number, a tensor that follows from the outputs"
            raise InputError(name="the loss", rule=rule, got=_kind(loss), remedy="take the mean over the batch")
        if not math.isfinite(found := float(loss.detach())):
            remedy = "look at the data, the initial weights and the loss"
            raise InputError(name="the loss", rule="be finite at the start", got=f"{found}", remedy=remedy)
        return loss

    def _loss_of_own(self, outputs: object, labels: torch.Tensor) -> torch.Tensor:
        assert self.own_loss is not None
        with one_sentence("the loss", "take the module's outputs and the labels"):
            return self.own_loss(outputs, labels)


def precise(outputs: object) -> object:
    """Return outputs in float32 at least: sums of losses in 16 bits would be rounded to steps of 4."""
    if not isinstance(outputs, torch.Tensor):
        return tree_map_only(torch.Tensor, precise, outputs)
    return outputs.float() if outputs.is_floating_point() and outputs.itemsize < 4 else outputs


def _kind(value: object) -> str:
    return f"a tensor of shape {tuple(value.shape)}" if isinstance(value, torch.Tensor) else type(value).__name__
