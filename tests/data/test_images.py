"""Image sets: small ones made here, and the real ones where this machine has them."""

from dataclasses import replace

import numpy as np
import pytest

from fedtempo.checks import InputError
from fedtempo.data.images import image_data, load_emnist, load_emnist_or_mnist, load_mnist
from fedtempo.data.sources import SETS, find
from support.idx_files import write_idx


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Return the folder that data is looked for in, with an empty cache beside it."""
    monkeypatch.setenv("FEDTEMPO_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("FEDTEMPO_CACHE", str(tmp_path / "cache"))
    return tmp_path / "data"


def write_set(folder, dataset, train_labels, test_labels, shape=(5, 4)):
    """Write a set of random images whose first pixel is their label, and return all images."""
    rng = np.random.default_rng(7)
    files, written = iter(SETS[dataset].files), []
    for labels in (train_labels, test_labels):
        images = rng.integers(0, 256, (len(labels), *shape))
        images[:, 0, 0] = labels
        write_idx(folder / next(files), images)
        write_idx(folder / f"{next(files)}.gz", np.asarray(labels), compressed=True)
        written.append(images)
    return np.concatenate(written)


def write_digits(folder, each=60):
    return write_set(folder / "mnist", "mnist", np.repeat(np.arange(10), each), np.arange(10).repeat(3))


def write_letters(folder, letters="abcdefghik", each=20):
    """Write letters, half of them in the files for testing, beside some digits and capitals."""
    labels = np.repeat([36 + ord(letter) - ord("a") for letter in letters], each // 2)
    return write_set(folder / "emnist", "emnist", [*labels, 0, 3, 20, 61], [*labels, 9, 11])


@pytest.mark.parametrize("partition", ["classes", "dirichlet", "iid", "quantity"])
def test_images_are_split_among_clients(folder, partition):
    written = write_digits(folder)
    data = image_data(dataset="mnist", num_clients=12, num_samples=500, classes=(1, 4), partition=partition, seed=0)
    assert (data.num_clients, len(data.inputs), data.num_classes) == (12, 500, 10)
    assert data.input_shape == (1, 5, 4)
    assert data.name == "partial MNIST"
    assert 0 <= data.inputs.min() < data.inputs.max() <= 1
    np.testing.assert_array_equal(np.rint(data.inputs[:, 0] * 255), data.labels)
    known = {image.tobytes() for image in written[:600].reshape(600, -1)}
    used = [row.tobytes() for row in np.rint(data.inputs * 255).astype(written.dtype)]
    assert set(used) <= known
    assert len(set(used)) == 500
    np.testing.assert_array_equal(data.test_labels, np.arange(10).repeat(3))
    if partition == "classes":
        assert max(np.unique(data.client(i)[1]).size for i in range(12)) <= 4


def test_a_seed_gives_its_split_and_another_seed_another(folder):
    write_digits(folder)
    first, again, other = (
        image_data(dataset="mnist", num_clients=12, num_samples=500, classes=(1, 4), seed=seed).checksum()
        for seed in (0, 0, 1)
    )
    assert first == again != other


def test_letters_are_chosen_pooled_and_turned_upright(folder):
    written = write_letters(folder)
    images = load_emnist()
    assert images.name == "partial EMNIST, letters a-i and k"
    assert images.train_images.shape == (170, 4, 5)
    np.testing.assert_array_equal(np.bincount(images.train_labels), np.full(10, 17))
    np.testing.assert_array_equal(np.bincount(images.test_labels), np.full(10, 3))
    upright = {image.T.astype(np.uint8).tobytes() for image in written}
    everything = [image.tobytes() for image in (*images.train_images, *images.test_images)]
    assert set(everything) <= upright
    assert len(set(everything)) == 200, "no image is both trained and tested on"
    characters = np.array([*range(36, 45), 46])
    np.testing.assert_array_equal(images.train_images[:, 0, 0], characters[images.train_labels])


def test_held_out_letters_do_not_depend_on_the_seed(folder):
    write_letters(folder)
    first, other = (image_data(dataset="emnist-letters", num_clients=5, num_samples=100, seed=s) for s in (0, 1))
    np.testing.assert_array_equal(first.test_inputs, other.test_inputs)
    assert (first.inputs != other.inputs).any()


def test_the_number_of_samples_is_a_ceiling(folder):
    write_letters(folder)
    data = image_data(dataset="emnist-letters", num_clients=5, num_samples=33_036, seed=0)
    assert len(data.inputs) == 170
    assert data.name == "partial EMNIST, letters a-i and k, 170 samples"
    assert image_data(dataset="emnist-letters", num_clients=5, num_samples=170, seed=0).name.endswith("a-i and k")


@pytest.mark.parametrize(
    ("letters", "named"),
    [("abcdefghijklm", "a-j"), ("bdefgjklmnoz", "b, d-g and j-n"), ("acegikmoqsz", "a, c, e, g, i, k, m, o, q and s")],
)
def test_the_first_ten_letters_are_taken(folder, letters, named):
    write_letters(folder, letters)
    assert load_emnist().name == f"partial EMNIST, letters {named}"


def test_more_letters_are_as_many_as_there_are(folder):
    write_letters(folder, "abcdefghijklm")
    assert load_emnist(26).name == "partial EMNIST, letters a-m"
    assert load_emnist(26).num_classes == 13
    assert load_emnist(2).num_classes == 2


def test_official_sizes_keep_the_official_test_images(folder, monkeypatch):
    write_letters(folder)
    monkeypatch.setitem(SETS, "emnist", replace(SETS["emnist"], official_sizes=(104, 102)))
    images = load_emnist()
    assert images.name == "EMNIST, letters a-i and k"
    assert (images.train_labels.size, images.test_labels.size) == (100, 100)


def test_without_emnist_there_is_mnist_under_its_own_name(folder):
    write_digits(folder)
    data = image_data(dataset="emnist-letters-or-mnist", num_clients=4, num_samples=100, seed=0)
    assert data.name == "partial MNIST instead of EMNIST"
    write_letters(folder)
    assert load_emnist_or_mnist().name == "partial EMNIST, letters a-i and k"


def test_an_incomplete_emnist_is_not_taken_for_none(folder):
    write_digits(folder)
    write_letters(folder)
    (folder / "emnist" / "emnist-byclass-test-images-idx3-ubyte").unlink()
    with pytest.raises(InputError, match=r"EMNIST must .* got no emnist-byclass-test-images-idx3-ubyte beside"):
        load_emnist_or_mnist()


def test_where_there_is_neither_both_commands_are_named(folder):
    with pytest.raises(InputError, match="run: fedtempo fetch emnist, or fedtempo fetch mnist to take MNIST instead"):
        load_emnist_or_mnist()
    write_digits(folder)
    (folder / "mnist" / "train-images-idx3-ubyte").unlink()
    with pytest.raises(InputError, match=r"^MNIST must .* got no train-images-idx3-ubyte beside"):
        load_emnist_or_mnist()


def test_files_of_the_official_size_must_be_the_official_ones(folder, monkeypatch):
    write_digits(folder)
    monkeypatch.setitem(SETS, "mnist", replace(SETS["mnist"], official_sizes=(600, 30)))
    with pytest.raises(InputError, match="train-images-idx3-ubyte must have the MD5 6bbc9ace"):
        load_mnist()


@pytest.mark.parametrize(
    ("train", "test", "said"),
    [
        ([0, 1, 10], [0], "labels of partial MNIST must lie between 0 and 9, got 10"),
        ([0, 1, 2], [], "images for testing with a label each"),
        ([0, 1, 2], [0], "got no sample of class 3"),
    ],
)
def test_wrong_sets_are_refused(folder, train, test, said):
    write_set(folder, "mnist", train, test)
    with pytest.raises(InputError, match=said):
        image_data(dataset="mnist", num_clients=2, num_samples=3, classes=(1, 2), seed=0)


def test_images_and_labels_that_do_not_go_together_are_refused(folder):
    write_digits(folder)
    write_idx(folder / "mnist" / "train-labels-idx1-ubyte", np.zeros(5))
    with pytest.raises(InputError, match=r"with a label each, got shapes \(600, 5, 4\) and \(5,\)"):
        load_mnist()
    write_digits(folder)
    (folder / "mnist" / "train-labels-idx1-ubyte").unlink()
    write_idx(folder / "mnist" / "t10k-images-idx3-ubyte", np.zeros((30, 4, 5)))
    with pytest.raises(InputError, match="images of one size"):
        load_mnist()


def test_too_few_letters_are_refused(folder):
    write_letters(folder, "abc")
    with pytest.raises(InputError, match="must have 10 lower-case letters, got 3"):
        load_emnist()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"dataset": "cifar"}, "dataset must be one of mnist, fashion-mnist, cifar10, emnist-letters, "),
        ({"partition": "random"}, "partition must be one of classes, dirichlet, iid"),
        ({"num_clients": 0}, "num_clients must be a whole number"),
        ({"num_samples": 0}, "num_samples must be a whole number"),
        ({"num_samples": 11}, "each of the 12 clients at least 1, got 11 samples"),
        ({"classes": (1, 11)}, "between 1 and the 10 classes of the data, got 1 to 11"),
        ({"partition": "dirichlet", "concentration": -1}, "concentration must be positive"),
    ],
)
def test_what_breaks_a_rule_is_refused(folder, changes, said):
    write_digits(folder)
    with pytest.raises(InputError, match=said) as caught:
        image_data(**({"dataset": "mnist", "num_clients": 12, "num_samples": 500, "seed": 0} | changes))
    assert "\n" not in str(caught.value)


def need(dataset):
    try:
        find(dataset)
    except InputError as error:
        pytest.skip(str(error))


def test_setup_3_on_the_real_mnist():
    need("mnist")
    data = image_data(dataset="mnist", num_clients=100, num_samples=15_129, classes=(1, 6), seed=0)
    assert (data.num_clients, len(data.inputs), len(data.test_inputs)) == (100, 15_129, 10_000)
    assert (data.input_shape, data.name) == ((1, 28, 28), "MNIST")
    held = [np.unique(data.client(client)[1]).size for client in range(100)]
    assert (min(held), max(held)) == (1, 6)


def test_setup_1_on_the_real_emnist():
    need("emnist")
    data = image_data(dataset="emnist-letters", num_clients=40, num_samples=33_036, seed=0)
    assert data.num_clients == 40
    assert data.input_shape == (1, 28, 28)
    assert "EMNIST, letters a-" in data.name
    assert len(data.inputs) == 33_036 or f"{len(data.inputs):,} samples" in data.name
    letter_i = data.inputs[data.labels == 8].mean(axis=0).reshape(28, 28)
    rows, columns = letter_i.sum(axis=1), letter_i.sum(axis=0)
    assert rows.std() < columns.std(), "upright, the strokes of an i are vertical"


def test_pixels_may_be_standardised(folder):
    write_digits(folder)
    plain = image_data(dataset="mnist", num_clients=3, num_samples=90, classes=(1, 10), seed=0)
    even = image_data(dataset="mnist", num_clients=3, num_samples=90, classes=(1, 10), seed=0, standardise=True)
    assert even.inputs.mean() == pytest.approx(0, abs=1e-5)
    assert even.inputs.std() == pytest.approx(1, rel=1e-4)
    mean, deviation = plain.inputs.mean(dtype=float), plain.inputs.std(dtype=float)
    np.testing.assert_allclose(even.test_inputs, (plain.test_inputs - mean) / deviation, atol=1e-5)
    np.testing.assert_array_equal(even.labels, plain.labels)
