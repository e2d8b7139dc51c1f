"""Splits that are given."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedtempo.checks import InputError
from fedtempo.data.owners import NOBODY, given_owners


@given(st.lists(st.integers(0, 5), min_size=1, max_size=40).map(np.array))
def test_rows_and_owners_say_the_same(drawn):
    owner = np.unique(drawn, return_inverse=True)[1]
    rows = [np.flatnonzero(owner == client) for client in range(owner.max() + 1)]
    np.testing.assert_array_equal(given_owners(owner, owner.size, None), owner)
    np.testing.assert_array_equal(given_owners(rows, owner.size, len(rows)), owner)
    np.testing.assert_array_equal(given_owners([list(one) for one in rows], owner.size, None), owner)
    np.testing.assert_array_equal(given_owners(dict(enumerate(rows)), owner.size, None), owner)
    masks = {f"client {client}": owner == client for client in range(len(rows))}
    np.testing.assert_array_equal(given_owners(masks, owner.size, None), owner)


def test_samples_may_belong_to_nobody():
    np.testing.assert_array_equal(given_owners([[3], range(1)], 4, None), [1, NOBODY, NOBODY, 0])
    np.testing.assert_array_equal(given_owners(np.array([[3, 2], [0, 1]]), 4, None), [1, 1, 0, 0])


def test_owners_may_be_names():
    np.testing.assert_array_equal(given_owners(["b", "a", "b"], 3, 2), [1, 0, 1])


@pytest.mark.parametrize(
    ("split", "clients", "said"),
    [
        ([[0, 1], []], None, "each client must hold at least one sample, got none for client 1; leave the client out"),
        ([[0, 1], [4]], None, "split must hold rows from 0 to 3, got 4 for client 1"),
        ([[0, 1], [-1]], None, "split must hold rows from 0 to 3, got -1 for client 1"),
        ([[0, 1], [2, 1]], None, "split must give each sample once, got sample 1 for clients 0 and 1"),
        ([[0, 0], [2]], None, "split must give each sample once, got sample 0 twice for client 0"),
        ([[0, 1], [2]], 3, "split must have rows for each of the 3 clients, got 2 lists"),
        ({"a": [True] * 4, "b": [False] * 4}, None, "got none for client 1"),
        ([[True, False], [False, True]], None, "split must hold the numbers of rows, got bool"),
        ([[0.0], [1.0]], None, "split must hold the numbers of rows, got float64"),
        ([0, 1, 3, 3], None, "got none for client 2"),
        ([0, 0, 1, 1], 3, "got none for client 2"),
        ([1, 1, 1, 1], None, "got none for client 0"),
        ([0, 1, 2, 3], 3, "split must name clients from 0 to 2, got 3 for sample 3"),
        ([0, 1, -1, 0], None, "got -1 for sample 2"),
        ([0, 1], None, "split must have an owner for each of the 4 samples, got shape .2,."),
        ([0, 10**12, 0, 0], None, "got none for client 1"),
        (None, None, "split must be an array"),
    ],
)
def test_what_gives_no_split_is_refused(split, clients, said):
    with pytest.raises(InputError, match=said) as caught:
        given_owners(split, 4, clients)
    assert "\n" not in str(caught.value)
