"""Samples from Parquet files."""

import numpy as np
import pytest

from fedtempo.checks import InputError
from fedtempo.data.federation import FederatedData

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

ROWS = 30


def written(tmp_path, **columns):
    path = tmp_path / "mine.parquet"
    pq.write_table(pa.table({"y": np.arange(ROWS) % 3, **columns}), path, row_group_size=7)
    return path


def numbers(seed=0, shape=(ROWS,)):
    return np.random.default_rng(seed).normal(size=shape)


def test_columns_of_numbers_stand_side_by_side(tmp_path):
    path = written(tmp_path, a=numbers(0), b=np.arange(ROWS), user=[f"user {i % 4}" for i in range(ROWS)])
    data = FederatedData.from_parquet(path, label="y", client="user")
    assert data.input_shape == (2,)
    assert not data.tokens, "columns of whole numbers are numbers like others"
    assert data.num_clients == 4
    expected = np.stack([numbers(0), np.arange(ROWS)], axis=1)
    same = FederatedData.from_arrays(expected, np.arange(ROWS) % 3, split=np.arange(ROWS) % 4)
    assert data.checksum() == same.checksum()
    fewer = FederatedData.from_parquet(path, label="y", inputs=["b"], clients=3, split="iid")
    assert fewer.input_shape == (1,)


def test_whole_numbers_may_be_values(tmp_path):
    path = written(tmp_path, a=numbers(0))
    data = FederatedData.from_parquet(path, label="y", clients=3, split="iid", labels_are="values")
    assert (data.num_classes, data.labels.dtype) == (0, np.float32)


def test_several_labels_are_no_classes(tmp_path):
    path = written(tmp_path, a=numbers(0), b=numbers(1), c=numbers(2))
    data = FederatedData.from_parquet(path, label=["a", "b"], inputs="c", clients=3, split="iid")
    assert data.labels.shape == (27, 2)
    assert data.num_classes == 0


def lists(array):
    values = pa.array(array.ravel())
    for length in reversed(array.shape[1:]):
        values = pa.FixedSizeListArray.from_arrays(values, length)
    return values


@pytest.mark.parametrize("fixed", [True, False])
@pytest.mark.parametrize(
    ("dtype", "shape", "sample"),
    [(np.uint8, (4, 5), (1, 4, 5)), (np.float32, (6,), (6,)), (np.int32, (6,), (6,)), (np.uint8, (3, 4, 5), (3, 4, 5))],
)
def test_lists_are_images_vectors_or_tokens(tmp_path, dtype, shape, sample, fixed):
    array = np.random.default_rng(0).integers(0, 200, (ROWS, *shape)).astype(dtype)
    kind = pa.from_numpy_dtype(dtype)
    for _ in shape:
        kind = pa.list_(kind)
    path = written(tmp_path, x=lists(array) if fixed else pa.array(array.tolist(), kind))
    data = FederatedData.from_parquet(path, label="y", clients=2, split="iid")
    assert data.input_shape == sample
    same = FederatedData.from_arrays(array, np.arange(ROWS) % 3, clients=2, split="iid")
    assert data.checksum() == same.checksum()


def test_tensors_keep_their_shape(tmp_path):
    array = numbers(0, (ROWS, 2, 3, 4)).astype(np.float32)
    path = written(tmp_path, x=pa.FixedShapeTensorArray.from_numpy_ndarray(array))
    data = FederatedData.from_parquet(path, label="y", clients=2, split="iid")
    assert data.input_shape == (2, 3, 4)


def test_a_folder_of_files_is_read_as_one(tmp_path):
    for number in range(2):
        pq.write_table(pa.table({"x": numbers(number), "y": np.arange(ROWS) % 3}), tmp_path / f"{number}.parquet")
    data = FederatedData.from_parquet(tmp_path, label="y", clients=2, test=0.5)
    assert len(data.inputs) + len(data.test_inputs) == 2 * ROWS


@pytest.mark.parametrize(
    ("columns", "names", "said"),
    [
        ({"x": numbers()}, {"label": "z"}, "its columns must include 'z', got y, x"),
        ({"user": numbers()}, {"client": "usr"}, "did you mean 'user'"),
        ({"x": [None] + [1.0] * (ROWS - 1)}, {}, "column 'x' must have a value in each row, got 1 rows without one"),
        ({"x": [[1.0]] + [[1.0, 2.0]] * (ROWS - 1)}, {}, "column 'x' must have lists of one length, got 1 to 2"),
        ({"x": [[1.0, None]] * ROWS}, {}, "column 'x' must have no empty places in its lists"),
        ({"x": ["a"] * ROWS}, {}, "column 'x' must hold a number in each row, .* got <U1|object"),
        ({"x": [{"a": 1}] * ROWS}, {}, "column 'x' must hold numbers, text or lists of numbers, got struct"),
        ({"x": [[1.0]] * ROWS, "z": numbers()}, {}, "column 'x' must hold a number in each row"),
        ({}, {}, "include inputs beside label and client"),
        ({"x": np.full(ROWS, np.nan)}, {}, "inputs must be finite"),
    ],
)
def test_what_is_wrong_in_a_file_gets_one_sentence(tmp_path, columns, names, said):
    with pytest.raises(InputError, match=said) as caught:
        FederatedData.from_parquet(written(tmp_path, **columns), **{"label": "y", "clients": 2, "split": "iid"} | names)
    assert "mine.parquet: " in str(caught.value)
    assert "\n" not in str(caught.value)


def test_other_files_are_refused(tmp_path):
    (tmp_path / "other.parquet").write_text("not such a file")
    with pytest.raises(InputError, match=r"other.parquet: it must be a Parquet file, got"):
        FederatedData.from_parquet(tmp_path / "other.parquet", label="y", clients=2)
    with pytest.raises(InputError, match=r"no.parquet must be a Parquet file, got no such file"):
        FederatedData.from_parquet(tmp_path / "no.parquet", label="y", clients=2)
    pq.write_table(pa.table({"x": pa.array([], pa.float32()), "y": pa.array([], pa.int64())}), tmp_path / "e.parquet")
    with pytest.raises(InputError, match="a row for each sample, got none"):
        FederatedData.from_parquet(tmp_path / "e.parquet", label="y", clients=2)
