"""One client's local training, and whether what comes of it may reach the model."""

import math
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from flwr.app import ArrayRecord

from fedtempo.checks import InputError, Vector
from fedtempo.engine.clients import Arrays
from fedtempo.flower.strategy.layout import VARIANCE_ENDING, Buffers, Layout
from fedtempo.flower.strategy.messenger import said_in_short
from fedtempo.learning.trainer import Parameters, norms

LARGEST_UPDATE = 100.0  # times the median of updates so far: beyond, an update is refused
ENOUGH_TO_JUDGE = 3  # updates: the first to arrive are held until there are so many, or no more to come
UPDATES_KEPT = 100
LARGEST_CHANGE = 10.0  # of each parameter, on average, by a first update that comes alone
LARGEST_STATISTIC = 1e4  # times the usual, or one
KEPT = ("accepted", "gradients", "statistics")  # of a judge, in checkpoints


@dataclass(eq=False, slots=True)
class Job:
    """One client's local training, from the message that asks for it to its update."""

    client: int
    share: float  # of the bandwidth that its upload has
    steps: int
    step_size: float  # that it trains with
    schedule: float  # η of the schedule at its start
    start: Parameters  # the model that it starts from
    expires: float  # on the monotonic clock: nobody waits for it any longer
    weight: float = 0.0
    version: int = 0
    update: Parameters | None = None  # None: it failed
    failure: str | None = None
    sent: float = 0.0  # on the monotonic clock
    arrived: float | None = None  # None: no answer
    fetched: bool = False  # computed before, and kept
    numbers: dict[str, float] = field(default_factory=dict)
    buffers: Buffers = field(default_factory=dict)

    @property
    def path(self) -> float:
        """Step size times steps: updates grow with it."""
        return self.step_size * self.steps

    def seconds_told(self) -> float:
        """Return how long the client says that it computed, negative if it does not, or cannot have."""
        told = float(self.numbers.get("compute-seconds", -1.0))
        could_be = self.fetched or (self.arrived is not None and told <= self.arrived - self.sent)
        return told if could_be else -1.0


class Judge:
    """Takes updates and numbers, or refuses them: a client may send anything."""

    def __init__(self, layout: Layout) -> None:
        """Start with none."""
        self.layout = layout
        self.accepted: list[float] = []  # norms of the last updates but for those of nothing, over their paths
        self.doubtful: tuple[int, float] | None = None  # whose was refused last, for as long as none is accepted
        self.gradients: list[float] = []  # norms of the last gradients that clients told
        self.statistics: list[float] = []  # largest of the last statistics of batch normalisation, also of refused ones

    def state(self) -> Arrays:
        """Return what a resumed run needs."""
        return {name: np.array(getattr(self, name)) for name in KEPT}

    def restore(self, arrays: Arrays) -> None:
        """Take it up."""
        for name in KEPT:
            setattr(self, name, arrays[name].tolist())

    def can_judge(self, unjudged: int) -> bool:
        """Return whether so many updates are enough, with those before, to tell a usual size from an absurd one."""
        return len(self.accepted) + unjudged >= ENOUGH_TO_JUDGE

    def read(self, job: Job, arrays: ArrayRecord) -> None:
        """Take the update of a job out of the model that its client sent, if that is one."""
        try:
            update, buffers = self.layout.flatten(arrays) - job.start, self.layout.buffers_of(arrays)
        except Exception as error:  # whatever reading it raises
            said = str(error) if isinstance(error, InputError) else f"{type(error).__name__}: {error}"
            job.failure = said_in_short(f"refused: {said}")
            return
        negative = [name for name, values in buffers.items() if name.endswith(VARIANCE_ENDING) and (values < 0).any()]
        if not (np.isfinite(update).all() and all(np.isfinite(values).all() for values in buffers.values())):
            job.failure = "refused: an update must be finite"
        elif negative:
            job.failure = f"refused: {negative[0]!r} must be variances, got negative ones"
        else:
            job.update, job.buffers = update, buffers

    def refuse_absurd(self, jobs: list[Job]) -> None:
        """Refuse updates that are far larger than most, of this round and before, for their step size and steps.

        The very first that comes alone has nothing to be compared with but the model that it starts from, or, where
        that is next to nothing, a change of some units in each parameter. Refused, it is still what those of others
        are compared with, so that a scale which nobody expected does not shut everyone out.
        """
        self._refuse_absurd_statistics(jobs)
        sizes = {job.client: float(norms(job.update[None])[0]) for job in jobs if job.update is not None}
        sized = [job for job in jobs if sizes.get(job.client)]
        now = {job.client: sizes[job.client] / job.path for job in sized}
        before = self.accepted
        if not before and self.doubtful is not None and self.doubtful[0] not in now:
            before = [self.doubtful[1]]
        known = sorted([*before, *now.values()])
        for job in sized:
            usual, size = known[(len(known) - 1) // 2] * job.path, sizes[job.client]
            if len(known) == 1:
                some_units = LARGEST_CHANGE * math.sqrt(self.layout.size) / LARGEST_UPDATE
                usual = max(float(norms(job.start[None])[0]), some_units)
            if size > LARGEST_UPDATE * usual:
                job.update, job.failure = None, f"refused: an update of norm {size:.3g}, where {usual:.3g} is usual"
                self.doubtful = job.client, now.pop(job.client)
        self.accepted = [*self.accepted, *now.values()][-UPDATES_KEPT:]

    def _refuse_absurd_statistics(self, jobs: list[Job]) -> None:
        """Refuse those whose batch normalisation has far larger statistics than most, of this round and before."""
        largest = {
            job.client: max(float(np.abs(values).max(initial=0.0)) for values in job.buffers.values())
            for job in jobs
            if job.update is not None and job.buffers
        }
        known = sorted([*self.statistics, *largest.values()])
        for job in jobs:
            usual = max(known[(len(known) - 1) // 2], 1.0) if job.client in largest else math.inf
            if largest.get(job.client, 0.0) > LARGEST_STATISTIC * usual:
                job.update, job.failure = None, f"refused: statistics of {largest[job.client]:.3g}, beyond all others'"
        self.statistics = [*self.statistics, *largest.values()][-UPDATES_KEPT:]

    def believe(self, told: Vector) -> npt.NDArray[np.bool_]:
        """Return which norms of gradients that clients tell can be; negative ones stand for none."""
        known = sorted([*self.gradients, *told[told > 0].tolist()])
        can_be = told >= 0
        if len(known) >= ENOUGH_TO_JUDGE:
            can_be &= told <= LARGEST_UPDATE * known[(len(known) - 1) // 2]
        self.gradients = [*self.gradients, *told[can_be & (told > 0)].tolist()][-UPDATES_KEPT:]
        return can_be
