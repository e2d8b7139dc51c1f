"""Whether what clients report may reach the model, or a policy: a client may send anything."""

import math
from dataclasses import dataclass, field, replace

import numpy as np
from flwr.app import ArrayRecord

from fedtempo.checks import Booleans, InputError, Vector
from fedtempo.flower.strategy.assignment import ClientReport
from fedtempo.flower.strategy.failures import Failure, refused
from fedtempo.flower.strategy.layout import Layout
from fedtempo.flower.strategy.packing import Packing, unpack_upload
from fedtempo.learning.trainer import Buffers, Parameters, norms

LARGEST_UPDATE = 100.0  # times the median of updates so far: beyond, an update is refused
ENOUGH_TO_JUDGE = 3  # updates: the first to arrive are held until there are so many, or no more to come
UPDATES_KEPT = 100
LARGEST_CHANGE = 10.0  # of each parameter, on average, by a first update that comes alone
LARGEST_STATISTIC = 1e4  # times the usual, or one


@dataclass(frozen=True, slots=True)
class Doubtful:
    """The update that was refused last; it counts for as long as none is accepted."""

    client: int
    size: float  # its norm over its path


@dataclass(slots=True)
class JudgeState:
    """What is usual: everything that a resumed run needs to judge as before."""

    accepted: list[float] = field(default_factory=list)  # norms of the last updates over their paths, zeros left out
    doubtful: Doubtful | None = None
    gradients: list[float] = field(default_factory=list)  # norms of the last gradients that clients reported
    statistics: list[float] = field(default_factory=list)  # largest of the last buffers, also of refused ones


class Judge:
    """Takes updates and numbers, or refuses them."""

    def __init__(self, layout: Layout, state: JudgeState | None = None) -> None:
        """Take the layout that updates must have, and what is usual so far."""
        self.layout, self.state = layout, state or JudgeState()

    def can_judge(self, unjudged: int) -> bool:
        """Return whether so many updates are enough, with those before, to know a usual size from an absurd one."""
        return len(self.state.accepted) + unjudged >= ENOUGH_TO_JUDGE

    def read(
        self, start: Parameters, arrays: ArrayRecord, packing: Packing | None = None
    ) -> tuple[Parameters, Buffers] | Failure:
        """Return the update and the buffers in what a client sent, or why they are refused.

        ``packing``: how it was to pack its update; None: it was to send the model.
        """
        try:
            if packing is None:
                model, buffers = self.layout.read(arrays)
                update = model - start
            else:
                update, buffers = unpack_upload(self.layout, arrays, packing)
        except InputError as error:
            return refused(str(error))
        except Exception as error:  # whatever reading it raises
            return refused(f"{type(error).__name__}: {error}")
        if not (np.isfinite(update).all() and np.isfinite(buffers).all()):
            return refused("an update must be finite")
        if (name := self.layout.negative_variance(buffers)) is not None:
            return refused(f"{name!r} must be variances, got negative ones")
        return update, buffers

    def refuse_absurd(self, reports: list[ClientReport]) -> list[ClientReport]:
        """Return reports without updates far larger than most, of this round and before, for their steps and sizes.

        The very first that comes alone has nothing to be compared with but the model that it starts from, or, where
        that is next to nothing, a change of some units in each parameter. Refused, it is still what those of others
        are compared with, so that a scale which nobody expected does not shut everyone out.
        """
        reports, state = self._refuse_absurd_statistics(reports), self.state
        sizes = {one.client: float(norms(one.update[None])[0]) for one in reports if one.update is not None}
        now = {one.client: sizes[one.client] / one.assignment.path for one in reports if sizes.get(one.client)}
        before = state.accepted
        if not before and state.doubtful is not None and state.doubtful.client not in now:
            before = [state.doubtful.size]
        known = sorted([*before, *now.values()])
        judged = []
        for one in reports:
            size = sizes.get(one.client)
            usual = self._usual(one, known) if size else math.inf
            if size and size > LARGEST_UPDATE * usual:
                state.doubtful = Doubtful(one.client, now.pop(one.client))
                one = _without_update(one, f"an update of norm {size:.3g}, where {usual:.3g} is usual")
            judged.append(one)
        state.accepted = [*state.accepted, *now.values()][-UPDATES_KEPT:]
        return judged

    def believe(self, reported: Vector) -> Booleans:
        """Return which norms of gradients that clients report can be; negative ones stand for none."""
        known = sorted([*self.state.gradients, *reported[reported > 0].tolist()])
        can_be = reported >= 0
        if len(known) >= ENOUGH_TO_JUDGE:
            can_be &= reported <= LARGEST_UPDATE * _median(known)
        self.state.gradients = [*self.state.gradients, *reported[can_be & (reported > 0)].tolist()][-UPDATES_KEPT:]
        return can_be

    def _usual(self, report: ClientReport, known: list[float]) -> float:
        """Return the norm of an update that would be usual for an assignment."""
        if len(known) > 1:
            return _median(known) * report.assignment.path
        some_units = LARGEST_CHANGE * math.sqrt(self.layout.num_parameters) / LARGEST_UPDATE
        return max(float(norms(report.assignment.model[None])[0]), some_units)

    def _refuse_absurd_statistics(self, reports: list[ClientReport]) -> list[ClientReport]:
        """Refuse those whose batch normalisation has far larger statistics than most, of this round and before."""
        largest = {
            one.client: float(np.abs(one.buffers).max())
            for one in reports
            if one.update is not None and one.buffers.size
        }
        known = sorted([*self.state.statistics, *largest.values()])
        limit = LARGEST_STATISTIC * max(_median(known), 1.0) if largest else math.inf
        self.state.statistics = [*self.state.statistics, *largest.values()][-UPDATES_KEPT:]
        return [
            _without_update(one, f"statistics of {largest[one.client]:.3g}, beyond all others'")
            if largest.get(one.client, 0.0) > limit
            else one
            for one in reports
        ]


def _without_update(report: ClientReport, why: str) -> ClientReport:
    return replace(report, update=None, failure=refused(why))


def _median(ordered: list[float]) -> float:
    """Return the lower median of numbers in order."""
    return ordered[(len(ordered) - 1) // 2]
