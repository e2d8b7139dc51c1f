"""Samples from .npz files, and files by their endings."""

import numpy as np
import pytest

from fedtempo.checks import InputError
from fedtempo.data.array_files import read_arrays
from fedtempo.data.federation import FederatedData

INPUTS = np.arange(120, dtype=np.float32).reshape(40, 3)
LABELS = np.arange(40) % 4


def saved(tmp_path, **members):
    path = tmp_path / "mine.npz"
    np.savez(path, **members)
    return path


def test_members_are_the_arrays(tmp_path):
    path = saved(tmp_path, inputs=INPUTS, labels=LABELS)
    data = FederatedData.from_npz(path, clients=5, seed=3)
    assert data.checksum() == FederatedData.from_arrays(INPUTS, LABELS, clients=5, seed=3).checksum()
    assert data.name == "mine"
    assert FederatedData.from_npz(path, clients=5, split="iid", name="yours").name == "yours"


def test_whole_numbers_may_be_values(tmp_path):
    data = FederatedData.from_npz(
        saved(tmp_path, inputs=INPUTS, labels=LABELS), clients=5, split="iid", labels_are="values"
    )  # fmt: skip
    assert (data.num_classes, data.labels.dtype) == (0, np.float32)


def test_the_file_may_have_test_data_and_owners(tmp_path):
    path = saved(tmp_path, inputs=INPUTS, labels=LABELS, test_inputs=INPUTS[:4], test_labels=LABELS[:4],
                 owner=np.repeat([30, 10, 20], [10, 20, 10]))  # fmt: skip
    data = FederatedData.from_npz(path)
    np.testing.assert_array_equal(data.sizes, [20, 10, 10])
    np.testing.assert_array_equal(data.test_inputs, INPUTS[:4])
    assert FederatedData.from_npz(path, split="iid", clients=4).num_clients == 4, "a split by name goes over owners"
    with pytest.raises(InputError, match=r"mine.npz: test must be left out where the file has test data, got 0.2"):
        FederatedData.from_npz(path, test=0.2)


@pytest.mark.parametrize(
    ("members", "said"),
    [
        ({"x": INPUTS}, "its members must be inputs and labels, got x; np.savez.path"),
        ({"inputs": INPUTS, "labels": LABELS, "test_inptus": INPUTS}, "did you mean 'test_inputs'"),
        ({"inputs": INPUTS, "labels": LABELS, "test_inputs": INPUTS}, "test_inputs must come with its pair"),
        (
            {"inputs": INPUTS, "labels": np.array([{}] * 40, dtype=object)},
            "labels must be an array of numbers or text, got pickled objects, which are not loaded; save it",
        ),
        ({"inputs": INPUTS, "labels": LABELS[:3]}, "labels must have one entry for each of the 40 samples"),
        ({"inputs": INPUTS, "labels": LABELS, "owner": LABELS[:3]}, "owner must have an owner for each of the 40"),
        ({"inputs": np.full((40, 3), np.nan), "labels": LABELS}, "inputs must be finite"),
    ],
)
def test_what_is_wrong_in_a_file_gets_one_sentence(tmp_path, members, said):
    with pytest.raises(InputError, match=said) as caught:
        FederatedData.from_npz(saved(tmp_path, **members), clients=3, split=None if "owner" in members else "iid")
    assert "mine.npz: " in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"no archive", b"PK\x03\x04 and no more"])
def test_other_bytes_are_no_file_of_arrays(tmp_path, content):
    path = tmp_path / "mine.npz"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"mine.npz: it must be an .npz file, got other bytes; np.savez"):
        FederatedData.from_npz(path, clients=3)
    with open(path, "wb") as stream:
        np.save(stream, INPUTS)
    with pytest.raises(InputError, match="got one array alone"):
        FederatedData.from_npz(path, clients=3)
    with pytest.raises(InputError, match=r"no.npz must be an .npz file, got no such file"):
        FederatedData.from_npz(tmp_path / "no.npz", clients=3)


def test_files_are_known_by_their_endings(tmp_path):
    path = saved(tmp_path, inputs=INPUTS, labels=LABELS)
    assert len(read_arrays(path, {}).inputs) == 40
    for name, columns, said in (
        (path, {"label": "y"}, "label must be left out for .npz files, got 'y'"),
        ("mine.csv", {}, "file must end in .npz or .parquet, got mine.csv"),
        ("mine.parquet", {}, "label must name the column of labels"),
    ):
        with pytest.raises(InputError, match=said):
            read_arrays(name, columns)
