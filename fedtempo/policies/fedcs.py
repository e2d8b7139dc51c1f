"""FedCS: as many clients as can finish before a deadline, the fastest first.

T. Nishio, R. Yonetani, "Client Selection for Federated Learning with Heterogeneous Resources in Mobile Edge", ICC 2019.
Each round a random share C of the clients report their resources. The server sends the model to all members at once, in
T^d = max t^d_i seconds; they compute at the same time, and upload one after another. Θ, the seconds from there until
the last upload so far has ended, grows with the next client k by

    t^UL_k + max(0, t^UD_k - Θ),      where t^UD is the time to compute and t^UL the time to upload alone.

Greedily, the client that prolongs the round least is added, as long as T^d + Θ does not exceed the deadline T_round.

The aggregate is biased: members count by their data, and slow clients hardly ever become members.

Where this departs from the paper:

- The cohort size K does not limit a round; it only sets defaults. The paper's C is 0.1, of 1000 clients. Here it is the
  same, but at least 2K candidates are asked, since a tenth of a small fleet leaves no choice. A ``fraction`` that is
  given is taken as it is.
- The paper's deadline is three minutes, right for its model and radio. Here it is by default the time in which K
  clients with the median nominal times would finish one after another: the medians of download and computing time, and
  K times that of the upload.
- If even the fastest candidate does not fit, it trains alone: rounds without members would never end.
- The deadline chooses members and is not enforced afterwards. A link that does not serve one after another may need
  longer, and everybody would be late. Selecting clients and aggregating take no time.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from fedtempo.checks import Integers, Vector, check_count, check_fraction, check_positive
from fedtempo.fleet import Fleet
from fedtempo.policies.options import read_options
from fedtempo.policies.policy import PolicySetting, RoundContext, RoundPlan, Stateless

FRACTION = 0.1  # C of the paper
ROUNDING = 1e-9  # K equal clients take just the default deadline


@dataclass(frozen=True, kw_only=True, slots=True)
class FedCSOptions:
    """Of ``fedcs``."""

    fraction: float | None = None  # C, of the clients; None: a tenth, but at least 2K of them
    deadline: float | None = None  # T_round, seconds; None: what K clients with median times take

    def __post_init__(self) -> None:
        """Check the options."""
        if self.fraction is not None:
            check_positive("fraction", check_fraction("fraction", self.fraction))
        if self.deadline is not None:
            check_positive("deadline", self.deadline)


class FedCS(Stateless):
    """Greedily fill the time until the deadline, from random candidates."""

    def __init__(self, setting: PolicySetting) -> None:
        """Read the options."""
        self.options = read_options(FedCSOptions, setting.options)
        self.fleet, self.cohort_size = setting.fleet, check_count("cohort_size", setting.cohort_size)

    @property
    def candidates(self) -> int:
        """How many clients are asked for their resources."""
        if self.options.fraction is None:
            return max(math.ceil(FRACTION * len(self.fleet)), 2 * self.cohort_size)
        return max(math.ceil(self.options.fraction * len(self.fleet) - ROUNDING), 1)

    @cached_property
    def deadline(self) -> float:
        """T_round, seconds."""
        if self.options.deadline is not None:
            return float(self.options.deadline)
        times = _times(self.fleet, self.fleet.compute_time, self.fleet.upload_time)
        download, compute, upload = (float(np.median(values)) for values in times)
        return download + compute + self.cohort_size * upload

    def plan(self, context: RoundContext) -> RoundPlan:
        """Ask random candidates, and take those who fit."""
        tau = self.fleet.compute_time if context.compute_time is None else context.compute_time
        t = self.fleet.upload_time if context.upload_time is None else context.upload_time
        asked = context.available_clients(len(self.fleet))
        if asked.size:
            asked = context.rng.choice(asked, min(self.candidates, asked.size), replace=False)
        download, compute, upload = _times(self.fleet, tau, t)
        schedule = select_greedily(download[asked], compute[asked], upload[asked], self.deadline)
        members = np.sort(asked[schedule.places])
        share = self.fleet.data_share[members]
        return RoundPlan(
            members=members, weights=share / share.sum(), average=True, note={"planned_time": schedule.seconds}
        )


class Schedule(NamedTuple):
    """Who uploads one after another."""

    places: Integers  # of those selected among the candidates, in the order of their uploads
    seconds: float  # until the last upload has ended


def select_greedily(download_time: Vector, compute_time: Vector, upload_time: Vector, deadline: float) -> Schedule:
    """Add candidates as long as they fit, each time the one that prolongs the round least.

    The round would end at its present end plus what the candidate adds. So when the one that adds least does not fit,
    nobody does, and there is no need to try the others as in the paper's listing.
    """
    left = np.ones(upload_time.size, dtype=bool)
    places: list[int] = []
    sent, elapsed = 0.0, 0.0  # T^d and Θ
    while left.any():
        added = np.maximum(download_time - sent, 0.0) + upload_time + np.maximum(compute_time - elapsed, 0.0)
        best = int(np.argmin(np.where(left, added, np.inf)))
        if places and sent + elapsed + added[best] > deadline * (1 + ROUNDING):
            break
        places.append(best)
        left[best] = False
        elapsed += float(upload_time[best] + max(compute_time[best] - elapsed, 0.0))
        sent = max(sent, float(download_time[best]))
    return Schedule(np.array(places, dtype=np.int64), sent + elapsed)


def _times(fleet: Fleet, compute_time: Vector, upload_time: Vector) -> tuple[Vector, Vector, Vector]:
    """Return t^d, t^UD and t^UL of all clients: an upload has the link alone, up to the client's own cap."""
    download = np.zeros(len(fleet)) if fleet.download_time is None else fleet.download_time
    cap = fleet.total_bandwidth if fleet.bandwidth_cap is None else fleet.bandwidth_cap
    return download, compute_time, upload_time / np.minimum(cap, fleet.total_bandwidth)
