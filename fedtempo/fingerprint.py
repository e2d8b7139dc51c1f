"""What tells one part of a user's own from another: its name, what it holds, and the code of its functions."""

import dis
import json
import zlib
from collections.abc import Iterable, Mapping
from functools import partial
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

DEPTH = 3  # of objects within objects, to which what they hold is read


def name_of(part: object) -> str:
    """Return what a part of a problem is called: a name itself, a function or a class by its own, else its class."""
    if isinstance(part, str):
        return part
    named = part if hasattr(part, "__qualname__") else getattr(part, "func", type(part))  # partial has func
    return f"{named.__module__}:{named.__qualname__}"


def described(part: object) -> str:
    """Return a name as it is; of anything else its name, and a digest of what it holds and of its code.

    What the code names in its module counts too: values by what they are, functions and classes of the same module by
    their code, those of others, and what lies too deep within objects, by their names. What cannot be read counts by
    its name alone.
    """
    if isinstance(part, str):
        return part
    try:
        text = json.dumps(_Reader(name_of(part).partition(":")[0]).plain(part), sort_keys=True)
    except Exception:  # whatever somebody's attributes raise, or objects that hold themselves
        return name_of(part)
    return f"{name_of(part)} {zlib.crc32(text.encode()):08x}"


def array_digest(arrays: Iterable[npt.NDArray[Any] | None]) -> str:
    """Return a digest of some arrays; None stands for one that is not there."""
    return f"{zlib.crc32(b'|'.join(b'' if array is None else array.tobytes() for array in arrays)):08x}"


class _Reader:
    """Reads objects as plain values; functions and classes of one module by their code, once: they may be recursive."""

    def __init__(self, module: str) -> None:
        self.module, self.read = module, set[int]()

    def plain(self, part: object, depth: int = DEPTH) -> object:
        if part is None or isinstance(part, (bool, int, float, str)):
            return part
        if isinstance(part, (np.generic, bytes, complex)):
            return repr(part)
        if isinstance(part, np.ndarray):
            return array_digest([part])
        if isinstance(part, (list, tuple)):
            return [self.plain(one, depth) for one in part]
        if isinstance(part, (set, frozenset)):
            return sorted(json.dumps(self.plain(one, depth), sort_keys=True) for one in part)
        if isinstance(part, Mapping):
            return {str(name): self.plain(one, depth) for name, one in part.items()}
        if isinstance(part, partial):
            return [self.plain(part.func, depth), self.plain(part.args, depth), self.plain(part.keywords, depth)]
        if isinstance(part, MethodType):
            return [self.plain(part.__func__, depth), self.plain(part.__self__, depth)]
        if isinstance(part, ModuleType):
            return part.__name__
        if isinstance(part, (FunctionType, type)) and part.__module__ == self.module and id(part) not in self.read:
            self.read.add(id(part))
            return self._function(part) if isinstance(part, FunctionType) else self._class(part)
        if not depth or hasattr(part, "__qualname__"):
            return name_of(part)
        slots = (name for kind in type(part).__mro__ for name in getattr(kind, "__slots__", ()))
        names = [*getattr(part, "__dict__", {}), *slots]
        held = {name: self.plain(getattr(part, name), depth - 1) for name in sorted(names) if hasattr(part, name)}
        return {"kind": self.plain(type(part), depth), **held}

    def _function(self, function: FunctionType) -> object:
        held = {
            name: cell.cell_contents if _is_filled(cell) else None
            for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        }
        names = _names_in(function.__code__)
        held |= {name: function.__globals__[name] for name in names if name in function.__globals__}
        defaults = [function.__defaults__, function.__kwdefaults__]
        return [name_of(function), self._code(function.__code__), self.plain(defaults), self.plain(held)]

    def _class(self, kind: type) -> object:
        own = {name: value for name, value in vars(kind).items() if isinstance(value, FunctionType)}
        return [name_of(kind), self.plain(own), self.plain(kind.__bases__)]

    def _code(self, code: CodeType) -> list[object]:
        """Return what a function does; where it stands, and what its lines look like, is left out."""
        constants = [self._code(one) if isinstance(one, CodeType) else self.plain(one) for one in code.co_consts]
        return [code.co_code.hex(), list(code.co_names), constants]


def _names_in(code: CodeType) -> set[str]:
    """Return the names that code looks up in its module, that of functions within it included."""
    own = {step.argval for step in dis.get_instructions(code) if step.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    return own.union(*(_names_in(one) for one in code.co_consts if isinstance(one, CodeType)))


def _is_filled(cell: object) -> bool:
    try:
        cell.cell_contents  # type: ignore[attr-defined]  # noqa: B018
    except ValueError:
        return False
    return True
