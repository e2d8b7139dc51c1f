"""Where files of data sets are looked for: a folder of the user's own, then the cache."""

import os
from pathlib import Path

from fedtempo.checks import InputError


class NoFilesError(InputError):
    """No file of a set is on this machine; where some of its files are, that is an ``InputError`` of another kind."""


def cache_folder() -> Path:
    """Return the folder that downloads go to: $FEDTEMPO_CACHE, or this machine's usual place for caches."""
    own = os.environ.get("FEDTEMPO_CACHE")
    if own:
        return Path(own)
    import pooch

    return Path(pooch.os_cache("fedtempo"))


def places() -> list[Path]:
    """Return the folders in which files are looked for: $FEDTEMPO_DATA, if it is set, then the cache."""
    own = os.environ.get("FEDTEMPO_DATA")
    return [Path(own), cache_folder()] if own else [cache_folder()]


def no_files(title: str, dataset: str) -> NoFilesError:
    """Return the error that says where a set was looked for, and which command fetches it."""
    found = f"no files in {' or '.join(map(str, places()))}"
    return NoFilesError(name=title, rule="be on this machine", got=found, remedy=f"run: fedtempo fetch {dataset}")
