"""Objects by where they are defined, ``package.module:name``, as the command line and configurations name them."""

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from fedtempo.checks import InputError, near_miss


def is_reference(name: str) -> bool:
    """Return whether a name says where an object is defined."""
    return ":" in name


def load(reference: str, setting: str, folder: Path | None = None) -> object:
    """Return the object; ``setting``: what named it. Modules are looked for in a folder first, or the present one."""
    module_name, _, name = reference.partition(":")
    if not (module_name and name):
        raise InputError(setting, "name a module and what is in it, as package.module:name", repr(reference))
    with _importing_from(folder):
        try:
            found: object = importlib.import_module(module_name)
        except ModuleNotFoundError as error:
            got = f"no module {error.name!r} in {folder or Path.cwd()} or among the packages"
            raise InputError(setting, f"be importable from {module_name}", got) from error
        except Exception as error:
            raise InputError(setting, f"be importable from {module_name}", repr(error)) from error
    for part in name.split("."):
        if not hasattr(found, part):
            known = [one for one in vars(found) if not one.startswith("_")]
            remedy = near_miss(part, known, otherwise="")
            raise InputError(setting, f"be in {module_name}", f"no {part!r} there", remedy)
        found = getattr(found, part)
    return found


def source_file(reference: str, folder: Path | None = None) -> Path | None:
    """Return the file where an object is defined; None where there is none."""
    with _importing_from(folder):
        try:
            found = find_spec(reference.partition(":")[0])
        except (ImportError, ValueError):
            return None
    return None if found is None or not found.has_location else Path(str(found.origin))


@contextmanager
def _importing_from(folder: Path | None) -> Iterator[None]:
    """Let modules of a folder be imported, as ``python`` lets those of the present one."""
    place = str((folder or Path.cwd()).resolve())
    sys.path.insert(0, place)
    try:
        yield
    finally:
        sys.path.remove(place)
