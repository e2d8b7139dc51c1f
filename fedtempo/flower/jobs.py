"""One client's local training, and whether what comes of it may reach the model."""

from dataclasses import dataclass, field

import numpy as np
from flwr.app import ArrayRecord

from fedtempo.checks import InputError
from fedtempo.flower.arrays import Buffers, Layout
from fedtempo.flower.messenger import LONGEST_REASON
from fedtempo.learning.trainer import Parameters, norms

LARGEST_UPDATE = 100.0  # times the median of updates so far: beyond, an update is refused
ENOUGH_TO_JUDGE = 3  # updates: the first to arrive are held until there are so many, or no more to come
UPDATES_KEPT = 100


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


class Judge:
    """Takes updates, or refuses them: a client may send anything."""

    def __init__(self, layout: Layout) -> None:
        """Start with none."""
        self.layout = layout
        self.accepted: list[float] = []  # norms of the last updates, over their paths

    def can_judge(self, unjudged: int) -> bool:
        """Return whether so many updates are enough, with those before, to tell a usual size from an absurd one."""
        return len(self.accepted) + unjudged >= ENOUGH_TO_JUDGE

    def read(self, job: Job, arrays: ArrayRecord) -> None:
        """Take the update of a job out of the model that its client sent, if that is one."""
        try:
            update, job.buffers = self.layout.flatten(arrays) - job.start, self.layout.buffers_of(arrays)
        except Exception as error:  # whatever reading it raises
            said = str(error) if isinstance(error, InputError) else f"{type(error).__name__}: {error}"
            job.failure = f"refused: {said}"[:LONGEST_REASON]
            return
        if np.isfinite(update).all() and all(np.isfinite(values).all() for values in job.buffers.values()):
            job.update = update
        else:
            job.failure = "refused: an update must be finite"

    def refuse_absurd(self, jobs: list[Job]) -> None:
        """Refuse updates that are far larger than most, of this round and before, for their step size and steps.

        The very first that comes alone has nothing to be compared with but the model that it starts from.
        """
        sizes = {job.client: float(norms(job.update[None])[0]) for job in jobs if job.update is not None}
        paths = {job.client: job.path for job in jobs}
        known = sorted(filter(None, [*self.accepted, *(size / paths[client] for client, size in sizes.items())]))
        for job in jobs:
            if not (size := sizes.get(job.client, 0.0)):
                continue
            usual = known[(len(known) - 1) // 2] * job.path
            if len(known) == 1:
                usual = float(norms(job.start[None])[0]) or size
            if size > LARGEST_UPDATE * usual:
                job.update, job.failure = None, f"refused: an update of norm {size:.3g}, where {usual:.3g} is usual"
                del sizes[job.client]
        accepted = [size / paths[client] for client, size in sizes.items()]
        self.accepted = [*self.accepted, *accepted][-UPDATES_KEPT:]
