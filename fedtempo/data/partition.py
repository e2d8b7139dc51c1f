"""How samples are split among clients: by classes as in the paper, by a Dirichlet distribution, or alike for all.

Each split is a function of the labels and a random generator. It uses no sample twice, gives exactly the total asked
for, and lets every class of the data be held by some client.
"""

from typing import Literal, NamedTuple, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from fedtempo.checks import InputError, Integers, Vector, check_count, check_positive
from fedtempo.data.class_counts import class_counts

RANK_EXPONENT = 1.0

SplitName: TypeAlias = Literal["classes", "dirichlet", "iid", "quantity"]
SPLITS: tuple[SplitName, ...] = get_args(SplitName)
CONCENTRATION = 0.5  # of dirichlet and quantity, unless somebody says otherwise
CLASSES = (1, 10)  # of one client, at least and at most, likewise


class Partition(NamedTuple):
    """Which samples each client holds: client i those numbered ``order[offsets[i]:offsets[i + 1]]``."""

    order: Integers
    offsets: Integers


def split_by_name(
    name: str,
    labels: Integers,
    num_clients: int,
    total: int,
    rng: np.random.Generator,
    *,
    concentration: float,
    classes: tuple[int, int],
    equal_sizes: bool = False,
) -> Partition:
    """Split so many samples by one of ``SPLITS``.

    ``concentration`` is that of dirichlet and quantity, ``classes`` those of one client in the split of this name, at
    least and at most. Sizes that do not follow from the split follow a power law; those of iid may be equal.
    """
    if name == "dirichlet":
        return dirichlet(labels, num_clients, total, concentration, rng)
    if name == "quantity":
        return iid(labels, dirichlet_sizes(num_clients, total, concentration, rng), rng)
    if name == "iid" and equal_sizes:
        return iid(labels, apportion(total, np.ones(num_clients)), rng)
    # At least a tenth of the mean, so that the smallest clients can be trained on.
    sizes = power_law_sizes(num_clients, total, rng, max(1, total // (10 * num_clients)))
    return by_classes(labels, sizes, classes, rng) if name == "classes" else iid(labels, sizes, rng)


def apportion(total: int, weights: npt.ArrayLike, smallest: int = 0) -> Integers:
    """Return sizes that sum to the total: the smallest size each, and the rest in proportion to the weights.

    What rounding leaves over goes to the largest remainders.
    """
    share = np.asarray(weights, dtype=np.float64)
    _check_enough(share.size, total, smallest)
    rest = total - smallest * share.size
    exact = rest * (share / share.sum())
    sizes: Integers = np.floor(exact).astype(np.int64)
    by_remainder = np.argsort(sizes - exact, kind="stable")
    sizes[by_remainder[: rest - sizes.sum()]] += 1
    return sizes + smallest


def power_law_sizes(
    num_clients: int, total: int, rng: np.random.Generator, smallest: int = 1, exponent: float = RANK_EXPONENT
) -> Integers:
    """Return sizes of clients by a power law: they sum to the total, and none is below the smallest.

    What the client of rank r has above the smallest size is in proportion to r^-exponent; ranks are dealt at random.
    Ranks, not independent draws, since a heavy tail would now and then give one client most of the data.
    """
    check_count("num_clients", num_clients)
    check_count("smallest", smallest)
    check_positive("exponent", exponent)
    return apportion(total, (1.0 + rng.permutation(num_clients)) ** -exponent, smallest)


def dirichlet_sizes(num_clients: int, total: int, concentration: float, rng: np.random.Generator) -> Integers:
    """Return sizes of clients in proportions from a symmetric Dirichlet distribution; none is below 1."""
    check_count("num_clients", num_clients)
    check_positive("concentration", concentration)
    return apportion(total, _proportions(num_clients, concentration, rng), 1)


def iid(labels: Integers, sizes: Integers, rng: np.random.Generator) -> Partition:
    """Give each client a random sample of all data, of the size asked for."""
    class_totals = _subsample(labels, int(np.sum(sizes)), rng)
    return Partition(_deal(labels, class_totals[np.newaxis], rng).order, _offsets(sizes))


def dirichlet(
    labels: Integers, num_clients: int, total: int, concentration: float, rng: np.random.Generator
) -> Partition:
    """Split each class among the clients in proportions drawn from a symmetric Dirichlet distribution.

    The smaller the concentration, the fewer clients share a class, and the more sizes differ. A client that would hold
    nothing gets one sample of the largest client.
    """
    check_count("num_clients", num_clients)
    check_positive("concentration", concentration)
    _check_enough(num_clients, total, 1)
    counts = np.empty((num_clients, int(labels.max()) + 1), dtype=np.int64)
    for label, class_total in enumerate(_subsample(labels, total, rng)):
        counts[:, label] = rng.multinomial(class_total, _proportions(num_clients, concentration, rng))
    sizes = counts.sum(axis=1)
    for client in np.flatnonzero(sizes == 0):
        giver = sizes.argmax()
        counts[[giver, client], counts[giver].argmax()] += [-1, 1]
        sizes[[giver, client]] += [-1, 1]
    return _deal(labels, counts, rng)


def by_classes(labels: Integers, sizes: Integers, classes: tuple[int, int], rng: np.random.Generator) -> Partition:
    """Give each client samples of a few classes only, from the lowest to the highest number of them: the paper's split.

    Sizes and numbers of classes are matched at random. A client has more classes than drawn for it, though never more
    than the highest number, where its classes hold too few samples or a class would be left to nobody.
    """
    sizes = np.asarray(sizes, dtype=np.int64)
    stock = _stock(labels, int(sizes.sum()))
    present = np.flatnonzero(stock)
    counts = np.zeros((sizes.size, stock.size), dtype=np.int64)
    counts[:, present] = class_counts(sizes, classes, stock[present], rng)
    return _deal(labels, counts, rng)


def _check_enough(num_clients: int, total: int, smallest: int) -> None:
    if total < num_clients * smallest:
        raise InputError(
            name="the total",
            rule=f"give each of the {num_clients} clients at least {smallest}",
            got=f"{total} samples",
            remedy="take more samples or fewer clients",
        )


def _stock(labels: Integers, total: int) -> Integers:
    """Return how many samples of each class there are, if they can give the total."""
    stock = np.bincount(labels)
    if total > labels.size:
        raise InputError(name="the total", rule=f"be at most the {labels.size} samples of the data", got=f"{total}")
    if total < np.count_nonzero(stock):
        raise InputError(
            name="the total",
            rule=f"give a sample of each of the {np.count_nonzero(stock)} classes",
            got=f"{total} samples",
        )
    return stock


def _subsample(labels: Integers, total: int, rng: np.random.Generator) -> Integers:
    """Draw how many samples of each class a random part of the data holds, at least one of each class there is."""
    stock = _stock(labels, total)
    one_each = (stock > 0).astype(np.int64)
    return one_each + rng.multivariate_hypergeometric(stock - one_each, total - one_each.sum(), method="marginals")


def _proportions(size: int, concentration: float, rng: np.random.Generator) -> Vector:
    """Draw from a symmetric Dirichlet distribution; where floating point gives out, near 0, one client gets all."""
    drawn = rng.dirichlet(np.full(size, concentration))
    return drawn if np.isfinite(drawn).all() else np.eye(1, size, int(rng.integers(size)))[0]


def _deal(labels: Integers, counts: Integers, rng: np.random.Generator) -> Partition:
    """Take so many random samples of each class for each client; each client's samples are in random order."""
    num_clients, num_classes = counts.shape
    shuffled = rng.permutation(labels.size)
    by_class = shuffled[np.argsort(labels[shuffled], kind="stable")]
    starts = _offsets(np.bincount(labels))
    ends = starts[:-1] + counts.sum(axis=0)
    taken = np.concatenate([by_class[start:end] for start, end in zip(starts[:-1], ends, strict=True)])
    owner = np.repeat(np.tile(np.arange(num_clients), num_classes), counts.T.ravel())
    mixed = rng.permutation(taken.size)
    order = taken[mixed][np.argsort(owner[mixed], kind="stable")]
    return Partition(order, _offsets(counts.sum(axis=1)))


def _offsets(sizes: Integers) -> Integers:
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
