"""Typed settings from plain tables: what is converted, and the sentence for each thing that is not."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import pytest

from fedtempo.checks import InputError
from fedtempo.experiments.settings.decode import decode, merged, to_toml


@dataclass(frozen=True, kw_only=True)
class Inner:
    size: int = 1


@dataclass(frozen=True, kw_only=True)
class Outer:
    name: str
    rate: float = 0.5
    on: bool = False
    kind: Literal["plain", "odd"] = "plain"
    bits: Literal[32, 8] | Literal["auto"] = 32
    pair: tuple[int, int] = (1, 2)
    many: tuple[str, ...] = ()
    inner: Inner | None = None
    options: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    origin: str = "nowhere"  # no setting


def read(**table):
    return decode(Outer, {"name": "x"} | table, origin="here")


def test_values_have_their_types():
    found = read(rate=2, pair=[3, 4], many=["a"], inner={"size": 5}, bits="auto", options={"p": {"q": [1]}})
    assert found == Outer(
        name="x", rate=2.0, pair=(3, 4), many=("a",), inner=Inner(size=5), bits="auto", options={"p": {"q": [1]}},
        origin="here",
    )  # fmt: skip
    assert isinstance(found.rate, float)


def test_numbers_of_numpy_are_numbers():
    found = read(rate=np.float64(0.25), bits=np.int64(8), on=np.bool_(True))
    assert (found.rate, found.bits, found.on) == (0.25, 8, True)
    assert {type(found.rate), type(found.bits), type(found.on)} == {float, int, bool}


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        ({"rat": 1.0}, "rat must be a known setting, got 'rat'; did you mean 'rate'?"),
        ({"zzzzz": 1}, "zzzzz must be a known setting, got 'zzzzz'; known are name, rate, on, kind"),
        ({"origin": "a"}, "origin must be a known setting, got 'origin'"),
        ({"name": 3}, "name must be text, got 3"),
        ({"rate": "big"}, "rate must be a number, got 'big'"),
        ({"rate": True}, "rate must be a number, got True"),
        ({"on": 1}, "on must be true or false, got 1"),
        ({"kind": "even"}, "kind must be one of plain, odd, got 'even'"),
        ({"bits": 7}, "bits must be one of 32, 8 or auto, got 7"),
        ({"pair": [1]}, "pair must be a list of 2, got [1]"),
        ({"pair": 3}, "pair must be a list of 2, got 3"),
        ({"pair": [1, 2.5]}, "pair must be a whole number, got 2.5"),
        ({"many": "a"}, "many must be a list, got 'a'"),
        ({"many": ["a", 1]}, "many must be text, got 1"),
        ({"inner": 3}, "inner must be a table, got 3"),
        ({"inner": {"size": 1.0}}, "inner.size must be a whole number, got 1.0"),
        ({"inner": {"siz": 1}}, "inner.siz must be a known setting, got 'siz'; did you mean 'size'?"),
        ({"options": {"p": 3}}, "options.p must be a table, got 3"),
    ],
)
def test_each_mistake_gets_its_sentence(table, sentence):
    with pytest.raises(InputError) as caught:
        read(**table)
    assert str(caught.value).startswith(sentence)


def test_what_must_be_there_is_named():
    with pytest.raises(InputError, match=r"^name must be given, got nothing$"):
        decode(Outer, {})
    with pytest.raises(InputError, match=r"^the file must be a table, got 3$"):
        decode(Outer, 3)


def test_tables_lie_over_each_other():
    base = {"a": {"b": 1, "c": 2}, "d": 3}
    assert merged(base, {"a": {"b": 5, "c": None}, "d": {"e": 6}}) == {"a": {"b": 5}, "d": {"e": 6}}
    assert base == {"a": {"b": 1, "c": 2}, "d": 3}, "neither of them changes"


def test_tables_become_toml():
    table = {
        "name": 'a "b" \\ \n ü', "on": True, "x": 1e-9, "far": float("inf"), "none": [], "empty": {},
        "list": [1, 2.5, "c", [{"kind": "d"}]], "deep": {"er": {"n": 1}, "odd key": 2}, "1.5": {"é": {"y": -3}},
    }  # fmt: skip
    assert tomllib.loads(to_toml(table | {"nothing": None})) == table
