"""What tells one function, class or object of a user's own from another."""

import subprocess
import sys
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

from fedtempo.fingerprint import described

PARTS = """
import numpy as np
WIDTH, seeds = {width}, {seeds}

def inner(x):{comment}
    return {factor} * x

class Net:
    def forward(self, x):
        return inner(x) + WIDTH

def outer(x):
    return [inner(one).seeds for one in x if one in {{"a", "b", "c"}}], np.sum(x)

def made(width):
    return lambda x: x * width

closure = made({width})
def recursive(n):
    return recursive(n - 1) if n else {factor}
"""
NAMES = ("Net", "outer", "closure", "recursive")


def parts(*, width=1, seeds=3, factor=2.0, comment=""):
    module = {"__name__": "somebodys"}
    exec(PARTS.format(width=width, seeds=seeds, factor=factor, comment=comment), module)
    return {name: described(module[name]) for name in NAMES}


@pytest.mark.parametrize(
    ("changes", "differ"),
    [
        ({}, ()),
        ({"comment": "  # lines and comments mean nothing\n"}, ()),
        ({"seeds": 4}, ()),  # an attribute of that name is none of the module's
        ({"width": 2}, ("Net", "closure")),
        ({"factor": 3.0}, ("Net", "outer", "recursive")),
    ],
)
def test_code_counts_with_what_it_names(changes, differ):
    usual, changed = parts(), parts(**changes)
    assert tuple(name for name in NAMES if usual[name] != changed[name]) == differ


def test_another_process_finds_the_same():
    """Where strings have other hashes, and sets another order."""
    source = PARTS.format(width=1, seeds=3, factor=2.0, comment="")
    code = (
        "from fedtempo.fingerprint import described\n"
        f"module = {{'__name__': 'somebodys'}}\nexec({source!r}, module)\n"
        f"print({{name: described(module[name]) for name in {NAMES}}})"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown.strip() == str(parts())


class Holder:
    def __init__(self, value):
        self.value = value

    def method(self, x):
        return self.value * x


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (partial(max, 1), partial(max, 2)),
        (Holder(1), Holder(2)),
        (Holder(np.arange(3)), Holder(np.arange(1, 4))),
        (Holder(1).method, Holder(2).method),
        (Holder([1, {"a": (2, {3, 4})}]), Holder([1, {"a": (2, {3, 5})}])),
        (SimpleNamespace(rate=1.0), SimpleNamespace(rate=2.0)),
    ],
)
def test_what_objects_hold_counts(one, other):
    assert described(one) == described(one) != described(other)


def test_what_cannot_be_read_counts_by_its_name():
    endless = Holder([])
    endless.value.append(endless.value)

    class Raising:
        __slots__ = ("value",)

        def __getattribute__(self, name):
            raise OSError(name)

    assert described(endless) == f"{__name__}:Holder"
    assert described(Holder(Raising())) == f"{__name__}:Holder"
    assert described("weighted") == "weighted"
