"""Inputs and labels of any type: what becomes of them, and what is refused."""

import numpy as np
import pytest

from fedtempo.checks import InputError
from fedtempo.data.array_types import owner_numbers, plain_array, typed_inputs, typed_labels


@pytest.mark.parametrize(
    ("given", "shape", "dtype"),
    [
        (np.zeros((3, 5)), (5,), np.float32),
        (np.zeros((3, 8, 9)), (1, 8, 9), np.float32),
        (np.zeros((3, 3, 8, 9)), (3, 8, 9), np.float32),
        (np.zeros((3, 16, 3, 3)), (16, 3, 3), np.float32),
        (np.zeros((3, 2, 3, 4, 5)), (2, 3, 4, 5), np.float32),
        (np.zeros((3, 5), dtype=bool), (5,), np.float32),
        (np.zeros((3, 5), dtype=np.float16), (5,), np.float32),
        (np.zeros((3, 80), dtype=np.int32), (80,), np.int64),
        (np.zeros((3, 8, 9), dtype=np.int64), (8, 9), np.int64),
        ([[1.0, 2.0]] * 3, (2,), np.float32),
        (np.array([None, np.zeros(2), np.ones(2)], dtype=object)[1:], (2,), np.float32),
    ],
)
def test_inputs_become_rows_of_numbers(given, shape, dtype):
    typed = typed_inputs("inputs", given)
    assert typed.shape == shape
    assert typed.rows.dtype == dtype
    assert typed.rows.shape == (len(given), np.prod(shape))
    assert typed.rows.flags.c_contiguous
    assert typed.tokens == (dtype == np.int64)


def test_bytes_are_scaled_and_stay_in_place():
    images = np.arange(2 * 3 * 4, dtype=np.uint8).reshape(2, 3, 4) * 10
    typed = typed_inputs("inputs", images)
    np.testing.assert_allclose(typed.rows.reshape(images.shape), images / 255, rtol=1e-6)


def test_tensors_are_taken_with_a_gradient_too():
    torch = pytest.importorskip("torch")
    typed = typed_inputs("inputs", torch.ones(2, 3, requires_grad=True))
    np.testing.assert_array_equal(typed.rows, np.ones((2, 3)))
    np.testing.assert_array_equal(plain_array("labels", torch.tensor([1, 2])), [1, 2])


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            np.zeros((4, 32, 32, 3)),
            "samples × channels × height × width, got (4, 32, 32, 3); np.moveaxis(inputs, -1, 1)",
        ),
        (np.zeros(4), "a row for each sample, got shape (4,); inputs.reshape(-1, 1)"),
        (np.zeros((0, 4)), "a row for each sample, got shape (0, 4)"),
        ([[1, 2], [3]], "samples of one shape and type"),
        ([["a", "b"]], "must hold numbers, got <U1"),
        (np.zeros((2, 2), dtype=complex), "must hold numbers, got complex128"),
        ([[None, 1.0]], "text among numbers, or nothing"),
        ([[object()]], "objects such as object"),
        ([[0.0, 1.0], [np.nan, 0.0]], "must be finite, got nan in row 1"),
        ([[0.0, 1e300]], "must be finite, got inf in row 0"),
        (np.full((1, 1), 2**64 - 1, dtype=np.uint64), "must be at most 9223372036854775807"),
    ],
)
def test_inputs_that_cannot_be_trained_on_are_refused(given, said):
    with pytest.raises(InputError) as caught:
        typed_inputs("inputs", given)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "numbers", "names"),
    [
        ([0, 2, 1], [0, 2, 1], ()),
        ([10, -5, 10], [1, 0, 1], ("-5", "10")),
        (["dog", "cat", "dog"], [1, 0, 1], ("cat", "dog")),
        ([b"dog", b"cat", b"dog"], [1, 0, 1], ("cat", "dog")),
        (np.array(["dog", "cat", "dog"], dtype=object), [1, 0, 1], ("cat", "dog")),
        ([True, False, True], [1, 0, 1], ("False", "True")),
        ([[3], [4], [3]], [0, 1, 0], ("3", "4")),
        (np.array([0, 1, 0], dtype=np.uint64), [0, 1, 0], ()),
    ],
)
def test_classes_are_numbered_in_sorted_order(given, numbers, names):
    labels = typed_labels("labels", given, 3)
    np.testing.assert_array_equal(labels.values, numbers)
    assert labels.values.dtype == np.int64
    if names != ("False", "True"):  # equal to 0 and 1
        assert labels.names == names


@pytest.mark.parametrize(
    ("given", "dtype"),
    [
        ([0.5, 1.5], np.float32),
        ([[0.5], [1.5]], np.float32),
        ([[1, 2, 3], [4, 5, 6]], np.int64),
        ([[True, False], [False, False]], np.float32),
    ],
)
def test_other_labels_keep_their_shape(given, dtype):
    labels = typed_labels("labels", given, 2)
    assert labels.classes is None
    assert labels.names == ()
    assert labels.values.dtype == dtype
    np.testing.assert_array_equal(labels.values, given)
    np.testing.assert_array_equal(labels.numbered("test labels", given, 2), given)


@pytest.mark.parametrize("given", [[-5, -33, 146], [[-5], [-33], [146]], [[1, 2], [3, 4], [5, 6]], [0.5, 1.0, 2.0]])
def test_whole_numbers_stay_values_where_somebody_says_so(given):
    labels = typed_labels("labels", given, 3, "values")
    assert (labels.classes, labels.values.dtype) == (None, np.float32)
    np.testing.assert_array_equal(labels.values, given)
    other = labels.numbered("test labels", given[1:], 2)
    assert other.dtype == np.float32
    np.testing.assert_array_equal(other, given[1:])


@pytest.mark.parametrize(
    ("given", "labels_are", "said"),
    [
        (["a", "b"], "values", "labels must be numbers where they are values, got <U1"),
        ([0.5, 1.0], "classes", "labels must be one whole number or text for each sample .*, got float64 of shape"),
        ([[0, 1], [1, 0]], "classes", "labels must be one whole number or text for each sample"),
        ([0, 1], "numbers", "labels_are must be one of classes, values, got 'numbers'"),
    ],
)
def test_labels_are_what_somebody_says(given, labels_are, said):
    with pytest.raises(InputError, match=said):
        typed_labels("labels", given, 2, labels_are)


def test_other_labels_get_the_same_numbers():
    labels = typed_labels("labels", ["b", "a", "c"], 3)
    np.testing.assert_array_equal(labels.numbered("test labels", ["c", "b"], 2), [2, 1])
    for given, said in (
        (["c", "d"], "test labels must be among labels, got 'd' in row 1"),
        ([1, 2], "test labels must be classes, as labels are, got int64"),
        (["a"], "test labels must have one entry for each of the 2 samples"),
    ):
        with pytest.raises(InputError, match=said):
            labels.numbered("test labels", given, 2)
    with pytest.raises(InputError, match="must be numbers of the same type as labels, got classes"):
        typed_labels("labels", [0.5, 1.0], 2).numbered("test labels", [0, 1], 2)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([1, 2], "one entry for each of the 3 samples, got shape (2,)"),
        ([0.0, np.inf, 1.0], "must be finite, got inf in row 1"),
        (np.zeros(3, dtype="datetime64[s]"), "whole numbers, text or real numbers, got datetime64[s]"),
        ([1, "a", None], "text among numbers"),
    ],
)
def test_labels_of_no_use_are_refused(given, said):
    given = np.array(given, dtype=object) if isinstance(given, list) and None in given else given
    with pytest.raises(InputError) as caught:
        typed_labels("labels", given, 3)
    assert said in str(caught.value)


def test_owners_are_numbers_or_names():
    np.testing.assert_array_equal(owner_numbers("owner", [3, 0, 3], 3), [3, 0, 3])
    np.testing.assert_array_equal(owner_numbers("owner", ["ann", "bob", "ann"], 3), [0, 1, 0])
    with pytest.raises(InputError, match="an owner for each of the 3 samples"):
        owner_numbers("owner", [0], 3)
    with pytest.raises(InputError, match="whole numbers or text as owners, got float64"):
        owner_numbers("owner", [0.0, 1.0, 2.0], 3)
