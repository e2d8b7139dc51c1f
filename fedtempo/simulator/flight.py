"""Clients in flight: they have started, perhaps from a model that is stale by now, and their updates are to arrive."""

from dataclasses import dataclass, fields, replace
from typing import NamedTuple

import numpy as np

from fedtempo.checks import Booleans, Integers, Vector
from fedtempo.learning.trainer import Buffers, LocalResult, Parameters


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class Flight:
    """One entry for each client in flight, in the order in which they started.

    Updates are computed at the start and kept until they arrive: what a client does depends on nothing later.
    """

    client: Integers
    weight: Vector  # of its update in the aggregate, before the discount for staleness
    version: Integers  # server steps that had been taken when it started
    step_size: Vector  # η that it trains with
    local_steps: Integers
    compute_time: Vector  # τ_i at its start
    ready: Vector  # when it can upload, on the clock of the run; ∞: never, it was not available
    update: Parameters
    buffers: Buffers  # as rows, which are empty where the model has none
    largest_gradient_norm: Vector
    mean_gradient_norm: Vector
    mean_loss: Vector
    upload_bits: Integers  # of a number in its upload
    noise: Vector  # ω of each size of uploads, as rows, which are empty where it is not measured

    @classmethod
    def of_nobody(cls, num_parameters: int, num_buffers: int = 0, sizes: int = 0) -> "Flight":
        """Return a flight without clients."""
        whole, real = np.empty(0, dtype=np.int64), np.empty(0)
        return cls(
            client=whole, weight=real, version=whole, step_size=real, local_steps=whole, compute_time=real, ready=real,
            update=np.empty((0, num_parameters), dtype=np.float32), buffers=np.empty((0, num_buffers)),
            largest_gradient_norm=real, mean_gradient_norm=real, mean_loss=real,
            upload_bits=whole, noise=np.empty((0, sizes)),
        )  # fmt: skip

    def __len__(self) -> int:
        """Return how many are in flight."""
        return len(self.client)

    def joined_by(self, others: "Flight") -> "Flight":
        """Return these clients and then the others."""
        sizes = max(self.noise.shape[1], others.noise.shape[1])
        both = self._with_noise_of(sizes), others._with_noise_of(sizes)
        return Flight(**{name: np.concatenate([getattr(one, name) for one in both]) for name in NAMES})

    def _with_noise_of(self, sizes: int) -> "Flight":
        """Return the same with ω of so many sizes; NaN: it was not measured, since the plan named no bits."""
        if self.noise.shape[1] == sizes:
            return self
        return replace(self, noise=np.full((len(self), sizes), np.nan))

    def part(self, chosen: Booleans) -> "Flight":
        """Return some of the clients."""
        return Flight(**{name: getattr(self, name)[chosen] for name in NAMES})

    def arrivals(self, now: float, seconds: Vector) -> Vector:
        """Return when each update arrives if nobody else starts: first come, first served, each with the whole link.

        ``now`` is when the last update arrived: the link is free, and whoever is ready has waited in line since.
        ``seconds`` is how long each upload takes now. A round ends with an arrival, so no upload is cut by its end.
        """
        free, arrival = now, np.empty(len(self))
        for i in np.argsort(self.ready, kind="stable"):
            free = arrival[i] = max(free, self.ready[i]) + seconds[i]
        return arrival

    def wait(self, wait_for: int, now: float, seconds: Vector) -> "Landing":
        """Wait for so many updates, or for all if there are fewer; those who were not available fail at once."""
        arrival = self.arrivals(now, seconds)
        failed = np.isinf(arrival)
        end = float(np.sort(arrival[~failed])[:wait_for].max(initial=now))
        leaving = failed | (arrival <= end)
        return Landing(self.part(leaving), failed[leaving], self.part(~leaving), end)

    @property
    def result(self) -> LocalResult:
        """What the clients computed."""
        return LocalResult(
            update=self.update,
            largest_gradient_norm=self.largest_gradient_norm,
            mean_gradient_norm=self.mean_gradient_norm,
            mean_loss=self.mean_loss,
            buffers=self.buffers if self.buffers.shape[1] else None,
            noise=self.noise if self.noise.shape[1] else None,
        )


NAMES = tuple(field.name for field in fields(Flight))


class Landing(NamedTuple):
    """What came of waiting."""

    landed: Flight  # who is no longer in flight
    failed: Booleans  # of those, who brings no update
    remaining: Flight
    time: float  # of the last arrival, on the clock of the run
