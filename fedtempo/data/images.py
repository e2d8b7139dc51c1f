"""Images of digits, letters, clothes and things, and their split among clients."""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from fedtempo.checks import InputError, Integers, check_choice, check_count
from fedtempo.data import cifar
from fedtempo.data.federation import FederatedData, Inputs
from fedtempo.data.idx import Bytes, parse_idx, read_content, read_idx
from fedtempo.data.partition import CLASSES, CONCENTRATION, SPLITS, SplitName, split_by_name
from fedtempo.data.places import NoFilesError
from fedtempo.data.sources import SETS, check_md5, find
from fedtempo.randomness import stream

__all__ = [
    "LabelledImages", "image_data", "load_cifar10", "load_emnist", "load_emnist_or_mnist", "load_fashion_mnist",
    "load_mnist", "read_idx",
]  # fmt: skip

FIRST_LOWER_CASE = 36  # of the classes of EMNIST: 0-9, A-Z, a-z
NUM_LETTERS = 10
HELD_OUT_SHARE = 0.15


@dataclass(frozen=True, eq=False, slots=True)
class LabelledImages:
    """Bytes of images, (n, height, width) or with channels in between, with labels from 0, for training and testing."""

    train_images: Bytes
    train_labels: Integers
    test_images: Bytes
    test_labels: Integers
    num_classes: int
    name: str
    complete: bool = True  # false: only a part of the set that was asked for, or another in its place

    def __post_init__(self) -> None:
        """Check that images and labels go together."""
        for part, images, labels in (
            ("training", self.train_images, self.train_labels), ("testing", self.test_images, self.test_labels)
        ):  # fmt: skip
            if images.ndim not in (3, 4) or labels.shape != images.shape[:1] or labels.size == 0:
                raise InputError(
                    name=self.name,
                    rule=f"have images for {part} with a label each",
                    got=f"shapes {images.shape} and {labels.shape}",
                )
            outside = labels[(labels < 0) | (labels >= self.num_classes)]
            if outside.size:
                rule = f"lie between 0 and {self.num_classes - 1}"
                raise InputError(name=f"labels of {self.name}", rule=rule, got=f"{outside[0]}")
        if self.train_images.shape[1:] != self.test_images.shape[1:]:
            raise InputError(
                name=self.name,
                rule="have images of one size",
                got=f"{self.train_images.shape[1:]} for training and {self.test_images.shape[1:]} for testing",
            )


def image_data(
    *,
    dataset: Literal["mnist", "emnist-letters", "emnist-letters-or-mnist", "fashion-mnist", "cifar10"],
    num_clients: int,
    num_samples: int,
    seed: int,
    partition: SplitName = "classes",
    classes: tuple[int, int] = CLASSES,
    concentration: float = CONCENTRATION,
    letters: int = NUM_LETTERS,
    standardise: bool = False,
) -> FederatedData:
    """Split a random part of an image set among clients; pixels run from 0 to 1, or have mean 0 and deviation 1.

    ``partition`` is ``classes`` (each client has from lowest to highest ``classes``), ``dirichlet`` (each class is
    split with this ``concentration``), ``iid`` or ``quantity`` (all alike but for their sizes, which are split with
    this ``concentration``). Other sizes follow a power law, except that dirichlet has its own. Where the set has fewer
    than num_samples images for training, all are used and the name says how many. Red, green and blue have mean 0 and
    deviation 1 each.
    """
    check_choice("dataset", dataset, (*LOADERS, *LOADERS_OF_LETTERS))
    check_choice("partition", partition, SPLITS)
    check_count("num_clients", num_clients)
    check_count("num_samples", num_samples)
    check_count("letters", letters)
    images = LOADERS[dataset]() if dataset in LOADERS else LOADERS_OF_LETTERS[dataset](letters)
    labels, rng = images.train_labels, stream(seed, "partition")
    total = min(num_samples, labels.size)
    order, offsets = split_by_name(
        partition, labels, num_clients, total, rng, concentration=concentration, classes=classes
    )  # fmt: skip
    inputs, test_inputs = _pixels(images.train_images[order]), _pixels(images.test_images)
    shape = images.train_images.shape[1:]
    input_shape = shape if len(shape) == 3 else (1, *shape)
    if standardise:
        _standardise(inputs, test_inputs, channels=input_shape[0])
    return FederatedData(
        inputs=inputs, labels=labels[order], offsets=offsets,
        test_inputs=test_inputs, test_labels=images.test_labels,
        num_classes=images.num_classes, input_shape=input_shape,
        name=images.name if total == num_samples else f"{images.name}, {total:,} samples", complete=images.complete,
    )  # fmt: skip


def load_mnist() -> LabelledImages:
    """Load the ten digits of MNIST."""
    return _read_set("mnist")


def load_emnist(letters: int = NUM_LETTERS) -> LabelledImages:
    """Load the first lower-case letters that EMNIST (by class) has, upright and labelled from 0.

    Of the official files ten are a to j, with the official test images. More than ten are as many as there are. Files
    of other sizes are taken as a part of EMNIST: how they split training and testing means little, so both are pooled,
    and 15 % of each letter are held out for testing, the same images whatever the seed of the split.
    """
    everything = _read_set("emnist")
    labels = np.concatenate([everything.train_labels, everything.test_labels])
    held = np.bincount(labels, minlength=everything.num_classes)[FIRST_LOWER_CASE:]
    found = np.flatnonzero(held >= 2)[:letters]  # one image for training, one for testing
    if found.size < min(letters, NUM_LETTERS):
        raise InputError(name=everything.name, rule=f"have {letters} lower-case letters", got=f"{found.size}")
    chosen = _only_letters(everything, found)
    return chosen if everything.complete else _pooled(chosen)


def load_emnist_or_mnist(letters: int = NUM_LETTERS) -> LabelledImages:
    """Load the letters of EMNIST, or MNIST if this machine has no file of EMNIST; the name then says so."""
    try:
        find("emnist")
    except NoFilesError as missing:
        try:
            mnist = load_mnist()
        except NoFilesError:
            remedy = f"{missing.remedy}, or fedtempo fetch mnist to take MNIST instead"
            raise NoFilesError(missing.name, missing.rule, missing.got, remedy) from None
        return replace(mnist, name=f"{mnist.name} instead of EMNIST", complete=False)
    return load_emnist(letters)


def load_fashion_mnist() -> LabelledImages:
    """Load the ten kinds of clothes of Fashion-MNIST."""
    return _read_set("fashion-mnist")


def load_cifar10() -> LabelledImages:
    """Load the ten kinds of animals and vehicles of CIFAR-10."""
    read = cifar.read_cifar10()
    return LabelledImages(
        read.train_images, read.train_labels, read.test_images, read.test_labels,
        cifar.NUM_CLASSES, "CIFAR-10" if read.official else "partial CIFAR-10", read.official,
    )  # fmt: skip


LOADERS = {"mnist": load_mnist, "fashion-mnist": load_fashion_mnist, "cifar10": load_cifar10}
LOADERS_OF_LETTERS = {"emnist-letters": load_emnist, "emnist-letters-or-mnist": load_emnist_or_mnist}


def _read_set(dataset: str) -> LabelledImages:
    """Read the four files of a set. Files of other sizes than the official ones are a part of it, and named so."""
    image_set = SETS[dataset]
    arrays = []
    for path, name, size in zip(find(dataset), image_set.files, np.repeat(image_set.official_sizes, 2), strict=True):
        content = read_content(path)
        arrays.append(parse_idx(path, content))
        # Of the official size, but with other bytes, a file is damaged or belongs to another set.
        official_name = image_set.official_name(name)
        if len(arrays[-1]) == size and official_name is not None:
            check_md5(official_name, content)
    train_images, train_labels, test_images, test_labels = arrays
    official = (len(train_images), len(test_images)) == image_set.official_sizes
    return LabelledImages(
        train_images, train_labels.astype(np.int64), test_images, test_labels.astype(np.int64),
        image_set.num_classes, image_set.title if official else f"partial {image_set.title}", official,
    )  # fmt: skip


def _only_letters(everything: LabelledImages, letters: Integers) -> LabelledImages:
    """Keep some lower-case letters, labelled from 0, and turn them upright: EMNIST stores images transposed."""
    new_label = np.full(everything.num_classes, -1)
    new_label[FIRST_LOWER_CASE + letters] = np.arange(letters.size)

    def chosen(images: Bytes, labels: Integers) -> tuple[Bytes, Integers]:
        rows = np.flatnonzero(new_label[labels] >= 0)
        return images[rows].swapaxes(1, 2), new_label[labels[rows]]

    return LabelledImages(
        *chosen(everything.train_images, everything.train_labels),
        *chosen(everything.test_images, everything.test_labels),
        letters.size, f"{everything.name}, letters {_in_words(letters)}", everything.complete,
    )  # fmt: skip


def _pooled(images: LabelledImages) -> LabelledImages:
    """Pool the images for training and testing, and hold out a share of each class for testing."""
    everything = np.concatenate([images.train_images, images.test_images])
    labels = np.concatenate([images.train_labels, images.test_labels])
    rng = stream(0, "held out")
    held_out = np.zeros(labels.size, dtype=bool)
    for label in range(images.num_classes):
        rows = rng.permutation(np.flatnonzero(labels == label))
        held_out[rows[: max(1, round(HELD_OUT_SHARE * rows.size))]] = True
    return replace(
        images,
        train_images=everything[~held_out],
        train_labels=labels[~held_out],
        test_images=everything[held_out],
        test_labels=labels[held_out],
    )


def _in_words(letters: Integers) -> str:
    """Return letters, numbered from 0 for a, as a reader would name them: "a-i and k"."""
    runs = np.split(letters, np.flatnonzero(np.diff(letters) > 1) + 1)
    ends = [(chr(ord("a") + run[0]), chr(ord("a") + run[-1])) for run in runs]
    words = [first if first == last else f"{first}-{last}" for first, last in ends]
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def _pixels(images: Bytes) -> Inputs:
    """Return each image as a line of numbers from 0 to 1."""
    pixels: Inputs = images.reshape(len(images), -1).astype(np.float32)
    pixels /= 255
    return pixels


def _standardise(inputs: Inputs, test_inputs: Inputs, *, channels: int) -> None:
    """Give each channel mean 0 and deviation 1 over the images for training, in place."""
    width = inputs.shape[1] // channels
    for part in (slice(first, first + width) for first in range(0, inputs.shape[1], width)):
        mean, deviation = inputs[:, part].mean(dtype=np.float64), inputs[:, part].std(dtype=np.float64)
        for pixels in (inputs, test_inputs):
            pixels[:, part] -= np.float32(mean)
            pixels[:, part] /= np.float32(deviation)
