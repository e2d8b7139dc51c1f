"""States: written as arrays, read back as they were, and refused where a field is missing or too many."""

import json
import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from fedtempo import InputError
from fedtempo.state import VALUES, NoState, Rows, read_state, read_states, write_state, write_states

Numbers = npt.NDArray[Any]


@dataclass
class Inner:
    name: str = ""
    values: Numbers | None = None


@dataclass
class State:
    """A field of every kind."""

    count: int = 0
    seconds: float = 0.0
    text: str = ""
    flag: bool = False
    perhaps: float | None = None
    several: list[float] = field(default_factory=list)
    pair: tuple[int, str] = (0, "")
    by_client: dict[int, float] = field(default_factory=dict)
    anything: dict[str, object] = field(default_factory=dict)
    array: Numbers = field(default_factory=lambda: np.zeros(2))
    absent: Numbers | None = None
    arrays: dict[str, Numbers] = field(default_factory=dict)
    rows: Rows = field(default_factory=Rows)
    inner: Inner = field(default_factory=Inner)
    inners: list[Inner] = field(default_factory=list)


def full():
    return State(
        count=3, seconds=0.1 + 0.2, text="η ✓ \n", flag=True, perhaps=1e-300, several=[1.5, 2.0], pair=(4, "a"),
        by_client={7: 0.5, 2: 0.25}, anything={"list": [1, 2.5, None, {"b": "c"}]},
        array=np.arange(6, dtype=np.float32).reshape(2, 3), absent=np.array([True, False]),
        arrays={"one": np.array([1], dtype=np.int8), "none": np.empty((0, 4))},
        rows=Rows({5: np.array([1.0, 2.0]), 1: np.array([3.0, 4.0])}),
        inner=Inner("inside", np.array([9.0])), inners=[Inner("first"), Inner("second", np.array([8]))],
    )  # fmt: skip


def through_a_file(arrays, folder):
    np.savez(folder / "state.npz", **arrays)
    with np.load(folder / "state.npz") as saved:
        return {name: saved[name] for name in saved.files}


def same_array(one, other):
    return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()


def test_every_kind_of_field_is_read_as_it_was_written(tmp_path):
    before = full()
    after = read_state(State, through_a_file(write_state(before), tmp_path))
    for name in ("count", "seconds", "text", "flag", "perhaps", "several", "pair", "by_client", "anything"):
        assert getattr(after, name) == getattr(before, name), name
        assert type(getattr(after, name)) is type(getattr(before, name)), name
    assert list(after.by_client) == [7, 2], "in their order"
    assert same_array(after.array, before.array)
    assert same_array(after.absent, before.absent)
    assert list(after.arrays) == ["one", "none"]
    assert all(same_array(after.arrays[name], before.arrays[name]) for name in before.arrays)
    assert after.inner.name == "inside"
    assert same_array(after.inner.values, before.inner.values)
    assert [inner.name for inner in after.inners] == ["first", "second"]
    assert after.inners[0].values is None
    assert same_array(after.inners[1].values, before.inners[1].values)


def test_rows_are_two_arrays_however_many_clients_there_are(tmp_path):
    rows = Rows({client: np.full(3, client, dtype=np.float32) for client in (9, 0, 400)})
    few, many = (write_state(State(rows=one)) for one in (Rows(), rows))
    assert len(many) == len(few)
    read = read_state(State, through_a_file(many, tmp_path)).rows.by_client
    assert list(read) == [9, 0, 400]
    assert all(same_array(read[client], rows.by_client[client]) for client in read)
    assert read_state(State, through_a_file(few, tmp_path)).rows.by_client == {}


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf, -0.0, 5e-324, 1.7976931348623157e308])
def test_numbers_that_json_has_not_are_carried_over_too(number):
    state = State(seconds=number, several=[number], anything={"deep": [number]}, array=np.array([number]))
    after = read_state(State, write_state(state))
    for found in (after.seconds, after.several[0], after.anything["deep"][0], after.array[0]):
        assert np.float64(found).tobytes() == np.float64(number).tobytes()


@pytest.mark.parametrize(
    ("name", "value", "read"),
    [
        ("seconds", 0, 0.0),
        ("several", [1, 2.5], [1.0, 2.5]),
        ("count", np.int64(3), 3),
        ("seconds", np.float32(0.5), 0.5),
        ("flag", np.bool_(True), True),
    ],
)
def test_numbers_of_numpy_and_whole_ones_among_floats_are_taken(name, value, read):
    assert getattr(read_state(State, write_state(State(**{name: value}))), name) == read


def test_arrays_go_by_name_not_by_their_order():
    state = full()
    arrays = dict(reversed(write_state(state).items()))
    assert same_array(read_state(State, arrays).array, state.array)
    renamed = {{"0": "1", "1": "0"}.get(name, name): array for name, array in arrays.items()}
    assert same_array(read_state(State, renamed).array, state.absent)


def changed(change, state=None):
    arrays = write_state(state or full())
    values = json.loads(arrays[VALUES].tobytes())
    change(values)
    return arrays | {VALUES: np.frombuffer(json.dumps(values).encode(), dtype=np.uint8)}


@pytest.mark.parametrize(
    "change",
    [
        lambda values: values.pop("count"),
        lambda values: values.pop("array"),
        lambda values: values["inner"].pop("name"),
        lambda values: values["inners"][1].pop("values"),
        lambda values: values.update(later=1),
        lambda values: values["inner"].update(later=None),
        lambda values: values.update(count="many"),
        lambda values: values.update(array="99"),
        lambda values: values.update(array=3.5),
        lambda values: values.update(array=["0"]),
        lambda values: values.update(rows=["0"]),
        lambda values: values.update(rows=None),
        lambda values: values.clear(),
    ],
)
def test_a_state_with_another_field_or_without_one_is_refused_in_a_sentence(change):
    with pytest.raises(InputError, match=r"^State must be as this version of fedtempo writes it, got ") as caught:
        read_state(State, changed(change))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("values", [None, b"", b"[]", b"{", b"\xff"])
def test_what_is_no_state_is_refused(values):
    arrays = {} if values is None else {VALUES: np.frombuffer(values, dtype=np.uint8)}
    with pytest.raises(InputError, match="State must be as this version of fedtempo writes it"):
        read_state(State, arrays)


def test_a_missing_array_is_refused():
    arrays = write_state(full())
    for name in set(arrays) - {VALUES}:
        with pytest.raises(InputError, match="as this version of fedtempo writes it"):
            read_state(State, {other: array for other, array in arrays.items() if other != name})


class Remembering(State):
    @cached_property
    def total(self):
        return self.count + self.seconds


def test_only_fields_are_written():
    state = Remembering(count=1)
    assert state.total == 1
    assert read_state(Remembering, write_state(state)).count == 1


def test_what_a_state_cannot_hold_is_said_when_it_is_written():
    with pytest.raises(TypeError, match="a state holds numbers, text and arrays, got function"):
        write_state(State(anything={"policy": lambda: None}))


@dataclass
class Part:
    state: Any


def test_parts_are_read_all_or_none():
    parts = {"one": Part(State(count=1)), "other": Part(Inner("x", np.ones(2))), "nothing": Part(NoState())}
    arrays = write_states(parts)
    fresh = {"one": Part(State()), "other": Part(Inner()), "nothing": Part(NoState())}
    del arrays["other.0"]
    with pytest.raises(InputError, match=r"^Inner must be as"):
        read_states(fresh, arrays)
    assert fresh["one"].state.count == 0, "nothing has changed"
    read_states(fresh, write_states(parts))
    assert (fresh["one"].state.count, fresh["other"].state.name, fresh["nothing"].state) == (1, "x", NoState())
