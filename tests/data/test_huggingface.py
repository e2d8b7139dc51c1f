"""Hugging Face data sets by the partitioners of flwr-datasets."""

import numpy as np
import pytest

from fedtempo.checks import InputError
from fedtempo.data.federation import FederatedData

datasets = pytest.importorskip("datasets")
partitioners = pytest.importorskip("flwr_datasets.partitioner")

ROWS = 60


def table(rows=ROWS, **more):
    return datasets.Dataset.from_dict(
        {
            "x": np.arange(3.0 * rows).reshape(rows, 3),
            "label": np.arange(rows) % 3,
            "user": [f"u{i % 5}" for i in range(rows)],
        }
        | more
    )


@pytest.mark.parametrize(
    "partitioner",
    [
        partitioners.IidPartitioner(num_partitions=5),
        partitioners.DirichletPartitioner(num_partitions=4, partition_by="label", alpha=0.5, min_partition_size=2),
        partitioners.NaturalIdPartitioner(partition_by="user"),
        partitioners.PathologicalPartitioner(num_partitions=3, partition_by="label", num_classes_per_partition=2),
    ],
    ids=lambda one: type(one).__name__,
)
def test_clients_are_partitions(partitioner):
    data = FederatedData.from_huggingface(table(), partitioner, label="label", inputs="x")
    assert data.num_clients == partitioner.num_partitions
    assert data.input_shape == (3,)
    for client in range(data.num_clients):
        own = {tuple(row) for row in np.asarray(partitioner.load_partition(client)["x"])}
        assert {tuple(row) for row in data.client(client)[0].tolist()} <= own
    used = np.concatenate([data.inputs, data.test_inputs])
    assert np.unique(used[:, 0]).size == ROWS


def test_a_folder_with_test_data(tmp_path):
    datasets.DatasetDict({"train": table(), "test": table(9)}).save_to_disk(str(tmp_path / "mine"))
    split = {"label": "label", "inputs": "x"}
    data = FederatedData.from_huggingface(tmp_path / "mine", partitioners.IidPartitioner(num_partitions=2), **split)
    assert (len(data.inputs), len(data.test_inputs), data.name) == (ROWS, 9, "mine")
    data = FederatedData.from_huggingface(
        str(tmp_path / "mine"), partitioners.IidPartitioner(num_partitions=2), test=table(4), **split
    )
    assert len(data.test_inputs) == 4


def test_whole_numbers_may_be_values():
    data = FederatedData.from_huggingface(
        table(), partitioners.IidPartitioner(num_partitions=2), label="label", inputs="x", labels_are="values"
    )
    assert (data.num_classes, data.labels.dtype) == (0, np.float32)


def test_images_have_their_channels_first():
    pixels = np.random.default_rng(0).integers(0, 256, (12, 8, 9, 3), dtype=np.uint8)
    features = datasets.Features({"image": datasets.Image(), "label": datasets.Value("int64")})
    image_set = datasets.Dataset.from_dict({"image": list(pixels), "label": np.arange(12) % 2}, features=features)
    data = FederatedData.from_huggingface(
        image_set, partitioners.IidPartitioner(num_partitions=2), label="label", inputs="image", name="pixels"
    )
    assert data.input_shape == (3, 8, 9)
    seen = np.concatenate([data.inputs, data.test_inputs]).reshape(-1, 3, 8, 9)
    expected = np.moveaxis(pixels, -1, 1) / np.float32(255)
    assert {one.astype(np.float32).tobytes() for one in expected} == {one.tobytes() for one in seen}


def test_columns_of_numbers_stand_side_by_side():
    two = table(a=np.arange(ROWS), b=np.arange(ROWS) / 2)
    data = FederatedData.from_huggingface(
        two, partitioners.IidPartitioner(num_partitions=2), label="label", inputs=["a", "b"]
    )
    np.testing.assert_allclose(data.inputs[:, 0], 2 * data.inputs[:, 1])


def test_what_is_wrong_gets_one_sentence(tmp_path):
    iid = partitioners.IidPartitioner
    for dataset, partitioner, more, said in (
        (table(), iid(num_partitions=2), {"inputs": "xx"}, "dataset must have a column 'xx', got x, label, user"),
        (table(), iid(num_partitions=2), {"inputs": ["x", "label"]}, "column 'x' must hold a number in each row"),
        (table(), iid(num_partitions=2), {"inputs": ["label", "user"]}, "column 'user' must hold a number in each row"),
        (table(), 3, {}, "partitioner must be a partitioner of flwr-datasets, got int"),
        (3, iid(num_partitions=2), {}, "dataset must be a datasets.Dataset or a folder of one, got int"),
        ({"valid": table()}, iid(num_partitions=2), {}, "dataset must have a part 'train', got valid"),
        (tmp_path, iid(num_partitions=2), {}, "must be a folder that save_to_disk wrote, got another folder"),
        (tmp_path / "no", iid(num_partitions=2), {}, "got no such folder"),
        (
            table(),
            partitioners.NaturalIdPartitioner(partition_by="usr"),
            {},
            "partitioner must split the data set, got",
        ),
        (table(3), iid(num_partitions=5), {}, "none for client 3|partitioner must split"),
    ):
        with pytest.raises(InputError, match=said) as caught:
            FederatedData.from_huggingface(dataset, partitioner, **{"label": "label", "inputs": "x"} | more)
        assert "\n" not in str(caught.value)


def test_a_partitioner_serves_one_data_set():
    partitioner = partitioners.IidPartitioner(num_partitions=2)
    FederatedData.from_huggingface(table(), partitioner, label="label", inputs="x")
    with pytest.raises(
        InputError, match="partitioner must have no data set yet, got one that was used; make a new one"
    ):
        FederatedData.from_huggingface(table(), partitioner, label="label", inputs="x")
