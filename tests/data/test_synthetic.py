"""Synthetic(α, β): the distributions of Li et al., and totals that are exact."""

import numpy as np
import pytest

from fedtempo.checks import InputError
from fedtempo.data.synthetic import synthetic_data, synthetic_sizes

SETUP = {"alpha": 1.0, "beta": 1.0, "num_clients": 100, "num_samples": 20_509, "seed": 0}


def client_means(data):
    return np.add.reduceat(data.inputs, data.offsets[:-1], dtype=np.float64) / data.sizes[:, np.newaxis]


def test_setup_2_has_its_clients_and_its_total():
    data = synthetic_data(**SETUP)
    assert (data.num_clients, len(data.inputs), len(data.test_inputs)) == (100, 20_509, 2051)
    assert (data.num_classes, data.input_shape, data.name) == (10, (60,), "Synthetic(1, 1)")
    assert data.sizes.min() >= 50
    assert data.sizes.max() > 10 * np.median(data.sizes)


def test_inputs_have_the_variance_of_the_model():
    data = synthetic_data(**(SETUP | {"num_samples": 40_000}))
    own_mean = np.repeat(client_means(data), data.sizes, axis=0)
    within = ((data.inputs - own_mean) ** 2).sum(axis=0) / (len(data.inputs) - data.num_clients)
    np.testing.assert_allclose(within, np.arange(1, 61) ** -1.2, rtol=0.05)


def test_centres_have_the_spread_of_the_model():
    data = synthetic_data(**(SETUP | {"num_clients": 400, "num_samples": 20_000, "beta": 2.0}))
    means = client_means(data)
    # v_kj ~ N(B_k, 1) with B_k ~ N(0, β): features vary by 1 around their client's B, and these by β around 0.
    assert means.var(axis=1, ddof=1).mean() == pytest.approx(1.0, abs=0.05)
    assert means.mean(axis=1).std() == pytest.approx(2.0, rel=0.1)


def test_labels_come_from_a_linear_model_of_each_client():
    data = synthetic_data(**SETUP)
    largest = data.sizes.argmax()
    inputs, labels = data.client(int(largest))
    with_bias = np.hstack([inputs, np.ones((len(inputs), 1))]).astype(np.float64)
    # The logits of the true model separate the classes; least squares on one-hot labels finds most of them.
    model = np.linalg.lstsq(with_bias, np.eye(10)[labels], rcond=None)[0]
    own = ((with_bias @ model).argmax(axis=1) == labels).mean()
    other_inputs, other_labels = data.client(int(np.argsort(data.sizes)[-2]))
    other = ((np.hstack([other_inputs, np.ones((len(other_inputs), 1))]) @ model).argmax(axis=1) == other_labels).mean()
    assert own > 0.8
    assert other < 0.5


def test_beta_makes_clients_differ_and_alpha_changes_no_label():
    plain, spread, shifted = (
        synthetic_data(**(SETUP | {"alpha": alpha, "beta": beta})) for alpha, beta in ((0, 0), (0, 3), (3, 0))
    )
    assert client_means(spread).mean(axis=1).std() > 3 * client_means(plain).mean(axis=1).std()
    np.testing.assert_array_equal(shifted.inputs, plain.inputs)
    # u_k adds the same to the logit of each class.
    np.testing.assert_array_equal(shifted.labels, plain.labels)


def test_test_data_comes_from_the_same_clients_and_leaves_the_rest_alone():
    data, more = synthetic_data(**SETUP), synthetic_data(**SETUP, test_share=0.5)
    np.testing.assert_array_equal(data.inputs, more.inputs)
    np.testing.assert_array_equal(data.labels, more.labels)
    assert len(more.test_inputs) == round(0.5 * 20_509)
    share, test_share = (np.bincount(labels) / labels.size for labels in (more.labels, more.test_labels))
    np.testing.assert_allclose(share, test_share, atol=0.02)
    assert not np.isin(more.test_inputs[:, 0], more.inputs[:, 0]).all()


def test_a_seed_gives_its_data_and_another_seed_other_data():
    assert synthetic_data(**SETUP).checksum() == synthetic_data(**SETUP).checksum()
    assert synthetic_data(**SETUP).checksum() != synthetic_data(**(SETUP | {"seed": 1})).checksum()


@pytest.mark.parametrize(
    ("num_clients", "total"), [(1, 1), (10, 10), (10, 19), (7, 1000), (100, 20_509), (1000, 10**6)]
)
def test_sizes_sum_to_the_total(num_clients, total):
    for seed in range(20):
        sizes = synthetic_sizes(num_clients, total, np.random.default_rng(seed))
        assert sizes.sum() == total
        assert sizes.min() >= max(1, min(50, total // (2 * num_clients)))


def test_few_clients_are_drawn_until_each_class_is_held():
    for seed in range(5):
        data = synthetic_data(alpha=1, beta=1, num_clients=6, num_samples=600, seed=seed)
        assert np.unique(data.labels).size == 10


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"num_clients": 1, "num_samples": 100}, "each of the 10 classes must be held by a client, got no sample of"),
        ({"num_samples": 99}, "each of the 100 clients at least 1, got 99 samples"),
        ({"num_clients": 0}, "num_clients must be a whole number"),
        ({"num_samples": 1.5}, "num_samples must be a whole number"),
        ({"alpha": -1.0}, "alpha must be zero or positive"),
        ({"beta": np.nan}, "beta must be zero or positive"),
        ({"test_share": 0.0}, "test_share must be positive"),
    ],
)
def test_what_breaks_a_rule_is_refused(changes, said):
    with pytest.raises(InputError, match=said) as caught:
        synthetic_data(**(SETUP | changes))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("clients", "samples", "remedy"),
    [(1, 200, "take more clients"), (1, 20, "take more samples or more clients"), (10, 10, "take more samples")],
)
def test_who_has_too_few_classes_is_told_what_helps(clients, samples, remedy):
    with pytest.raises(InputError, match=f"got no sample of class .* in 200 draws; {remedy}$"):
        synthetic_data(alpha=1.0, beta=1.0, num_clients=clients, num_samples=samples, seed=0)
