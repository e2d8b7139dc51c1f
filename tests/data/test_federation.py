"""Data of a federation: what is refused, and what it says of its clients."""

import numpy as np
import pytest

from fedtempo.checks import InputError
from fedtempo.data.federation import FederatedData

RIGHT = {
    "inputs": np.arange(10, dtype=np.float32).reshape(5, 2),
    "labels": np.array([0, 1, 2, 0, 1]),
    "offsets": np.array([0, 1, 3, 5]),
    "test_inputs": np.zeros((2, 2), dtype=np.float32),
    "test_labels": np.array([0, 2]),
    "num_classes": 3,
    "input_shape": (2,),
    "name": "five samples",
}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"offsets": [0, 1, 1, 5]}, "at least one sample, got none for client 1; leave the client out"),
        ({"offsets": [0, 3, 1, 5]}, "got none for client 1"),
        ({"offsets": [0, 1, 4]}, "offsets must run from 0 to the 5 samples"),
        ({"offsets": [1, 5]}, "offsets must run from 0"),
        ({"offsets": [0]}, "offsets must run from 0"),
        ({"offsets": [0.0, 5.0]}, "offsets must hold whole numbers, got float64"),
        ({"num_classes": 4}, "each of the 4 classes must be held by a client, got no sample of class 3"),
        ({"labels": [0, 1, 0, 0, 1]}, "got no sample of class 2"),
        ({"labels": [0, 1, 2, 0, 3]}, "labels must lie between 0 and 2, got 3 in row 4"),
        ({"labels": [0, -1, 2, 0, 1]}, "labels must lie between 0 and 2, got -1 in row 1"),
        ({"labels": [0, 1, 2]}, "labels must have one entry for each of the 5 samples"),
        ({"labels": ["a"] * 5}, "labels must hold whole numbers"),
        ({"test_labels": [0, 3]}, "test_labels must lie between 0 and 2"),
        ({"inputs": np.full((5, 2), np.nan)}, "inputs must be finite, got (nan|-?inf) in row 0"),
        ({"inputs": np.zeros((5, 3))}, "for input_shape .2,., 2 columns, got shape .5, 3."),
        ({"inputs": np.zeros((0, 2))}, "a row for each sample"),
        ({"inputs": np.zeros(5)}, "a row for each sample"),
        ({"inputs": [["a", "b"]]}, "inputs must hold numbers"),
        ({"test_inputs": np.zeros((0, 2)), "test_labels": np.zeros(0, int)}, "test_inputs must have a row"),
        ({"test_inputs": [[0, 0], [0, -np.inf]]}, "test_inputs must be finite, got (nan|-?inf) in row 1"),
        ({"num_classes": 0}, "num_classes must be a whole number"),
        ({"input_shape": (2, 0)}, "input_shape must be a whole number"),
    ],
)
def test_what_breaks_a_rule_is_refused(changes, said):
    with pytest.raises(InputError, match=said) as caught:
        FederatedData(**(RIGHT | changes))
    assert "\n" not in str(caught.value)


def test_clients_are_views_of_one_array():
    data = FederatedData(**RIGHT)
    assert data.num_clients == 3
    np.testing.assert_array_equal(data.sizes, [1, 2, 2])
    np.testing.assert_allclose(data.data_share, [0.2, 0.4, 0.4])
    inputs, labels = data.client(1)
    np.testing.assert_array_equal(inputs, [[2, 3], [4, 5]])
    np.testing.assert_array_equal(labels, [1, 2])
    assert np.shares_memory(inputs, RIGHT["inputs"])
    assert repr(data) == "FederatedData(five samples: 5 samples of 3 clients)"
    for outside in (-1, 3):
        with pytest.raises(IndexError, match="between 0 and 2"):
            data.client(outside)


def test_arrays_have_fixed_types_and_cannot_be_changed():
    data = FederatedData(**(RIGHT | {"inputs": np.asfortranarray(RIGHT["inputs"], dtype=np.float64)}))
    assert data.inputs.flags.c_contiguous
    assert {data.inputs.dtype, data.test_inputs.dtype} == {np.dtype(np.float32)}
    assert {data.labels.dtype, data.offsets.dtype, data.test_labels.dtype} == {np.dtype(np.int64)}
    for field in ("inputs", "labels", "offsets", "test_inputs", "test_labels"):
        with pytest.raises(ValueError, match="read-only"):
            getattr(data, field)[0] = 0
    assert RIGHT["labels"].flags.writeable


@pytest.mark.parametrize(
    "changes",
    [
        {"inputs": RIGHT["inputs"] + 1},
        {"labels": RIGHT["labels"][::-1]},
        {"offsets": [0, 2, 3, 5]},
        {"test_inputs": RIGHT["test_inputs"] + 1},
        {"test_labels": [0, 1]},
        {"input_shape": (1, 2)},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_the_checksum_tells_data_apart(changes):
    same = FederatedData(**(RIGHT | {"inputs": RIGHT["inputs"].copy(), "name": "another name"}))
    assert same.checksum() == FederatedData(**RIGHT).checksum()
    assert FederatedData(**(RIGHT | changes)).checksum() != same.checksum()


def test_tokens_and_labels_that_are_no_classes():
    tokens = np.arange(10).reshape(5, 2)
    data = FederatedData(**(RIGHT | {"inputs": tokens, "test_inputs": tokens[:2], "tokens": True}))
    assert {data.inputs.dtype, data.test_inputs.dtype} == {np.dtype(np.int64)}
    assert data.checksum() != FederatedData(**(RIGHT | {"inputs": tokens, "test_inputs": tokens[:2]})).checksum()
    labels = np.arange(10.0).reshape(5, 2)
    data = FederatedData(**(RIGHT | {"labels": labels, "test_labels": labels[:2], "num_classes": 0}))
    assert data.labels.dtype == np.float32
    assert data.client(1)[1].shape == (2, 2)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"tokens": True}, "inputs must hold whole numbers, got float32"),
        ({"num_classes": 0, "labels": [0.5] * 5, "test_labels": [[1.0]] * 2}, "test_labels must have the shape"),
        ({"num_classes": 0, "labels": [0.5] * 4}, "labels must have one entry for each of the 5 samples"),
        ({"num_classes": 0, "labels": [np.nan] * 5}, "labels must be finite, got (nan|-?inf) in row 0"),
        ({"num_classes": 0, "labels": ["a"] * 5}, "labels must hold numbers"),
        ({"num_classes": 0}, "num_classes must be a whole number of at least 1, got 0"),
    ],
)
def test_these_have_rules_too(changes, said):
    with pytest.raises(InputError, match=said):
        FederatedData(**(RIGHT | changes))


def test_the_checksum_has_stayed_what_it_was():
    assert FederatedData(**RIGHT).checksum().startswith("193321c7d78d9f54")
