"""With what code runs are made: versions of packages, and the commit where it is known."""

import platform
import subprocess
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TypedDict

PACKAGES = ("fedtempo", "numba", "numpy", "scipy", "torch")


class MadeWith(TypedDict):
    """The fields of a header that name the code."""

    versions: dict[str, str | None]
    commit: str | None


@cache
def made_with() -> MadeWith:
    """Return the versions that a header names, and the commit where it is known; asked for once in a process."""
    versions = {"python": platform.python_version()} | {name: _version(name) for name in PACKAGES}
    return {"versions": versions, "commit": _commit()}


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _commit() -> str | None:
    """Return the commit of the source tree, with + if the code has changed since; None for an installed package."""
    package = Path(__file__).resolve().parents[2]

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(package), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()

    try:
        if Path(git("rev-parse", "--show-toplevel")).resolve() != package.parent:
            return None  # the repository of someone who installed the package inside it
        return git("rev-parse", "HEAD") + ("+" if git("status", "--porcelain", "--", ".") else "")
    except (OSError, subprocess.SubprocessError):
        return None
