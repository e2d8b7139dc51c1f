"""The link's part in a round: the share that each upload has, and how long it took."""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from fedtempo.checks import Integers, Vector
from fedtempo.engine.settings import TrainingSettings
from fedtempo.fleet import Fleet
from fedtempo.flower.link.allotment import Link
from fedtempo.flower.link.shaping import Upload
from fedtempo.flower.strategy.assignment import Assignment, ClientReport
from fedtempo.policies.policy import RoundPlan
from fedtempo.theory.bandwidth import LinkMode, allocate_to_one_cohort

SHORTEST_UPLOAD = 1e-3  # s


def cohort_bandwidth(
    fleet: Fleet, training: TrainingSettings, clients: Integers, local_steps: Integers, sizes: Vector | float
) -> Vector:
    """Return the bandwidth of each upload of a cohort, by the mode of the link.

    ``sizes``: of the uploads, over that which the fleet's times are those of.
    """
    total, cap = fleet.total_bandwidth, None if fleet.bandwidth_cap is None else fleet.bandwidth_cap[clients]
    if training.link == "paper" and len(clients):
        ready = fleet.compute_time[clients] * (local_steps / training.local_steps)
        return allocate_to_one_cohort(ready, fleet.upload_time[clients] * sizes, total, cap)[1]
    if training.link == "equal":
        alike = np.full(len(clients), total / max(len(clients), 1))
        return alike if cap is None else np.minimum(alike, cap)
    return np.full(len(clients), total)


def cohort_mode(fleet: Fleet, training: TrainingSettings, plan: RoundPlan) -> LinkMode:
    """Return how the members of a plan share the link: by shares of their own where the plan or caps set them."""
    own_shares = plan.bandwidth is not None or fleet.bandwidth_cap is not None
    return "paper" if own_shares else training.link


class Uplink:
    """Allots the link, where there is one, and measures uploads."""

    def __init__(self, link: Link | None) -> None:
        """Take the link; without one, an upload is what the time from message to reply leaves beside computing."""
        self.link = link
        self._mode: LinkMode = "shared"  # of the last uploads
        self._free = -math.inf  # when the last upload ended, on the link's clock

    def allot(self, assignments: Sequence[Assignment], mode: LinkMode) -> None:
        """Give the clients their shares, before they are asked to train."""
        self._mode = mode
        if self.link is not None and assignments:
            shares = [one.bandwidth for one in assignments] if mode == "paper" else None
            self.link.allot([one.client for one in assignments], mode, shares)

    def measured(self, reports: Sequence[ClientReport]) -> dict[int, Upload]:
        """Return the uploads of those who replied; the others lose their shares, which the next cohort needs."""
        if self.link is None:
            return {}
        found = self.link.measured([one.client for one in reports])
        return {one.client: found[one.client] for one in reports if one.arrived is not None and one.client in found}

    def upload_times(
        self,
        reports: Sequence[ClientReport],
        uploads: Mapping[int, Upload],
        computing: Vector,
        nominal: Vector,
        sizes: Vector | float = 1.0,
    ) -> Vector:
        """Return how long each upload took, brought to one unit of bandwidth and the size of reference.

        ``computing``: seconds that each client computed; ``nominal``: times where nobody knows; ``sizes``: of the
        uploads, over that of reference.
        """
        seconds = _without_computing(reports, computing) if self.link is None else self._served(uploads)
        size_of_each = np.broadcast_to(sizes, nominal.shape).tolist()
        return np.array([
            seconds[one.client] * one.assignment.bandwidth / size if one.client in seconds else usual
            for one, usual, size in zip(reports, nominal.tolist(), size_of_each, strict=True)
        ])  # fmt: skip

    def _served(self, uploads: Mapping[int, Upload]) -> dict[int, float]:
        """Return the seconds of each upload, on a shared link without those that it waited for others to end."""
        served = {}
        for client, upload in sorted(uploads.items(), key=lambda item: item[1].end):
            began = max(upload.start, self._free) if self._mode == "shared" else upload.start
            served[client] = max(upload.end - began, 0.0) or upload.end - upload.start
            self._free = upload.end
        return served


def _without_computing(reports: Sequence[ClientReport], computing: Vector) -> dict[int, float]:
    """Return what computing leaves of the time from message to reply: the upload, and the engine."""
    return {
        one.client: max(one.arrived - one.sent - (0.0 if one.assignment.fetched else seconds), SHORTEST_UPLOAD)
        for one, seconds in zip(reports, computing.tolist(), strict=True)
        if one.arrived is not None and one.sent is not None and one.update is not None
    }
