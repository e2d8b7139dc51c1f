"""One client's local training, and whether what comes of it may reach the model."""

import math
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from flwr.app import ArrayRecord

from fedtempo.checks import InputError, Vector
from fedtempo.flower.arrays import VARIANCE_ENDING, Buffers, Layout
from fedtempo.flower.messenger import said_in_short
from fedtempo.learning.trainer import Parameters, norms

LARGEST_UPDATE = 100.0  # times the median of updates so far: beyond, an update is refused
ENOUGH_TO_JUDGE = 3  # updates: the first to arrive are held until there are so many, or no more to come
UPDATES_KEPT = 100
LARGEST_CHANGE = 10.0  # of each parameter, on average, by a first update that comes alone
LARGEST_BUFFER = 1e4  # times the largest of them now, and one


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
        self.accepted: list[float] = []  # norms of the last updates, over their paths
        self.doubtful: list[float] = []  # that of the one refused last, for as long as none is accepted
        self.gradients: list[float] = []  # norms of the last gradients that clients told

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
        if not np.isfinite(update).all():
            job.failure = "refused: an update must be finite"
        elif wrong := next((name for name, values in buffers.items() if not self._is_buffer(name, values)), None):
            job.failure = f"refused: {wrong!r} must be what batch normalisation keeps, got other numbers"
        else:
            job.update, job.buffers = update, buffers

    def refuse_absurd(self, jobs: list[Job]) -> None:
        """Refuse updates that are far larger than most, of this round and before, for their step size and steps.

        The very first that comes alone has nothing to be compared with but the model that it starts from, or, where
        that is next to nothing, a change of some units in each parameter. Refused, it is still what the next is
        compared with, so that a scale which nobody expected does not shut everyone out.
        """
        sizes = {job.client: float(norms(job.update[None])[0]) for job in jobs if job.update is not None}
        paths = {job.client: job.path for job in jobs}
        before = self.accepted or self.doubtful
        known = sorted(filter(None, [*before, *(size / paths[client] for client, size in sizes.items())]))
        for job in jobs:
            if not (size := sizes.get(job.client, 0.0)):
                continue
            usual = known[(len(known) - 1) // 2] * job.path
            if len(known) == 1:
                some_units = LARGEST_CHANGE * math.sqrt(self.layout.size) / LARGEST_UPDATE
                usual = max(float(norms(job.start[None])[0]), some_units)
            if size > LARGEST_UPDATE * usual:
                job.update, job.failure = None, f"refused: an update of norm {size:.3g}, where {usual:.3g} is usual"
                self.doubtful = [sizes.pop(job.client) / job.path]
        accepted = [size / paths[client] for client, size in sizes.items()]
        self.accepted = [*self.accepted, *accepted][-UPDATES_KEPT:]

    def believe(self, told: Vector) -> npt.NDArray[np.bool_]:
        """Return which norms of gradients that clients tell can be; negative ones stand for none."""
        known = sorted([*self.gradients, *told[told > 0].tolist()])
        can_be = told >= 0
        if len(known) >= ENOUGH_TO_JUDGE:
            can_be &= told <= LARGEST_UPDATE * known[(len(known) - 1) // 2]
        self.gradients = [*self.gradients, *told[can_be & (told > 0)].tolist()][-UPDATES_KEPT:]
        return can_be

    def _is_buffer(self, name: str, values: npt.NDArray[np.float64]) -> bool:
        """Return whether these may be statistics of batch normalisation: none is negative variance, or absurd."""
        largest = LARGEST_BUFFER * (1.0 + float(np.abs(self.layout.buffers[name]).max(initial=0.0)))
        negative = name.endswith(VARIANCE_ENDING) and (values < 0).any()
        return bool((np.abs(values) <= largest).all()) and not negative
