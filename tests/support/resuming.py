"""Runs that are stopped, carried over to new objects by their states, and gone on with; whole, or with a field less."""

import zlib
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import fields, is_dataclass, replace
from itertools import islice

import numpy as np

from fedtempo.engine.divergence import DivergedError
from fedtempo.engine.loop import Loop
from fedtempo.engine.records import encode
from fedtempo.learning.trainer import Evaluation
from fedtempo.simulator.simulated_clients import SimulatedClients, SimulatedRound
from fedtempo.simulator.workers import LocalWorkers
from fedtempo.state import write_state

Path = tuple[str, ...]  # the name of a part, then those of fields, one inside the other
Make = Callable[..., Loop]  # makes a run at its start; with ``again``, as another process would that does not know w₀


class BufferedWorkers(LocalWorkers):
    """Workers whose model has buffers, which its evaluation depends on.

    Another process finds another loss of w₀. Where training is to diverge, its loss or its updates do so once buffers
    have grown.
    """

    def __init__(self, *arguments, first, again, diverges, overflows, **settings):
        super().__init__(*arguments, **settings)
        self.first, self.again = first, again
        self.most, self.most_trained = (2.0 if sooner else np.inf for sooner in (diverges, overflows))

    def train(self, work, start):
        result = super().train(work, start)
        norms = np.nan_to_num(result.update_norm, posinf=1.0)
        update = result.update * (np.inf if start.buffers.sum() > self.most_trained else 1)
        return replace(result, update=update, buffers=start.buffers + np.minimum(norms, 1.0)[:, np.newaxis])

    def evaluate(self, model, buffers):
        found = super().evaluate(model, buffers)
        strange = 0.5 if self.again and np.array_equal(model, self.first) else 0.0
        loss = 1e9 if buffers.sum() > self.most else found.loss + 1e-3 * float(buffers.sum())
        return Evaluation(loss + strange, found.accuracy)


class UnreliableClients(SimulatedClients):
    """Clients of which one or another fails in a round, without a word."""

    def begin(self, start):
        return UnreliableRound(self, start, self.channel.at(start.rounds_done, start.time))


class UnreliableRound(SimulatedRound):
    def train(self, plan):
        return self._some_fail(super().train(plan))

    def train_some(self, plan):
        return self._some_fail(super().train_some(plan))

    def start_again(self, start):
        begun = super().start_again(start)
        return UnreliableRound(begun.clients, begun.start, begun.now, begun.probed)

    def _some_fail(self, outcome):
        now = self.start.rounds_done
        lots = [zlib.crc32(f"{client} {now // 3}".encode()) % 4 == 0 for client in outcome.plan.members.tolist()]
        return outcome._replace(failed=outcome.failed | np.array(lots, dtype=bool))


def lines(loop: Loop) -> Iterator[bytes]:
    """Run; yield the lines of the records as they come."""
    try:
        with np.errstate(all="ignore"):  # where updates overflow
            for record in loop.rounds():
                yield encode(record)
    except DivergedError as error:
        loop.ended = "diverged"
        yield str(error).encode()
    yield encode(loop.summary())


def carried_over(make: Make, after: int, left_out: Path | None = None) -> list[bytes]:
    """Run so many rounds, carry the run over to new objects, and go on; return all lines.

    ``left_out``: a field that is forgotten on the way, so that it is what it was in the new objects.
    """
    first, second = make(), make(again=True)
    before = list(islice(lines(first), after))
    if first.ended is not None:
        return list(lines(make()))
    fresh = states_of(second)
    second.resume({name: array.copy() for name, array in first.save().items()})
    if left_out is not None:
        name, *path = left_out
        part = second.parts[name]
        part.state = _without(part.state, fresh[name], tuple(path))
    return before + list(lines(second))


def states_of(loop: Loop) -> dict[str, object]:
    """Return copies of all states."""
    return {name: deepcopy(part.state) for name, part in loop.parts.items()}


def changed_fields(states: dict[str, object], fresh: dict[str, object]) -> Iterator[tuple[Path, str]]:
    """Yield the path of every field that is not what it was at first, and its name by its class."""
    for name, state in states.items():
        for path, field in _changed(state, fresh[name]):
            yield (name, *path), field


def all_fields(states: dict[str, object]) -> set[str]:
    """Return the names of all fields by their classes."""
    return {name for state in states.values() for name in _named(state)}


def _named(state: object) -> Iterator[str]:
    for one in fields(state):
        value = getattr(state, one.name)
        if is_dataclass(value):
            yield from _named(value)
        else:
            yield f"{type(state).__name__}.{one.name}"


def _changed(state: object, fresh: object) -> Iterator[tuple[Path, str]]:
    for one in fields(state):
        value, at_first = getattr(state, one.name), getattr(fresh, one.name, None)
        if is_dataclass(value):
            yield from (((one.name, *path), name) for path, name in _changed(value, at_first))
        if (not is_dataclass(value) or at_first is None) and (fresh is None or not _same(value, at_first)):
            yield (one.name,), f"{type(state).__name__}.{one.name}"


def _same(one: object, other: object) -> bool:
    written = [write_state({"value": value}) for value in (one, other)]
    return written[0].keys() == written[1].keys() and all(
        np.array_equal(array, written[1][name], equal_nan=array.dtype.kind == "f") for name, array in written[0].items()
    )


def _without(state: object, fresh: object, path: Path) -> object:
    name, *rest = path
    value = getattr(state, name)
    if rest:
        inner = getattr(fresh, name, None)
        return replace(state, **{name: _without(value, inner if type(inner) is type(value) else None, tuple(rest))})
    return replace(state, **{name: _nothing(value) if fresh is None else getattr(fresh, name)})


def _nothing(value: object) -> object:
    return np.zeros_like(value) if isinstance(value, np.ndarray) else type(value)()
