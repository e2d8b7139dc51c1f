"""Ways to bring a file from outside to this machine, with a progress bar."""

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from fedtempo.checks import InputError

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

SECONDS_TO_ANSWER = 10  # an offline machine should not wait long for the next source
SECONDS_FOR_NPM = SECONDS_FOR_APT = SECONDS_FOR_PIP = 600
BYTES_AT_ONCE = 1 << 18

# What pip asks for the dependencies of an archive in place of setuptools, which would run the archive's setup.py.
NO_DEPENDENCIES = """\
import sys
from pathlib import Path

__legacy__ = sys.modules[__name__]


def prepare_metadata_for_build_wheel(folder, *_):
    answer = Path(folder, "{name}-{version}.dist-info", "METADATA")
    answer.parent.mkdir()
    answer.write_text("Metadata-Version: 2.1\\nName: {name}\\nVersion: {version}\\n")
    return answer.parent.name
"""


class SourceError(Exception):
    """A source that did not give what was asked of it; the message says what it gave instead."""


class DownloadBars:
    """Progress bars on standard error, one for each file; none at all if they are not to be shown."""

    def __init__(self, *, shown: bool) -> None:
        """Draw nothing yet."""
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
        self._progress = Progress(*columns, console=Console(stderr=True), transient=True, disable=not shown)

    def __enter__(self) -> Self:
        """Start drawing."""
        self._progress.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Take the bars away."""
        self._progress.stop()

    def file(self, name: str) -> "FileBar":
        """Return a bar for one file."""
        return FileBar(self._progress, self._progress.add_task(name, total=None))

    @contextmanager
    def waiting(self, what: str) -> Iterator[None]:
        """Show that something of unknown length is going on."""
        task = self._progress.add_task(what, total=None)
        try:
            yield
        finally:
            self._progress.remove_task(task)


class FileBar:
    """The four names that pooch expects of a progress bar, on a bar of rich."""

    def __init__(self, progress: "Progress", task: "TaskID") -> None:
        """Take one task of a display."""
        self._progress, self._task = progress, task
        self._total: float | None = None

    @property
    def total(self) -> float | None:
        """How many bytes the file has; None if the server does not say."""
        return self._total

    @total.setter
    def total(self, total: int) -> None:
        self._total = total or None
        self._progress.update(self._task, total=self._total)

    def update(self, received: int) -> None:
        """Count bytes received."""
        self._progress.advance(self._task, received)

    def reset(self) -> None:
        """Start counting again; pooch corrects its count at the end this way."""
        self._progress.update(self._task, completed=0)

    def close(self) -> None:
        """Do nothing: the bars go away together."""


def over_http(address: str, target: Path, bars: DownloadBars) -> None:
    """Download one file."""
    import pooch

    bar = bars.file(address.rpartition("/")[2])
    downloader = pooch.HTTPDownloader(progressbar=bar, chunk_size=BYTES_AT_ONCE, timeout=SECONDS_TO_ANSWER)
    try:
        downloader(address, str(target), None)
    except OSError as error:
        if error.errno is not None:
            raise  # not the network but this machine, such as a full disk
        response = getattr(error, "response", None)
        reason = "no connection" if response is None else f"status {response.status_code}"
        raise SourceError(f"{reason} from {address}") from None


def pack_with_npm(package: str, folder: Path) -> Path:
    """Let npm download a package, whatever registry it is set up with, and return the archive."""
    npm = shutil.which("npm")
    if npm is None:
        raise SourceError("no npm on the PATH")
    _run([npm, "pack", package, "--ignore-scripts", "--loglevel=error"], folder, "npm pack", package, SECONDS_FOR_NPM)
    return _one_file(folder, "*.tgz", f"npm pack {package}")


def download_with_apt(package: str, folder: Path) -> Path:
    """Let apt download a Debian package, whatever mirror it is set up with, and return the tar archive of its files."""
    apt, dpkg = shutil.which("apt-get"), shutil.which("dpkg-deb")
    if apt is None or dpkg is None:
        raise SourceError("no apt-get on the PATH")
    _run([apt, "download", package, "-qq"], folder, "apt-get download", package, SECONDS_FOR_APT)
    unpacked = folder / f"{package}.tar"
    with open(unpacked, "wb") as stream:
        deb = _one_file(folder, "*.deb", f"apt-get download {package}")
        ended = subprocess.run([dpkg, "--fsys-tarfile", str(deb)], stdout=stream, stderr=subprocess.PIPE, check=False)
    if ended.returncode != 0:
        raise SourceError(f"a damaged package {package} from apt-get")
    return unpacked


def download_with_pip(package: str, sha256: str, folder: Path) -> Path:
    """Let pip download the source archive of a package, whatever index it is set up with; ``package`` has its version.

    pip checks the SHA-256, then asks setuptools for the dependencies, which would run the archive's setup.py. It finds
    a module of ours in place of setuptools, so that no code of the archive runs.
    """
    if importlib.util.find_spec("pip") is not None:
        pip = [sys.executable, "-m", "pip"]
    elif (found := shutil.which("pip") or shutil.which("pip3")) is not None:
        pip = [found]
    else:
        raise SourceError("no pip on the PATH")
    name, _, version = package.partition("==")
    (folder / "setuptools").mkdir()
    (folder / "setuptools" / "__init__.py").touch()
    (folder / "setuptools" / "build_meta.py").write_text(NO_DEPENDENCIES.format(name=name, version=version))
    (folder / "requirements.txt").write_text(f"{package} --hash=sha256:{sha256}\n")
    options = ["--quiet", "--disable-pip-version-check", "--no-deps", "--no-binary", name, "-r", "requirements.txt"]
    ours_first = ["--use-pep517", "--no-build-isolation"]
    path = os.pathsep.join(filter(None, [str(folder.absolute()), os.environ.get("PYTHONPATH")]))
    command, env = [*pip, "download", *options, *ours_first], {**os.environ, "PYTHONPATH": path}
    _run(command, folder, "pip download", package, SECONDS_FOR_PIP, env)
    return _one_file(folder, f"{name}-*.tar.gz", f"pip download {package}")


def check_sha256(name: str, content: bytes, expected: str) -> None:
    """Refuse content of which a bit has changed."""
    got = hashlib.sha256(content).hexdigest()
    if got != expected:
        raise InputError(
            name=name, rule=f"have the SHA-256 {expected}", got=got, remedy="delete it and fetch it again"
        )  # fmt: skip


def _run(
    command: list[str], folder: Path, verb: str, package: str, seconds: float, env: Mapping[str, str] | None = None
) -> None:
    """Run a package manager in a folder; what goes wrong becomes a reason in a few words."""
    try:
        ended = subprocess.run(
            command, cwd=folder, env=env, capture_output=True, text=True, timeout=seconds, check=False
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise SourceError(f"no end of {verb} within {seconds} s") from None
    if ended.returncode != 0:
        said = ended.stderr.strip().splitlines() or ["no archive"]
        raise SourceError(f"a failure of {verb} {package} ({said[0]})")


def _one_file(folder: Path, pattern: str, command: str) -> Path:
    archive = next(folder.glob(pattern), None)
    if archive is None:
        raise SourceError(f"a failure of {command} (no archive)")
    return archive
