"""The paper's split as a table: how many samples of each class each client gets, if each has a few classes only."""

from contextlib import suppress

import numpy as np
import numpy.typing as npt

from fedtempo.checks import InputError, Integers, check_count

Chosen = npt.NDArray[np.bool_]

ATTEMPTS = 20


def class_counts(sizes: Integers, classes: tuple[int, int], stock: Integers, rng: np.random.Generator) -> Integers:
    """Return a table with a line for each client and a column for each class.

    Lines sum to the sizes and have from lowest to highest entries above 0; columns stay within the stock of the class,
    at least 1, and none is empty. How many classes a client has is drawn whatever its size; which ones, by what is left
    of each; and its samples, at random from what is left of its classes.
    """
    lowest, highest = classes
    _check_room(sizes, lowest, highest, stock.size)
    for _ in range(ATTEMPTS - 1):
        with suppress(InputError):
            return _draw_counts(sizes, lowest, highest, stock, rng)
    return _draw_counts(sizes, lowest, highest, stock, rng)


def _draw_counts(
    sizes: Integers, lowest: int, highest: int, stock: Integers, rng: np.random.Generator
) -> Integers:  # fmt: skip
    """Draw one table; unlucky choices can end where no exchange helps, mostly if little is left over."""
    numbers = _draw_numbers(sizes, lowest, highest, stock.size, rng)
    counts = np.zeros((sizes.size, stock.size), dtype=np.int64)
    # Each class goes to some client first, one sample of it, so that none is left to nobody.
    places = rng.permutation(np.repeat(np.arange(sizes.size), numbers))[: stock.size]
    counts[places, rng.permutation(stock.size)] = 1
    left = stock - 1
    # Large clients choose first, while there is enough of each class.
    for client in np.argsort(-sizes, kind="stable"):
        line = counts[client]
        wanted = int(sizes[client] - line.sum())
        chosen = _choose(line > 0, int(numbers[client]), highest, wanted, left, rng)
        opened = chosen & (line == 0)
        pool = np.where(chosen, left - opened, 0)
        # One of each class opened, and the rest at random; less than wanted where the classes run out.
        taken = opened + rng.multivariate_hypergeometric(
            pool, min(wanted - opened.sum(), pool.sum()), method="marginals"
        )
        line += taken
        left -= taken
    for client in np.flatnonzero(counts.sum(axis=1) < sizes):
        _fill(int(client), int(sizes[client]), highest, counts, left)
    for client in np.flatnonzero((counts > 0).sum(axis=1) < lowest):
        _widen(int(client), lowest, highest, counts)
    return counts


def _check_room(sizes: Integers, lowest: int, highest: int, num_classes: int) -> None:
    """Refuse what no split can give."""
    if not check_count("classes", lowest) <= check_count("classes", highest) <= num_classes:
        raise InputError(
            name="classes",
            rule=f"be a lowest and a highest number between 1 and the {num_classes} classes of the data",
            got=f"{lowest} to {highest}",
        )
    if sizes.min() < lowest:
        raise InputError(
            name="each client",
            rule=f"have samples for at least {lowest} classes",
            got=f"a client of {sizes.min()} samples",
            remedy="take more samples or fewer clients",
        )
    if np.minimum(sizes, highest).sum() < num_classes:
        raise InputError(
            name="the clients",
            rule=f"be able to hold all {num_classes} classes",
            got=f"{sizes.size} clients with at most {highest} classes each",
            remedy="take more clients, samples or classes for each",
        )


def _draw_numbers(
    sizes: Integers, lowest: int, highest: int, num_classes: int, rng: np.random.Generator
) -> Integers:  # fmt: skip
    """Draw how many classes each client has, at least as many in all as there are classes."""
    room = np.minimum(sizes, highest)
    numbers = np.minimum(rng.integers(lowest, highest + 1, sizes.size), room)
    while numbers.sum() < num_classes:
        numbers[rng.choice(np.flatnonzero(numbers < room))] += 1
    return numbers


def _choose(
    chosen: Chosen, number: int, highest: int, wanted: int, left: Integers, rng: np.random.Generator
) -> Chosen:  # fmt: skip
    """Return the classes of one client: those it has already, and others at random by what is left of them.

    Where they hold less than is wanted, the fullest classes are added up to the highest number: a large client for
    which few classes were drawn gets as many as it needs in scarce data.
    """
    chosen = chosen.copy()
    others = np.flatnonzero(~chosen & (left > 0))
    missing = min(number - int(chosen.sum()), others.size, wanted)
    if missing > 0:
        # The largest of u^(1/w) are a random choice without replacement by weights w; in logarithms, for large w.
        keys = np.log(rng.random(others.size)) / left[others]
        chosen[others[np.argsort(-keys, kind="stable")[:missing]]] = True
    for label in np.argsort(-left, kind="stable"):
        if left[chosen].sum() >= wanted or chosen.sum() >= highest or left[label] == 0:
            break
        chosen[label] = True
    return chosen


def _fill(client: int, size: int, highest: int, counts: Integers, left: Integers) -> None:
    """Fill a client whose classes ran out, with samples that others hand over and replace by what is left."""
    while (missing := int(size - counts[client].sum())) > 0:
        steps = _chain_of_gifts(client, highest, counts, left)
        if not steps:
            raise InputError(
                name="the data",
                rule="hold enough of each class for the split",
                got=f"too little for a client of {size} samples",
                remedy="take fewer samples in all, or allow more classes to a client",
            )
        given, taken = steps[0][1], steps[-1][2]
        amount = min(missing, left[taken], *(counts[giver, label] - 1 for giver, label, _ in steps))
        for giver, label, instead in steps:
            counts[giver, label] -= amount
            counts[giver, instead] += amount
        counts[client, given] += amount
        left[taken] -= amount


def _chain_of_gifts(client: int, highest: int, counts: Integers, left: Integers) -> list[tuple[int, int, int]]:
    """Return the shortest chain (giver, class given, class taken instead) from a client's classes to one that is left.

    A giver keeps one sample of the class it gives; it has the class that it takes already, or has room for it. In the
    shortest chain no giver needs room twice: it would have taken the later class at once.
    """
    may_give = counts > 1
    may_give[client] = False
    may_take = (counts > 0) | ((counts > 0).sum(axis=1, keepdims=True) < highest)
    chains: dict[int, list[tuple[int, int, int]]] = {int(label): [] for label in np.flatnonzero(counts[client])}
    queue = list(chains)
    for label in queue:  # grows while it is read: breadth first
        for instead in range(left.size):
            givers = np.flatnonzero(may_give[:, label] & may_take[:, instead])
            if instead in chains or givers.size == 0:
                continue
            giver = int(givers[counts[givers, label].argmax()])
            chains[instead] = [*chains[label], (giver, label, instead)]
            queue.append(instead)
            if left[instead] > 0:
                return chains[instead]
    return []


def _widen(client: int, lowest: int, highest: int, counts: Integers) -> None:
    """Bring a client to the lowest number of classes: it exchanges single samples for those of other classes."""
    line = counts[client]
    for other in np.flatnonzero(line == 0):
        for label in np.flatnonzero(line > 1):
            # The partner keeps one sample of what it gives; it has the label already, or has room for it.
            may_take = (counts[:, label] > 0) | ((counts > 0).sum(axis=1) < highest)
            partners = np.flatnonzero(may_take & (counts[:, other] > 1))
            if (line > 0).sum() < lowest and line[other] == 0 and partners.size:
                counts[[partners[0], client], other] += [-1, 1]
                counts[[partners[0], client], label] += [1, -1]
    if (line > 0).sum() < lowest:
        raise InputError(
            name="the data",
            rule=f"hold enough of each class for {lowest} classes a client",
            got="too little",
            remedy="take fewer samples in all, or allow fewer classes to a client",
        )
