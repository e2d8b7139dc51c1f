"""Pictures of splits: of few and of many clients, with classes and without."""

import io

import numpy as np
import pytest

from fedtempo.data.federation import FederatedData
from fedtempo.data.split_page import page_of

pytest.importorskip("matplotlib")


def described(clients, num_classes, split="dirichlet"):
    size = max(300, 3 * clients)
    labels = np.arange(size) % num_classes if num_classes else np.linspace(0, 1, size)
    return FederatedData.from_arrays(np.zeros((size, 1)), labels, clients=clients, split=split, name="<b>").describe()


@pytest.mark.parametrize(("clients", "num_classes"), [(1, 1), (1, 3), (10, 10), (100, 2), (2000, 62)])
def test_every_client_has_a_column(clients, num_classes):
    summary = described(clients, num_classes)
    sizes, classes = summary.plot().axes[:2]
    assert len(sizes.patches) == min(clients, 1200)
    shares = classes.collections[0].get_array()
    assert shares.shape == (num_classes, min(clients, 1200))
    np.testing.assert_allclose(shares.sum(axis=0), 1)
    weights = np.diff(np.append(np.arange(1200) * clients // 1200, clients)) if clients > 1200 else np.ones(clients)
    np.testing.assert_allclose(np.sum([bar.get_height() for bar in sizes.patches] * weights), summary.sizes.sum())


def test_without_classes_there_are_sizes_alone():
    (axes,) = described(40, 0, "quantity").plot().axes
    heights = [bar.get_height() for bar in axes.patches]
    assert heights == sorted(heights, reverse=True)


def test_all_formats_and_a_page():
    summary = described(5, 3)
    for ending in ("png", "svg", "pdf"):
        stream = io.BytesIO()
        summary.plot().savefig(stream, format=ending)
        assert len(stream.getvalue()) > 1000
    page = page_of(summary)
    assert "<svg" in page
    assert "<table" in page
    assert "<b>" not in page, "names are escaped"
    assert "http" not in page.replace("http://www.w3.org", "").replace("https://matplotlib.org", "").replace(
        "http://purl.org", ""
    ).replace("http://creativecommons.org", ""), "it needs no other file"
