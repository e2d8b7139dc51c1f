"""How long a round takes each client, for policies that look at clients one by one."""

import numpy as np

from fedtempo.checks import Integers, Vector
from fedtempo.fleet import Fleet
from fedtempo.policies.policy import RoundContext, RoundReport


class Durations:
    """How long a round takes each client with a fair share of the uplink: download + τ + K t/f_tot.

    A slower link of its own limits the share. Times are nominal at first, then those that members were measured with,
    or the current ones wherever the channel tells them.
    """

    def __init__(self, fleet: Fleet, cohort_size: int) -> None:
        """Start from the nominal times."""
        self.fleet, self.members = fleet, min(cohort_size, len(fleet))
        self.seconds = self.of(np.arange(len(fleet)), fleet.compute_time, fleet.upload_time)

    def of(self, clients: Integers, compute_time: Vector, upload_time: Vector) -> Vector:
        """Return the durations of some clients with these times."""
        share = np.full(clients.size, self.fleet.total_bandwidth / self.members)
        if self.fleet.bandwidth_cap is not None:
            share = np.minimum(share, self.fleet.bandwidth_cap[clients])
        seconds: Vector = compute_time + upload_time / share
        return seconds if self.fleet.download_time is None else seconds + self.fleet.download_time[clients]

    def look(self, context: RoundContext) -> None:
        """Take the current times where they are told."""
        tau, t = context.compute_time, context.upload_time
        if tau is not None and t is not None:
            self.seconds = self.of(np.arange(len(self.fleet)), tau, t)

    def observe(self, report: RoundReport) -> None:
        """Note what was measured of those who answered."""
        answered = np.isfinite(report.compute_time) & np.isfinite(report.upload_time) & ~report.failed
        clients = report.plan.members[answered]
        self.seconds[clients] = self.of(clients, report.compute_time[answered], report.upload_time[answered])
