"""Fleets: what is refused, and arrays that cannot be changed."""

import tracemalloc

import numpy as np
import pytest

from fedtempo import Fleet, InputError

RIGHT = {
    "data_share": [0.25, 0.75],
    "gradient_bound": [1.0, 2.0],
    "compute_time": [0.0, 1.0],
    "upload_time": [1.0, 2.0],
}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"data_share": [0.5, 0.4]}, "sum to 1, got 0.9; divide sample counts by their total"),
        ({"data_share": [0.0, 1.0]}, "data_share must be positive and finite, got 0 for client '0'"),
        ({"data_share": []}, "one number for each client"),
        ({"data_share": [[1.0]]}, "one number for each client"),
        ({"gradient_bound": [0.0, 1.0]}, "biases the model"),
        ({"gradient_bound": [np.nan, 1.0]}, "gradient_bound must be positive and finite, got nan"),
        ({"compute_time": [-1.0, 1.0]}, "compute_time must be zero or positive"),
        ({"compute_time": [1.0]}, "each of the 2 clients"),
        ({"upload_time": [0.0, 1.0]}, "upload_time must be positive"),
        ({"upload_time": [1.0, np.inf]}, "got inf for client '1'"),
        ({"upload_time": ["a", "b"]}, "upload_time must hold numbers"),
        ({"total_bandwidth": 0.0}, "total_bandwidth must be positive"),
        ({"names": ["a", "a"]}, "distinct, got 'a' more than once"),
        ({"names": ["a", ""]}, "must not be empty"),
        ({"names": ["a"]}, "each of the 2 clients"),
        ({"download_time": [-1.0, 0.0]}, "download_time"),
        ({"bandwidth_cap": [0.0, 1.0]}, "bandwidth_cap"),
    ],
)
def test_what_breaks_a_rule_is_refused(changes, said):
    with pytest.raises(InputError, match=said):
        Fleet(**(RIGHT | changes))


def test_arrays_are_kept_as_they_are_and_cannot_be_changed():
    share = np.array([0.25, 0.75])
    fleet = Fleet(share, 1.0, 0.5, np.array([1, 2]))
    assert np.shares_memory(fleet.data_share, share)
    assert share.flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        fleet.data_share[0] = 1.0
    np.testing.assert_array_equal(fleet.gradient_bound, [1.0, 1.0])
    assert len(fleet) == 2
    assert repr(fleet) == "Fleet(2 clients, total_bandwidth=1)"


def test_times_before_and_beside_the_shared_link():
    fleet = Fleet(
        [0.5, 0.5], 1.0, [1.0, 2.0], [3.0, 4.0], 2.0, download_time=[0.5, 0.0], bandwidth_cap=[1.0, 9.0]
    )  # fmt: skip
    np.testing.assert_allclose(fleet.ready_time, [1.5, 2.0])
    np.testing.assert_allclose(fleet.private_time, [1.5 + 3.0 / 1.0 - 3.0 / 2.0, 2.0])


def test_ten_million_clients_take_no_object_each():
    share = np.full(10_000_000, 1e-7)
    tracemalloc.start()
    fleet = Fleet(share, share, share, share)
    held, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(fleet) == 10_000_000
    assert held < 1_000_000, "only views are kept"
    assert peak < 8 * share.size
