"""Splits of samples among clients: exact totals, no sample twice, every class held, limits kept."""

import itertools
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedtempo.checks import InputError
from fedtempo.data.partition import apportion, by_classes, dirichlet, dirichlet_sizes, iid, power_law_sizes

TEN_CLASSES = np.repeat(np.arange(10), 600)


def classes_held(labels, partition):
    """Return how many classes each client holds, after checking that the partition is one."""
    order, offsets = partition
    assert np.unique(order).size == order.size, "no sample is used twice"
    assert offsets[0] == 0
    assert offsets[-1] == order.size
    assert (np.diff(offsets) > 0).all()
    assert set(labels[order]) == set(labels), "every class is held by someone"
    owner = np.repeat(np.arange(offsets.size - 1), np.diff(offsets))
    pairs = np.unique(np.stack([owner, labels[order]]), axis=1)
    return np.bincount(pairs[0])


@settings(max_examples=50)
@given(st.lists(st.floats(1e-12, 1e12), min_size=1, max_size=50), st.integers(0, 10_000), st.integers(0, 5))
def test_apportioned_sizes_sum_to_the_total(weights, above, smallest):
    total = smallest * len(weights) + above
    sizes = apportion(total, weights, smallest)
    assert sizes.sum() == total
    exact = smallest + above * np.array(weights) / np.sum(weights)
    assert (np.abs(sizes - exact) < 1 + 1e-6).all()


def test_sizes_follow_a_power_law():
    sizes = np.sort(power_law_sizes(1000, 10**9, np.random.default_rng(0), exponent=1.3))[::-1]
    slope = np.polyfit(np.log(np.arange(1, 1001)), np.log(sizes), 1)[0]
    assert slope == pytest.approx(-1.3, abs=1e-3)


def test_sizes_are_dealt_at_random_and_keep_the_smallest():
    first, other = (power_law_sizes(40, 33_036, np.random.default_rng(seed), smallest=82) for seed in (0, 1))
    assert first.sum() == other.sum() == 33_036
    assert first.min() >= 82
    assert (first != other).any()
    np.testing.assert_array_equal(np.sort(first), np.sort(other))
    np.testing.assert_array_equal(power_law_sizes(1, 7, np.random.default_rng(0), 1), [7])
    np.testing.assert_array_equal(power_law_sizes(3, 6, np.random.default_rng(0), 2), [2, 2, 2])


@pytest.mark.parametrize("concentration", [1e-300, 0.1, 1.0, 1e6])
def test_dirichlet_sizes_sum_to_the_total_and_none_is_empty(concentration):
    for seed in range(5):
        sizes = dirichlet_sizes(40, 1000, concentration, np.random.default_rng(seed))
        assert (sizes.sum(), sizes.size) == (1000, 40)
        assert sizes.min() >= 1
    spread = {1e-300: 900, 0.1: 50, 1.0: 20, 1e6: 0}[concentration]
    assert sizes.max() - sizes.min() >= spread


@given(
    stock=st.lists(st.integers(0, 40), min_size=1, max_size=8).filter(any),
    num_clients=st.integers(1, 12),
    limits=st.tuples(st.integers(1, 8), st.integers(1, 8)).map(sorted),
    used=st.floats(0, 1),
    seed=st.integers(0, 99),
)
def test_a_split_by_classes_is_right_or_refused(stock, num_clients, limits, used, seed):
    labels = np.repeat(np.arange(len(stock)), stock)
    num_classes, (lowest, highest) = np.unique(labels).size, limits
    total = max(num_clients * lowest, num_classes, round(used * labels.size))
    rng = np.random.default_rng(seed)
    sizes = power_law_sizes(num_clients, total, rng, lowest)
    try:
        partition = by_classes(labels, sizes, (lowest, highest), rng)
    except InputError:
        possible = total <= labels.size and lowest == 1 and highest == num_classes
        assert not possible, "with all classes allowed, any total that is there can be split"
        return
    np.testing.assert_array_equal(np.diff(partition.offsets), sizes)
    held = classes_held(labels, partition)
    assert held.min() >= lowest
    assert held.max() <= highest


@pytest.mark.parametrize("limits", [(1, 10), (1, 3), (2, 2), (5, 6), (10, 10)])
@pytest.mark.parametrize("num_clients", [40, 100])
def test_all_of_the_data_can_be_split(limits, num_clients):
    for seed in range(12):
        rng = np.random.default_rng(seed)
        sizes = power_law_sizes(num_clients, TEN_CLASSES.size, rng, 12, exponent=0.8)
        held = classes_held(TEN_CLASSES, by_classes(TEN_CLASSES, sizes, limits, rng))
        assert held.min() >= limits[0]
        assert held.max() <= limits[1]


def test_sizes_and_numbers_of_classes_are_matched_at_random():
    held, sizes = [], []
    for seed in range(80):
        rng = np.random.default_rng(seed)
        sizes.append(power_law_sizes(40, 1500, rng, 10))
        held.append(classes_held(TEN_CLASSES, by_classes(TEN_CLASSES, sizes[-1], (1, 10), rng)))
    often = np.bincount(np.concatenate(held), minlength=11)[1:]
    assert np.abs(often / often.sum() - 0.1).max() < 0.03, "each number of classes is as likely as any other"
    ranks = np.argsort(np.argsort(np.concatenate(sizes)))
    assert abs(np.corrcoef(ranks, np.concatenate(held))[0, 1]) < 0.06


def test_a_client_too_large_for_its_classes_gets_as_many_as_it_needs():
    labels = np.repeat(np.arange(3), 10)
    held = classes_held(labels, by_classes(labels, np.array([25, 1, 1]), (1, 3), np.random.default_rng(0)))
    assert held[0] == 3


@pytest.mark.parametrize("concentration", [1e-300, 1e-3, 0.5, 1e6])
@pytest.mark.parametrize(("num_clients", "total"), [(1, 10), (40, 6000), (500, 500), (3, 4000)])
def test_dirichlet_splits_are_exact(concentration, num_clients, total):
    partition = dirichlet(TEN_CLASSES, num_clients, total, concentration, np.random.default_rng(3))
    classes_held(TEN_CLASSES, partition)
    assert partition.order.size == total
    assert partition.offsets.size == num_clients + 1


def test_the_concentration_says_how_many_clients_share_a_class():
    held = [
        classes_held(TEN_CLASSES, dirichlet(TEN_CLASSES, 40, 6000, c, np.random.default_rng(1))).mean()
        for c in (0.01, 0.1, 1.0, 100.0)
    ]
    assert held == sorted(held)
    assert held[0] < 2
    assert held[-1] == 10


def test_clients_are_alike_in_an_iid_split():
    labels = np.repeat(np.arange(4), [4000, 3000, 2000, 1000])
    sizes = np.array([5000, 2000, 1000])
    order, offsets = partition = iid(labels, sizes, np.random.default_rng(2))
    classes_held(labels, partition)
    np.testing.assert_array_equal(np.diff(offsets), sizes)
    for start, end in itertools.pairwise(offsets):
        share = np.bincount(labels[order[start:end]]) / (end - start)
        np.testing.assert_allclose(share, [0.4, 0.3, 0.2, 0.1], atol=0.05)


def splits(seed):
    rng = np.random.default_rng(seed)
    sizes = power_law_sizes(20, 3000, rng, 10)
    yield by_classes(TEN_CLASSES, sizes, (1, 6), rng)
    yield dirichlet(TEN_CLASSES, 20, 3000, 0.5, rng)
    yield iid(TEN_CLASSES, sizes, rng)


def test_a_seed_gives_its_split_and_another_seed_another():
    for first, again, other in zip(splits(0), splits(0), splits(1), strict=True):
        np.testing.assert_array_equal(first.order, again.order)
        np.testing.assert_array_equal(first.offsets, again.offsets)
        assert (first.order != other.order).any()


def test_samples_of_a_client_come_in_random_order():
    order, _ = by_classes(TEN_CLASSES, np.array([3000, 3000]), (10, 10), np.random.default_rng(0))
    changes = np.count_nonzero(np.diff(TEN_CLASSES[order[:3000]]))
    assert changes > 2500, "sorted by class there would be 9"


@pytest.mark.parametrize(
    ("split", "said"),
    [
        (lambda rng: power_law_sizes(5, 4, rng), "each of the 5 clients at least 1, got 4 samples; take more samples"),
        (lambda rng: power_law_sizes(0, 4, rng), "num_clients must be a whole number"),
        (lambda rng: power_law_sizes(2, 4, rng, exponent=0), "exponent must be positive"),
        (lambda rng: dirichlet(TEN_CLASSES, 50, 40, 0.5, rng), "each of the 50 clients at least 1, got 40"),
        (lambda rng: dirichlet(TEN_CLASSES, 5, 40, 0.0, rng), "concentration must be positive"),
        (lambda rng: dirichlet(TEN_CLASSES, 5, 9, 0.5, rng), "a sample of each of the 10 classes, got 9"),
        (lambda rng: iid(TEN_CLASSES, np.array([6001]), rng), "at most the 6000 samples of the data, got 6001"),
        (lambda rng: by_classes(TEN_CLASSES, np.array([50] * 9), (1, 1), rng), "able to hold all 10 classes, got 9"),
        (lambda rng: by_classes(TEN_CLASSES, np.array([50] * 9), (1, 11), rng), "the 10 classes of the data, got 1 to"),
        (lambda rng: by_classes(TEN_CLASSES, np.array([50] * 9), (3, 2), rng), "got 3 to 2"),
        (
            lambda rng: by_classes(TEN_CLASSES, np.array([50] * 9), (0, 2), rng),
            "classes must be a whole number of at least 1, got 0",
        ),
        (lambda rng: by_classes(TEN_CLASSES, np.array([50, 2]), (5, 10), rng), "at least 5 classes, got a client of 2"),
        (lambda rng: by_classes(TEN_CLASSES, np.array([2000] + [9] * 9), (1, 2), rng), "a client of 2000 samples"),
    ],
)
def test_what_cannot_be_split_is_refused(split, said):
    with pytest.raises(InputError, match=said) as caught:
        split(np.random.default_rng(0))
    assert "\n" not in str(caught.value)


def test_one_client_and_one_class():
    rng = np.random.default_rng(0)
    only = np.zeros(5, dtype=np.int64)
    for partition in (by_classes(only, np.array([3]), (1, 1), rng), dirichlet(only, 1, 3, 1.0, rng)):
        assert partition.order.size == 3
    assert iid(only, np.array([5]), rng).order.size == 5


def test_a_thousand_clients_take_well_under_a_second():
    labels = np.repeat(np.arange(10), 6000)
    rng = np.random.default_rng(0)
    started = time.perf_counter()
    by_classes(labels, power_law_sizes(1000, 60_000, rng, 6), (1, 6), rng)
    dirichlet(labels, 1000, 60_000, 0.1, rng)
    assert time.perf_counter() - started < 2.0
