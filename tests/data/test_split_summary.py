"""What a split looks like, in numbers and as a table."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedtempo.data.federation import FederatedData
from fedtempo.data.split_summary import SplitSummary


def of_counts(counts):
    counts = np.array(counts)
    return SplitSummary("made up", counts.sum(axis=1), 5, counts, tuple(map(str, range(counts.shape[1]))))


def distance(one, other):
    return 0.5 * np.abs(one / one.sum() - other / other.sum()).sum()


@settings(max_examples=60)
@given(
    st.integers(1, 4).flatmap(
        lambda width: st.lists(
            st.lists(st.integers(0, 9), min_size=width, max_size=width).filter(any), min_size=2, max_size=8
        )
    )
)
def test_distances_are_those_of_their_definition(counts):
    summary, table = of_counts(counts), np.array(counts)
    assert summary.distance_to_all == pytest.approx(np.mean([distance(row, table.sum(axis=0)) for row in table]))
    pairs = [distance(one, other) for one, other in itertools.combinations(table, 2)]
    assert summary.distance_of_pairs == pytest.approx(np.mean(pairs), abs=1e-12)


def test_the_extremes_of_distances():
    alike, apart = of_counts([[2, 4], [1, 2]]), of_counts([[3, 0], [0, 3]])
    assert alike.distance_to_all == alike.distance_of_pairs == 0
    assert (apart.distance_to_all, apart.distance_of_pairs) == (0.5, 1.0)
    assert of_counts([[1, 2]]).distance_of_pairs is None


def test_counts_are_those_of_the_data():
    labels = np.array(["cat", "dog"])[np.arange(40) % 2]
    data = FederatedData.from_arrays(np.zeros((40, 1)), labels, split=[range(0, 20, 2), range(20, 40)], test=0.1)
    summary = data.describe()
    assert summary.class_names == ("cat", "dog")
    np.testing.assert_array_equal(summary.counts.sum(axis=1), data.sizes)
    for client in range(2):
        np.testing.assert_array_equal(summary.counts[client], np.bincount(data.client(client)[1], minlength=2))
    assert summary.test_samples == len(data.test_inputs)
    assert summary.facts()["classes_of_clients"] == summary.counts.tolist()
    text = str(summary)
    assert "| samples of a client | 9 | 13.5 | 13.5 | 18 |" in text
    assert "| classes of a client | 1 | 1.5 | 1.5 | 2 |" in text
    assert "How unlike clients are" in text
    assert "Classes 0 to 1 stand for the labels cat, dog." in text
    assert "stand for" not in str(of_counts([[2, 4], [1, 2]]))
    assert "<table" in summary._repr_html_()


def test_where_labels_are_no_classes_sizes_are_known():
    data = FederatedData.from_arrays(np.zeros((40, 1)), np.linspace(0, 1, 40), clients=3, split="iid")
    summary = data.describe()
    assert (summary.counts, summary.distance_to_all, summary.distance_of_pairs, summary.classes_held) == (None,) * 4
    assert "classes of a client" not in str(summary)
    assert "no classes" in str(summary)
    assert summary.facts()["samples_of_clients"] == [12, 12, 12]
