"""How long clients compute and upload, as far as a policy can know it."""

from dataclasses import dataclass

import numpy as np

from fedtempo.checks import Booleans, Integers, Vector
from fedtempo.fleet import Fleet
from fedtempo.policies.policy import RoundContext, RoundReport

SHARE_OF_THE_PAST = 0.7  # in running means of measured times, after the first: docs/decisions/0015-forecasts.md


@dataclass(eq=False, slots=True)
class TimesState:
    """Times of each client, seconds."""

    compute: Vector  # τ
    upload: Vector  # t, with one unit of bandwidth
    measured: Booleans  # whether the client ever reported how long it took

    @classmethod
    def nominal(cls, fleet: Fleet) -> "TimesState":
        """Start from the nominal times."""
        measured = np.zeros(len(fleet), dtype=bool)
        return cls(fleet.compute_time.copy(), fleet.upload_time.copy(), measured)

    @property
    def current(self) -> bool:
        """Whether the channel reported these times for this very round, so that there is nothing left to learn."""
        return not self.compute.flags.writeable


class ClientTimes:
    """τ and t of each client: the current ones where the channel reports them.

    Where it does not, the nominal ones, and running means of what was measured in the place of these.
    """

    def __init__(self, state: TimesState, *, past: float = SHARE_OF_THE_PAST) -> None:
        """Go on from what was measured; ``past`` 0 believes the last measurement alone."""
        self.state, self.past = state, past

    def look(self, context: RoundContext) -> None:
        """Take the current times where they are reported."""
        state = self.state
        if context.compute_time is not None and context.upload_time is not None:
            state.compute, state.upload = _read_only(context.compute_time), _read_only(context.upload_time)
        elif state.current:  # the channel's own arrays must not change
            state.compute, state.upload = state.compute.copy(), state.upload.copy()

    def observe(self, report: RoundReport) -> None:
        """Note what was measured of those who reported, unless the channel had reported all."""
        state = self.state
        if state.current:
            return
        reported = np.isfinite(report.compute_time) & np.isfinite(report.upload_time) & ~report.failed
        clients = report.plan.members[reported]
        past = np.where(state.measured[clients], self.past, 0.0)
        for times, seen in ((state.compute, report.compute_time), (state.upload, report.upload_time)):
            times[clients] = past * times[clients] + (1 - past) * seen[reported]
        state.measured[clients] = True


def _read_only(times: Vector) -> Vector:
    view = times.view()
    view.flags.writeable = False
    return view


class Durations(ClientTimes):
    """How long a round takes each client with a fair share of the uplink: download + τ + K t/f_tot.

    A slower link of its own limits the share. The last measurement counts alone.
    """

    def __init__(self, fleet: Fleet, cohort_size: int, state: TimesState) -> None:
        """Take the fleet, K, and what was measured."""
        super().__init__(state, past=0.0)
        self.fleet, self.members = fleet, min(cohort_size, len(fleet))

    def seconds(self, clients: Integers | None = None) -> Vector:
        """Return the durations of some clients, or of all."""
        if clients is None:
            clients = np.arange(len(self.fleet))
        share = np.full(clients.size, self.fleet.total_bandwidth / self.members)
        if self.fleet.bandwidth_cap is not None:
            share = np.minimum(share, self.fleet.bandwidth_cap[clients])
        seconds: Vector = self.state.compute[clients] + self.state.upload[clients] / share
        return seconds if self.fleet.download_time is None else seconds + self.fleet.download_time[clients]
