"""Which of the metrics that an app reports are a loss and an accuracy, by their names."""

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from fedtempo.fleet import Fleet
from fedtempo.learning.trainer import Evaluation

TRAINING_LOSSES = ("loss", "train-loss", "training-loss", "mean-loss")
EVALUATION_LOSSES = ("loss", "eval-loss", "evaluation-loss", "test-loss", "val-loss")
NO_LOSSES = ("packet-loss",)
ACCURACIES = ("accuracy", "acc", "eval-accuracy", "eval-acc", "test-accuracy", "test-acc", "val-accuracy", "val-acc")


def loss_of(metrics: Mapping[str, object], usual: Sequence[str] = TRAINING_LOSSES) -> float:
    """Return the metric that is a loss: the first of the usual names, or one that ends in the word loss; or NaN."""
    named = _named(metrics)
    name = _loss_among(named, usual)
    return math.nan if name is None else named[name]


def evaluation_of(metrics: Mapping[str, object]) -> Evaluation | None:
    """Return the metrics that are a loss and an accuracy; None without a loss."""
    named = _named(metrics)
    loss = _loss_among(named, EVALUATION_LOSSES)
    others = (name for name in named if "acc" in name)
    accuracy = next((named[name] for name in (*ACCURACIES, *others) if name in named), math.nan)
    return None if loss is None else Evaluation(named[loss], accuracy)


def averaged(
    metrics: Mapping[int, Mapping[str, float]], fleet: Fleet, *, but_for: Sequence[str] = ()
) -> dict[str, float]:
    """Return the metrics of clients, each averaged by their data over those who report it as a finite number."""
    names = dict.fromkeys(name for own in metrics.values() for name in own if name not in but_for)
    found = {}
    for name in names:
        known = {client: own[name] for client, own in metrics.items() if math.isfinite(own.get(name, math.nan))}
        if known:
            found[name] = float(np.average(list(known.values()), weights=fleet.data_share[list(known)]))
    return found


def _named(metrics: Mapping[str, object]) -> dict[str, float]:
    """Return metrics that are numbers under names of one spelling."""
    return {
        name.lower().replace("_", "-"): float(value)
        for name, value in metrics.items()
        if isinstance(value, int | float)
    }


def _loss_among(named: Iterable[str], usual: Sequence[str]) -> str | None:
    others = [name for name in named if name.endswith("loss") and name not in NO_LOSSES]
    return next((name for name in usual if name in others), others[0] if others else None)
