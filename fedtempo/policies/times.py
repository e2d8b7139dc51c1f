"""How long clients compute and upload, as far as a policy can know it."""

from typing import Any

import numpy as np

from fedtempo.checks import Integers, Vector
from fedtempo.fleet import Fleet
from fedtempo.policies.policy import RoundContext, RoundReport

SHARE_OF_THE_PAST = 0.7  # in running means of measured times, after the first


class ClientTimes:
    """τ and t of each client: the current ones where the channel tells them.

    Where it does not, the nominal ones, and running means of what was measured in the place of these.
    """

    def __init__(self, fleet: Fleet, *, past: float = SHARE_OF_THE_PAST) -> None:
        """Start from the nominal times; ``past`` 0 believes the last measurement alone."""
        self.compute, self.upload = fleet.compute_time.copy(), fleet.upload_time.copy()
        self.past, self.measured = past, np.zeros(len(fleet), dtype=bool)
        self.told = False  # all that can be known

    def look(self, context: RoundContext) -> None:
        """Take the current times where they are told."""
        if context.compute_time is not None and context.upload_time is not None:
            self.compute, self.upload, self.told = context.compute_time, context.upload_time, True
        elif self.told:
            self.compute, self.upload, self.told = self.compute.copy(), self.upload.copy(), False

    def observe(self, report: RoundReport) -> None:
        """Note what was measured of those who answered, unless all was told."""
        if self.told:
            return
        answered = np.isfinite(report.compute_time) & np.isfinite(report.upload_time) & ~report.failed
        clients = report.plan.members[answered]
        past = np.where(self.measured[clients], self.past, 0.0)
        for name, seen in (("compute", report.compute_time), ("upload", report.upload_time)):
            times = getattr(self, name)
            times[clients] = past * times[clients] + (1 - past) * seen[answered]
        self.measured[clients] = True

    def state(self) -> dict[str, Any]:
        """Return what was learned."""
        return {"told": self.told} | {name: getattr(self, name).tolist() for name in TIMES}

    def restore(self, state: dict[str, Any]) -> None:
        """Take it up."""
        self.told = state["told"]
        for name in TIMES:
            setattr(self, name, np.array(state[name]))


TIMES = ("compute", "upload", "measured")


class Durations(ClientTimes):
    """How long a round takes each client with a fair share of the uplink: download + τ + K t/f_tot.

    A slower link of its own limits the share.
    """

    def __init__(self, fleet: Fleet, cohort_size: int) -> None:
        """Start from the nominal times."""
        super().__init__(fleet, past=0.0)
        self.fleet, self.members = fleet, min(cohort_size, len(fleet))

    @property
    def seconds(self) -> Vector:
        """Of all clients."""
        return self.of(np.arange(len(self.fleet)))

    def of(self, clients: Integers) -> Vector:
        """Return the durations of some clients."""
        share = np.full(clients.size, self.fleet.total_bandwidth / self.members)
        if self.fleet.bandwidth_cap is not None:
            share = np.minimum(share, self.fleet.bandwidth_cap[clients])
        seconds: Vector = self.compute[clients] + self.upload[clients] / share
        return seconds if self.fleet.download_time is None else seconds + self.fleet.download_time[clients]
