"""Arrays of somebody's own: every sample once, no empty client, the same split from the same seed."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedtempo.checks import InputError
from fedtempo.data.federation import FederatedData
from fedtempo.data.partition import SPLITS

SAMPLES = 200


def samples(size=SAMPLES, num_classes=4, seed=0):
    """Return inputs whose only number is that of the sample, and classes that all occur."""
    labels = np.concatenate([np.arange(num_classes), np.random.default_rng(seed).integers(0, num_classes, size)])
    return np.arange(size, dtype=np.float64).reshape(-1, 1), labels[:size]


def check_rows(data, inputs, labels):
    """Check that each sample is in one place, with its label."""
    used = np.concatenate([data.inputs, data.test_inputs])[:, 0].astype(int)
    assert np.unique(used).size == used.size
    np.testing.assert_array_equal(np.concatenate([data.labels, data.test_labels]), labels[used])
    return used


@settings(max_examples=80, deadline=None)
@given(
    split=st.sampled_from(SPLITS),
    size=st.integers(40, 300),
    clients=st.integers(1, 25),
    num_classes=st.integers(1, 5),
    share=st.floats(0.01, 0.3),
    concentration=st.sampled_from([1e-3, 0.1, 0.5, 100.0]),
    seed=st.integers(0, 5),
)
def test_every_sample_is_used_once_and_no_client_is_empty(
    split, size, clients, num_classes, share, concentration, seed
):
    inputs, labels = samples(size, num_classes, seed)
    settings = {"clients": clients, "split": split, "concentration": concentration, "seed": seed, "test": share}
    data = FederatedData.from_arrays(inputs, labels, **settings)
    assert check_rows(data, inputs, labels).size == size
    assert data.num_clients == clients
    assert data.sizes.min() >= 1
    assert abs(len(data.test_inputs) - max(1, round(share * size))) <= num_classes
    assert FederatedData.from_arrays(inputs, labels, **settings).checksum() == data.checksum()


@settings(max_examples=40, deadline=None)
@given(owner=st.lists(st.integers(0, 9), min_size=20, max_size=150).map(np.array), seed=st.integers(0, 5))
def test_given_owners_are_kept(owner, seed):
    owner = np.unique(owner, return_inverse=True)[1]
    inputs, labels = samples(owner.size, 3, seed)
    data = FederatedData.from_arrays(inputs, labels, split=owner, seed=seed)
    assert check_rows(data, inputs, labels).size == owner.size
    for client in range(data.num_clients):
        rows = data.client(client)[0][:, 0].astype(int)
        assert (owner[rows] == client).all()
        assert rows.size >= 1
        assert (np.diff(rows) > 0).all(), "in the order in which they were given"


@pytest.mark.parametrize("split", SPLITS)
def test_another_seed_is_another_split(split):
    first, other = (FederatedData.from_arrays(*samples(), clients=5, split=split, seed=seed) for seed in (0, 1))
    assert first.checksum() != other.checksum()


def test_test_samples_are_of_all_classes_alike():
    labels = np.repeat([0, 1, 2], [100, 200, 100])
    data = FederatedData.from_arrays(np.zeros((400, 1)), labels, clients=3, test=0.25)
    np.testing.assert_array_equal(np.bincount(data.test_labels), [25, 50, 25])
    assert len(data.inputs) == 300


def test_the_last_sample_of_a_class_or_a_client_is_trained_on():
    labels = np.array([0] * 30 + [1])
    assert 1 in FederatedData.from_arrays(np.zeros((31, 1)), labels, clients=2, test=0.9).labels
    for seed in range(20):
        data = FederatedData.from_arrays(np.zeros((31, 1)), labels, split=[range(3), range(3, 31)], test=0.6, seed=seed)
        assert 1 in data.labels
    with pytest.raises(InputError, match=r"test must leave samples for testing, got 0.5 of 3 samples; take a larger"):
        FederatedData.from_arrays(np.zeros((3, 1)), [0, 0, 0], split=[0, 1, 2], test=0.5)


def test_what_nobody_owns_is_not_used():
    inputs, labels = samples(50)
    data = FederatedData.from_arrays(inputs, labels, split=[range(10), range(20, 40)])
    assert set(check_rows(data, inputs, labels)) == {*range(10), *range(20, 40)}
    np.testing.assert_array_equal(data.sizes, [9, 18])


def test_test_data_may_be_given():
    inputs, labels = samples()
    names = np.array(["a", "b", "c", "d"])[labels]
    data = FederatedData.from_arrays(inputs, names, clients=6, test=(inputs[:5] + 1000, names[:5]))
    assert len(data.inputs) == SAMPLES
    np.testing.assert_array_equal(data.test_inputs[:, 0], np.arange(5) + 1000)
    np.testing.assert_array_equal(data.test_labels, labels[:5])
    assert data.class_names == ("a", "b", "c", "d")


def test_splits_are_what_their_names_say():
    labels = np.repeat(np.arange(5), 400)
    inputs = np.zeros((2000, 1))
    made = {name: FederatedData.from_arrays(inputs, labels, clients=20, split=name, classes=(1, 3)) for name in SPLITS}
    held = {name: data.describe().classes_held for name, data in made.items()}
    assert np.ptp(made["iid"].sizes) <= 1
    assert made["quantity"].sizes.max() > 3 * made["quantity"].sizes.mean()
    assert held["iid"].min() == 5
    assert (held["classes"].min(), held["classes"].max()) == (1, 3)
    unlike = {name: data.describe().distance_to_all for name, data in made.items()}
    assert unlike["iid"] < 0.1 < unlike["dirichlet"] < unlike["classes"]


@pytest.mark.parametrize(
    ("split", "checksum"),
    [("classes", "5fbe5d7c"), ("dirichlet", "d00fc6b1"), ("iid", "b67ee75e"), ("quantity", "85d1b4a5")],
)
def test_a_seed_gives_the_split_that_it_gave_before(split, checksum):
    inputs, labels = samples()[0], np.arange(SAMPLES) % 4
    assert FederatedData.from_arrays(inputs, labels, clients=6, split=split, seed=1).checksum().startswith(checksum)


def test_limits_of_classes_above_those_that_there_are_do_no_harm():
    data = FederatedData.from_arrays(*samples(num_classes=2), clients=4, split="classes")
    assert data.num_classes == 2


@pytest.mark.parametrize("split", ["iid", "quantity", np.arange(SAMPLES) % 7])
def test_labels_need_not_be_classes(split):
    inputs, _ = samples()
    clients = 7 if isinstance(split, str) else None
    data = FederatedData.from_arrays(inputs, np.hstack([inputs, -inputs]), clients=clients, split=split)
    assert data.num_classes == 0
    assert data.labels.dtype == np.float32
    np.testing.assert_array_equal(data.labels, np.hstack([data.inputs, -data.inputs]))
    assert data.test_labels.shape == (20, 2)


def test_whole_numbers_may_be_values():
    inputs, _ = samples()
    targets = np.random.default_rng(0).integers(-150, 300, SAMPLES)
    data = FederatedData.from_arrays(inputs, targets, clients=7, split="iid", labels_are="values")
    assert (data.num_classes, data.class_names, data.labels.dtype) == (0, (), np.float32)
    check_rows(data, inputs, targets)
    test = (inputs[:3], [1000, -1000, 0])
    data = FederatedData.from_arrays(inputs, targets, clients=7, split="iid", labels_are="values", test=test)
    np.testing.assert_array_equal(data.test_labels, test[1])
    ranked = FederatedData.from_arrays(inputs, targets, clients=7)
    assert ranked.class_names == tuple(map(str, np.unique(targets))), "what classes were can be read"
    assert f"stand for the labels {', '.join(ranked.class_names[:3])}, …, " in str(ranked.describe())


def test_tokens_stay_whole_numbers():
    text = np.arange(SAMPLES * 8).reshape(SAMPLES, 8) % 50
    data = FederatedData.from_arrays(text, np.roll(text, -1, axis=1), clients=3, split="iid")
    assert data.tokens
    assert {data.inputs.dtype, data.labels.dtype, data.test_inputs.dtype} == {np.dtype(np.int64)}
    assert data.input_shape == (8,)
    np.testing.assert_array_equal(data.labels, np.roll(data.inputs, -1, axis=1))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"split": "dirichlt"}, "split must be one of classes, dirichlet, iid, quantity, the rows .* did you mean"),
        ({"clients": None}, "clients must be given for the split dirichlet, got nothing"),
        ({"clients": 0}, "clients must be a whole number of at least 1"),
        ({"clients": 181}, "clients must be at most the 180 samples for training, got 181"),
        ({"seed": -1}, "seed must be a whole number of at least 0"),
        ({"concentration": 0.0}, "concentration must be positive"),
        ({"split": "quantity", "concentration": -1.0}, "concentration must be positive"),
        ({"split": "classes", "classes": 3}, "classes must be a lowest and a highest number, got 3"),
        ({"split": "classes", "classes": (5, 6)}, "classes must be a lowest and a highest number between 1 and the 4"),
        ({"test": 0}, "test must be a share between 0 and 1, or a pair .inputs, labels., got 0; accuracy is measured"),
        ({"test": 1.0}, "test must be a share"),
        ({"test": True}, "test must be a share"),
        ({"test": "a tenth"}, "test must be a share"),
        ({"test": ([[1.0]],)}, "test must be a share or a pair .inputs, labels., got 1 values"),
        ({"test": ([[1.0, 2.0]], [0])}, "test inputs must be real numbers of the shape .1,. for each"),
        ({"test": ([[1]], [0])}, "got whole numbers of the shape"),
        ({"test": ([[1.0]], [9])}, "test labels must be among labels, got 9 in row 0"),
        (
            {"test": (np.ones((1, 1), np.uint8), [0])},
            "test inputs must be float64, as inputs are, got uint8; bytes are scaled to 0..1, other numbers are not",
        ),
        (
            {"inputs": np.ones((SAMPLES, 1), np.uint8), "test": ([[1.0]], [0])},
            "test inputs must be uint8, as inputs are, got float64",
        ),
        ({"labels": np.zeros(SAMPLES)}, "labels must be one class for each sample in the split dirichlet, got float32"),
        ({"labels": np.zeros(3, int)}, "labels must have one entry for each of the 200 samples, got shape .3,."),
        ({"split": [[0], []]}, "split must have rows for each of the 5 clients, got 2 lists"),
    ],
)
def test_what_breaks_a_rule_gets_one_sentence(changes, said):
    inputs, labels = samples()
    given = {"inputs": inputs, "labels": labels, "clients": 5} | changes
    with pytest.raises(InputError, match=said) as caught:
        FederatedData.from_arrays(given.pop("inputs"), given.pop("labels"), **given)
    assert "\n" not in str(caught.value)
