"""The sets as they are where they come from; downloads, where FEDTEMPO_NETWORK=1 allows them."""

import hashlib
import os

import numpy as np
import pytest

from fedtempo.data import sources
from fedtempo.data.images import load_cifar10, load_fashion_mnist
from fedtempo.data.plays import read_roles
from fedtempo.data.shakespeare import SHORTEST_TEXT
from fedtempo.data.sources import fetch

pytestmark = pytest.mark.skipif(
    os.environ.get("FEDTEMPO_NETWORK") != "1", reason="downloads 190 MB; set FEDTEMPO_NETWORK=1 to run it"
)


def test_the_real_mnist_can_be_fetched(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDTEMPO_CACHE", str(tmp_path / "cache"))
    for path in sorted(fetch("mnist").iterdir()):
        assert hashlib.md5(path.read_bytes()).hexdigest() == sources.OFFICIAL_MD5[path.name]


@pytest.mark.parametrize("dataset", ["fashion-mnist", "cifar10", "shakespeare"])
def test_the_real_sets_can_be_fetched(tmp_path, monkeypatch, dataset):
    monkeypatch.setenv("FEDTEMPO_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("FEDTEMPO_DATA", raising=False)
    assert sources.ORIGINS[dataset].is_unharmed(fetch(dataset))
    if dataset == "shakespeare":
        roles, official = read_roles()
        assert official
        assert sum(len(role.text) >= SHORTEST_TEXT for role in roles) == 801
        return
    images = {"cifar10": load_cifar10, "fashion-mnist": load_fashion_mnist}[dataset]()
    each = len(images.train_labels) // 10, len(images.test_labels) // 10
    assert each == ((5_000, 1_000) if dataset == "cifar10" else (6_000, 1_000))
    assert (np.bincount(images.train_labels) == each[0]).all()
    assert (np.bincount(images.test_labels) == each[1]).all()
    if dataset == "cifar10":
        colours = images.train_images.swapaxes(0, 1).reshape(3, -1) / np.float32(255)
        np.testing.assert_allclose(colours.mean(axis=1, dtype=np.float64), [0.4914, 0.4822, 0.4465], atol=5e-5)
        np.testing.assert_allclose(colours.std(axis=1, dtype=np.float64), [0.2470, 0.2435, 0.2616], atol=5e-5)
