"""Functions and classes of a user's own, by "package.module:name": beside a file first, then where Python looks."""

import ast
import hashlib
import importlib
import importlib.util
import sys
import sysconfig
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import ModuleType

from fedtempo.checks import InputError, how_to_install, near_miss

PYTHON = ".py"
RAISED = (Exception, SystemExit)  # by somebody's own code: an exit() there must not end the process without a word
LONGEST = 160  # characters of what somebody's own code raised
BEGUN = time.time()
HERE = Path(__file__).parent
INSTALLED = {sysconfig.get_path(kind) for kind in ("stdlib", "platstdlib", "purelib", "platlib")}
KEPT = ("fedtempo", "__main__")  # never run again: the classes of this package, and somebody's whole script
_digests: dict[str, str] = {}  # of what modules were run from, by the module's name


def is_reference(text: str) -> bool:
    """Return whether a text could name something in a module."""
    module, colon, name = text.rpartition(":")
    words = [module] if module.endswith(PYTHON) else module.split(".")
    return bool(colon) and name.isidentifier() and all(word.isidentifier() or word.endswith(PYTHON) for word in words)


def located(reference: str, folders: Sequence[Path]) -> str:
    """Return a reference with the file of its module where one of the folders has it, otherwise as it is."""
    module, _, name = reference.rpartition(":")
    inside = Path(module) if module.endswith(PYTHON) else Path(*module.split("."))
    for folder in folders:
        for place in (inside, inside.with_suffix(PYTHON), inside / f"__init__{PYTHON}"):
            if place.suffix == PYTHON and (folder / place).is_file():
                return f"{(folder / place).absolute()}:{name}"
    return reference


def source_file(reference: str) -> Path | None:
    """Return the file of a reference's module, None where there is none or nobody can find it."""
    module = reference.rpartition(":")[0]
    if module.endswith(PYTHON):
        return Path(module)
    try:
        found = importlib.util.find_spec(module)
    except Exception:  # of a package around it; whoever loads it says what was wrong
        return None
    return None if found is None or not found.has_location or found.origin is None else Path(found.origin)


def source_files(reference: str) -> list[Path]:
    """Return the file of a reference's module and, where it was found as a file, those beside it that it imports.

    These count with all that they import in turn; packages that are installed elsewhere do not.
    """
    first = source_file(reference)
    if first is None or not first.is_file() or not reference.rpartition(":")[0].endswith(PYTHON):
        return [] if first is None else [first]
    root, found, waiting = _root(first)[0], dict[Path, None](), [first.absolute()]
    while waiting:
        path = waiting.pop()
        if path not in found:
            found[path] = None
            status = path.stat()
            waiting += _imported_beside(path, root.absolute(), status.st_mtime_ns, status.st_size)
    return [first, *sorted(path for path in found if path != first.absolute())]


@cache
def _imported_beside(path: Path, root: Path, changed: int, size: int) -> list[Path]:
    """Return the files below a root that a module imports, as it is since it was changed."""
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):  # whoever loads it says so
        return []
    package = list(path.relative_to(root).parent.parts)
    names = set[tuple[str, ...]]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {tuple(alias.name.split(".")) for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            module = (*above, *(node.module or "").split(".")) if node.module else tuple(above)
            names |= {module} | {(*module, alias.name) for alias in node.names}
    places = [
        place
        for name in names
        if name and name[0] not in KEPT
        for end in range(1, len(name) + 1)
        for place in (root.joinpath(*name[:end]).with_suffix(PYTHON), root.joinpath(*name[:end], f"__init__{PYTHON}"))
    ]
    return sorted({place for place in places if place.is_file()})


def load_reference(setting: str, reference: str) -> object:
    """Return what a reference names; ``setting`` is what messages call it."""
    module, _, name = reference.rpartition(":")
    with imports_from(reference):
        try:
            found = _of_file(Path(module)) if module.endswith(PYTHON) else _imported(module)
        except ModuleNotFoundError as error:
            if error.name is not None and f"{module}.".startswith(f"{error.name}."):
                rule = "name a module here, beside the configuration, or installed"
                got = f"{reference!r} and no module {error.name}"
                raise InputError(setting, rule, got, how_to_mend(error)) from None
            raise _unusable(setting, reference, error) from error
        except RAISED as error:
            raise _unusable(setting, reference, error) from error
    if not hasattr(found, name):
        own = {one: value for one, value in vars(found).items() if not one.startswith("_")}
        public = [one for one, value in own.items() if not isinstance(value, ModuleType)]
        got = f"no {name} in {_short(module)}"
        raise InputError(setting, "name something in a module", got, near_miss(name, public, ""))
    return getattr(found, name)


@contextmanager
def imports_from(reference: str) -> Iterator[None]:
    """Let a module that was found as a file import what lies beside it: first of all while the block runs, later too.

    Its functions may import when they are called: the folder stays where Python looks, behind all others.
    """
    module = reference.rpartition(":")[0]
    if not module.endswith(PYTHON):
        yield
        return
    folder = str(_root(Path(module))[0])
    sys.path.insert(0, folder)
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path.remove(folder)
        if folder not in sys.path:
            sys.path.append(folder)


def _root(path: Path) -> tuple[Path, list[str]]:
    """Return the folder that a module is imported from, and its name inside: packages have an __init__.py."""
    names = [] if path.name == f"__init__{PYTHON}" else [path.stem]
    folder = path.parent
    while (folder / f"__init__{PYTHON}").is_file():
        names.insert(0, folder.name)
        folder = folder.parent
    return folder, names


def _of_file(path: Path) -> ModuleType:
    """Import a file: of a package by its name, alone under a name that no other module can have.

    It is run once, and again where it or what it imports from beside it has changed.
    """
    _, names = _root(path)
    if len(names) > 1 or path.name == f"__init__{PYTHON}":
        found = _imported(".".join(names))
        if found.__file__ is None or Path(found.__file__).absolute() != path.absolute():
            raise ImportError(f"another package {names[0]} at {found.__file__}")
        return found
    name = f"{path.stem}_{hashlib.sha256(str(path.absolute()).encode()).hexdigest()[:8]}"
    sources = source_files(f"{path}:")
    digest = "".join(map(_file_digest, sources))
    if name in sys.modules and _digests.get(name) == digest:
        return sys.modules[name]
    for beside in sources[1:]:
        _forget_if_other(beside)
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"no way to load {path.name}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickle look there
    try:
        _execute(module, path)
    except BaseException:
        del sys.modules[name]
        raise
    _digests[name] = digest
    return module


def _forget_if_other(path: Path) -> None:
    """Have a module beside imported anew: where its file has changed, or where another one beside had its name.

    A module of that name that somebody else imported stays, as Python has it.
    """
    name, digest = ".".join(_root(path)[1]), _file_digest(path)
    module, before = sys.modules.get(name), _digests.get(name)
    if module is not None and name.partition(".")[0] not in KEPT:
        same = module.__file__ is not None and Path(module.__file__).absolute() == path.absolute()
        if before is None and not same:
            return
        if not same or (before or ("" if path.stat().st_mtime > BEGUN else digest)) != digest:
            del sys.modules[name]
    _digests[name] = digest


def _file_digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _imported(name: str) -> ModuleType:
    """Import a module by its name; run it again where its file has changed since, so that the old code is not used."""
    before = sys.modules.get(name)
    found = importlib.import_module(name)
    path = Path(found.__file__ or "")
    if path.suffix != PYTHON or name.partition(".")[0] in KEPT:
        return found
    digest = _file_digest(path)
    if before is not None and _digests.get(name, "" if path.stat().st_mtime > BEGUN else digest) != digest:
        _digests[name] = ""  # should it fail, it is neither the old one nor the new one
        _execute(found, path)
    _digests[name] = digest
    return found


def _execute(module: ModuleType, path: Path) -> None:
    """Run a module from its source: bytecode is told apart by seconds, and the file may have changed just now."""
    exec(compile(path.read_bytes(), str(path), "exec"), module.__dict__)


def _unusable(setting: str, reference: str, error: BaseException) -> InputError:
    got = f"{in_short(error)} in {_short(reference.rpartition(':')[0])}"
    return InputError(setting, "name a module that can be imported", got, how_to_mend(error))


def how_to_mend(error: BaseException) -> str:
    """Return a remedy for what somebody's own code raised: for a missing package that an extra brings, that extra."""
    return how_to_install(error.name or "") if isinstance(error, ModuleNotFoundError) else ""


def in_short(error: BaseException) -> str:
    """Return an error that somebody's own code raised, in a few words on one line."""
    words = " ".join(str(error).split())
    said = words if len(words) <= LONGEST else f"{words[:LONGEST]}…"
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


def in_short_with_place(error: BaseException) -> str:
    """Return the same, and the last line of it that is neither ours nor an installed package's."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not Path(frame.filename).is_relative_to(HERE) and _is_somebodys(frame.filename)]
    return f"{in_short(error)} in {Path(own[-1].filename).name}, line {own[-1].lineno}" if own else in_short(error)


def _is_somebodys(file_name: str) -> bool:
    return not any(Path(file_name).is_relative_to(place) for place in INSTALLED) and not file_name.startswith("<")


def _short(module: str) -> str:
    return Path(module).name if module.endswith(PYTHON) else module
