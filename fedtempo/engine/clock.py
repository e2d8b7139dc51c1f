"""When each member of a round has uploaded."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fedtempo.checks import Integers, Vector
from fedtempo.theory.bandwidth import LinkMode, allocate_to_one_cohort, cohort_round_time
from fedtempo.theory.round_time import Duplicates


class RoundTiming(NamedTuple):
    """How a round went by."""

    round_time: float
    late: npt.NDArray[np.bool_]  # who had not uploaded by the deadline
    bandwidth: Vector | None  # the constant share of each member, where it has one


def time_round(
    ready_time: Vector,
    upload_time: Vector,
    *,
    total_bandwidth: float,
    link: LinkMode,
    duplicates: Duplicates,
    counts: Integers | None = None,
    bandwidth: Vector | None = None,
    bandwidth_cap: Vector | None = None,
    deadline: float | None = None,
) -> RoundTiming:
    """Return when the round of these members ends.

    A policy's own shares come before those of the link. With duplicates as in the paper, a member drawn m times uploads
    m times. A deadline ends the round for everybody; who is later than that does not count.
    """
    if not len(ready_time):
        return RoundTiming(deadline or 0.0, np.zeros(0, dtype=bool), None)
    draws = np.ones(len(ready_time)) if counts is None or duplicates == "physical" else counts.astype(np.float64)
    # Draws of one client become ready together, so m uploads of t are one upload of m t, on every link.
    work = upload_time * draws
    if bandwidth is not None:
        finish = ready_time + work / bandwidth
    elif link == "paper":
        end, bandwidth = allocate_to_one_cohort(ready_time, work, total_bandwidth, bandwidth_cap)
        finish = np.full(len(ready_time), end)
    elif link == "equal":
        bandwidth = total_bandwidth * draws / draws.sum()
        if bandwidth_cap is not None:
            bandwidth = np.minimum(bandwidth, bandwidth_cap)
        finish = ready_time + work / bandwidth
    elif bandwidth_cap is None:
        finish = first_come_first_served(ready_time, work / total_bandwidth)
    else:
        end = cohort_round_time(ready_time, work, total_bandwidth, link="shared", bandwidth_cap=bandwidth_cap)
        finish = np.full(len(ready_time), end)
        if deadline is not None and end > deadline:
            finish = _in_turn(ready_time, work, total_bandwidth, bandwidth_cap)
    end = float(finish.max())
    if deadline is None or end <= deadline:
        return RoundTiming(end, np.zeros(len(finish), dtype=bool), bandwidth)
    return RoundTiming(deadline, finish > deadline, bandwidth)


def first_come_first_served(ready_time: Vector, service_time: Vector) -> Vector:
    """Return when each upload ends on a link that serves one after another, whoever is ready first."""
    order = np.argsort(ready_time, kind="stable")
    served = np.cumsum(service_time[order])
    idle = np.maximum.accumulate(ready_time[order] - (served - service_time[order]))
    finish = np.empty_like(served)
    finish[order] = served + idle
    return finish


def _in_turn(ready_time: Vector, work: Vector, total_bandwidth: float, cap: Vector) -> Vector:
    """Return when each upload ends on a link that gives whoever was ready first all it can take, the next the rest."""
    left, finish = work.copy(), np.full(len(work), np.inf)
    order, now = np.argsort(ready_time, kind="stable"), float(ready_time.min())
    while np.isinf(finish).any():
        waiting = order[np.isinf(finish[order])]
        ready = waiting[ready_time[waiting] <= now]
        free = total_bandwidth - np.r_[0.0, np.cumsum(cap[ready])[:-1]]
        share = np.clip(free, 0.0, cap[ready])
        sending = ready[share > 0]
        ends = now + left[sending] / share[share > 0]
        until = min(ends.min(initial=np.inf), ready_time[waiting].min(initial=np.inf, where=ready_time[waiting] > now))
        left[sending] -= (until - now) * share[share > 0]
        finish[sending[ends <= until]] = until
        now = until
    return finish
