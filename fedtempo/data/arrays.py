"""Arrays of somebody's own as the data of a federation: test samples held out, the rest split among clients."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from fedtempo.checks import Booleans, InputError, Integers, check_count, check_seed, near_miss
from fedtempo.data import partition
from fedtempo.data.array_types import (
    AnyArray,
    LabelsAre,
    TypedInputs,
    TypedLabels,
    plain_array,
    typed_inputs,
    typed_labels,
)
from fedtempo.data.federation import FederatedData, Samples
from fedtempo.data.owners import NOBODY, given_owners
from fedtempo.data.partition import CLASSES, CONCENTRATION, SPLITS, Partition
from fedtempo.randomness import stream

GivenSplit: TypeAlias = Sequence[npt.ArrayLike] | npt.ArrayLike

OF_CLASSES = ("dirichlet", "classes")  # splits that look at them
HELD_OUT_SHARE = 0.1


@dataclass(frozen=True, eq=False, slots=True)
class SplitSettings:
    """How samples are split among clients."""

    clients: int | None  # N; None: as many as the split gives samples to
    split: object  # a name, the rows of each client, or the owner of each sample
    concentration: float = CONCENTRATION  # of dirichlet and quantity
    classes: tuple[int, int] = CLASSES  # of one client, at least and at most
    seed: int = 0

    def __post_init__(self) -> None:
        """Check what does not depend on the samples."""
        check_seed("seed", self.seed)
        if self.clients is not None:
            check_count("clients", self.clients)
        if not isinstance(self.split, str):
            return
        if self.split not in SPLITS:
            rule = f"be one of {', '.join(SPLITS)}, the rows of each client, or the owner of each sample"
            near = near_miss(self.split, SPLITS, "")
            raise InputError("split", rule, repr(self.split), near)
        if self.clients is None:
            raise InputError("clients", f"be given for the split {self.split}", "nothing")


def federated(
    inputs: object,
    labels: object,
    settings: SplitSettings,
    *,
    test: object,
    name: str,
    labels_are: LabelsAre | None = None,
) -> FederatedData:
    """Return the data of a federation; ``test`` is a share that is held out, or a pair of inputs and labels."""
    array = plain_array("inputs", inputs)
    given = typed_inputs("inputs", array)
    known = typed_labels("labels", labels, len(given.rows), labels_are)
    _check_split(settings, known)
    owner = None
    if not isinstance(settings.split, str):
        owner = given_owners(settings.split, len(given.rows), settings.clients)
    if isinstance(test, tuple | list):
        test_inputs, test_labels = _test_pair(test, array, given, known)
        rows = np.arange(len(given.rows))
    else:
        held_out = _held_out(_share(test), known, owner, settings.seed)
        test_inputs, test_labels = given.rows[held_out], known.values[held_out]
        rows = np.flatnonzero(~held_out)
    order, offsets = _split(known, rows, owner, settings)
    return FederatedData(
        inputs=given.rows[order], labels=known.values[order], offsets=offsets,
        test_inputs=test_inputs, test_labels=test_labels,
        num_classes=0 if known.classes is None else known.classes.size,
        input_shape=given.shape, name=name, tokens=given.tokens, class_names=known.names,
    )  # fmt: skip


def _check_split(settings: SplitSettings, labels: TypedLabels) -> None:
    if labels.classes is None and isinstance(settings.split, str) and settings.split in OF_CLASSES:
        raise InputError(
            name="labels",
            rule=f"be one class for each sample in the split {settings.split}",
            got=f"{labels.values.dtype} of shape {labels.values.shape}",
            remedy="make them classes, or take the split iid or quantity and a loss of your own",
        )


def _share(test: object) -> float:
    if isinstance(test, bool) or not isinstance(test, int | float | np.number) or not 0 < test < 1:
        remedy = "accuracy is measured on test samples"
        raise InputError("test", "be a share between 0 and 1, or a pair (inputs, labels)", f"{test!r:.60}", remedy)
    return float(test)


def _test_pair(
    test: Sequence[object], array: AnyArray, given: TypedInputs, known: TypedLabels
) -> tuple[Samples, Samples]:
    if len(test) != 2:
        raise InputError("test", "be a share or a pair (inputs, labels)", f"{len(test)} values")
    test_array = plain_array("test inputs", test[0])
    inputs = typed_inputs("test inputs", test_array)
    if (inputs.shape, inputs.tokens) != (given.shape, given.tokens):
        words = {True: "whole numbers", False: "real numbers"}
        raise InputError(
            name="test inputs",
            rule=f"be {words[given.tokens]} of the shape {given.shape} for each sample, as inputs are",
            got=f"{words[inputs.tokens]} of the shape {inputs.shape}",
        )
    if (test_array.dtype == np.uint8) != (array.dtype == np.uint8):
        rule = f"be {array.dtype}, as inputs are"
        remedy = "bytes are scaled to 0..1, other numbers are not"
        raise InputError("test inputs", rule, f"{test_array.dtype}", remedy)
    return inputs.rows, known.numbered("test labels", test[1], len(inputs.rows))


def _held_out(share: float, labels: TypedLabels, owner: Integers | None, seed: int) -> Booleans:
    """Choose samples for testing: the same share of each class, or of each client that is given; never the last of any.

    Samples that no client owns are not held out either.
    """
    if owner is not None:
        strata = owner + 1  # of nobody first
    else:
        strata = np.zeros(len(labels.values), dtype=np.int64) if labels.classes is None else labels.values
    rng = stream(seed, "arrays", "test")
    counts = np.bincount(strata)
    if owner is not None:
        counts[0] = 0
    wanted = np.minimum(partition.apportion(max(1, round(share * counts.sum())), counts), np.maximum(counts - 1, 0))
    order = rng.permutation(strata.size)
    order = order[np.argsort(strata[order], kind="stable")]
    starts = np.cumsum(np.bincount(strata)) - np.bincount(strata)
    chosen = np.zeros(strata.size, dtype=np.bool_)
    chosen[order] = np.arange(strata.size) - starts[strata[order]] < wanted[strata[order]]
    if owner is not None and labels.classes is not None:
        _give_back(chosen, labels.values, owner)
    if not chosen.any():
        remedy = "take a larger share, or give a pair (inputs, labels)"
        raise InputError("test", "leave samples for testing", f"{share} of {counts.sum()} samples", remedy)
    return chosen


def _give_back(chosen: Booleans, classes: Integers, owner: Integers) -> None:
    """Return one sample to training of each class that would have none there."""
    trained = np.unique(classes[~chosen & (owner != NOBODY)])
    for label in np.setdiff1d(classes[chosen], trained):
        chosen[np.flatnonzero(chosen & (classes == label))[0]] = False


def _split(labels: TypedLabels, rows: Integers, owner: Integers | None, settings: SplitSettings) -> Partition:
    """Return which samples each client holds, out of these rows."""
    if owner is not None:
        rows = rows[owner[rows] != NOBODY]
        order, sizes = rows[np.argsort(owner[rows], kind="stable")], np.bincount(owner[rows])
        return Partition(order, np.concatenate([[0], np.cumsum(sizes)]))
    clients = check_count("clients", settings.clients or 0)
    if rows.size < clients:
        raise InputError("clients", f"be at most the {rows.size} samples for training", f"{clients}")
    rng = stream(settings.seed, "arrays", "split")
    classes = np.zeros_like(rows) if labels.classes is None else labels.values[rows]
    limits = _class_limits(settings.classes, labels) if settings.split == "classes" else settings.classes
    found = partition.split_by_name(
        str(settings.split), classes, clients, rows.size, rng,
        concentration=settings.concentration, classes=limits, equal_sizes=True,
    )  # fmt: skip
    return Partition(rows[found.order], found.offsets)


def _class_limits(limits: tuple[int, int], labels: TypedLabels) -> tuple[int, int]:
    """Return how few and how many classes a client may have: no more than there are."""
    try:
        lowest, highest = limits
    except (TypeError, ValueError):
        raise InputError("classes", "be a lowest and a highest number", f"{limits!r}") from None
    there = 0 if labels.classes is None else labels.classes.size
    return check_count("classes", lowest), min(check_count("classes", highest), there)
