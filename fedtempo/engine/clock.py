"""When each member of a round has uploaded."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fedtempo.checks import Booleans, Integers, Vector
from fedtempo.theory.bandwidth import LinkMode, allocate_to_one_cohort, cohort_round_time
from fedtempo.theory.round_time import Duplicates


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class Uploads:
    """What the members of a round have to upload, one entry for each."""

    ready_time: Vector  # seconds into the round, when each has computed
    upload_time: Vector  # t, alone with one unit of bandwidth
    counts: Integers | None = None  # how often each was drawn; None: once
    bandwidth: Vector | None = None  # a share for each, by a policy's own choice
    bandwidth_cap: Vector | None = None  # the most that each one's own link carries


class RoundTiming(NamedTuple):
    """How a round went by."""

    round_time: float
    late: Booleans  # who had not uploaded by the deadline
    bandwidth: Vector | None  # the constant share of each member, where it has one


def time_round(
    uploads: Uploads,
    *,
    total_bandwidth: float,
    link: LinkMode,
    duplicates: Duplicates,
    deadline: float | None = None,
) -> RoundTiming:
    """Return when the round of these members ends.

    A policy's own shares come before those of the link. With duplicates as in the paper, a member drawn m times uploads
    m times. A deadline ends the round for everybody; who is later than that does not count.
    """
    size, counts = len(uploads.ready_time), uploads.counts
    if not size:
        return RoundTiming(deadline or 0.0, np.zeros(0, dtype=bool), None)
    draws = np.ones(size) if counts is None or duplicates == "physical" else counts.astype(np.float64)
    finish, bandwidth = _finish(uploads, draws, total_bandwidth, link, deadline)
    end = float(finish.max())
    if deadline is None or end <= deadline:
        return RoundTiming(end, np.zeros(size, dtype=bool), bandwidth)
    return RoundTiming(deadline, finish > deadline, bandwidth)


def _finish(
    uploads: Uploads, draws: Vector, total_bandwidth: float, link: LinkMode, deadline: float | None
) -> tuple[Vector, Vector | None]:
    """Return when each upload ends, and the constant share that it has, where it has one."""
    ready, cap = uploads.ready_time, uploads.bandwidth_cap
    # Draws of one client become ready together, so m uploads of t are one upload of m t, on every link.
    work = uploads.upload_time * draws
    if uploads.bandwidth is not None:
        return ready + work / uploads.bandwidth, uploads.bandwidth
    if link == "paper":
        end, bandwidth = allocate_to_one_cohort(ready, work, total_bandwidth, cap)
        return np.full(len(ready), end), bandwidth
    if link == "equal":
        equal = total_bandwidth * draws / draws.sum()
        bandwidth = equal if cap is None else np.minimum(equal, cap)
        return ready + work / bandwidth, bandwidth
    if cap is None:
        return first_come_first_served(ready, work / total_bandwidth), None
    end = cohort_round_time(ready, work, total_bandwidth, link="shared", bandwidth_cap=cap)
    if deadline is not None and end > deadline:
        return _in_turn(ready, work, total_bandwidth, cap), None
    return np.full(len(ready), end), None


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
