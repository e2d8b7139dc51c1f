"""What the fleet's times predict of a round on the testbed, beside what was measured.

Times of the fleet are those of uploads of 32 bits a number. Smaller ones take as much less as they have fewer bytes.
"""

import math
from collections.abc import Mapping
from typing import TypeAlias

import msgspec
import numpy as np

from fedtempo.checks import Vector
from fedtempo.engine.clock import Uploads, first_come_first_served, time_round
from fedtempo.engine.records import RoundRecord
from fedtempo.engine.settings import TrainingSettings
from fedtempo.fleet import Fleet
from fedtempo.flower.strategy.notes import UploadNote, is_asynchronous, uploads_in
from fedtempo.learning.quantisation import BLOCK, upload_share
from fedtempo.theory.bits import BITS

UploadNumbers: TypeAlias = tuple[int, int]  # how many numbers an upload has: parameters, and buffers beside them
ONE_BLOCK: UploadNumbers = BLOCK, 0


class PredictedUpload(msgspec.Struct, frozen=True, kw_only=True):
    """One member's upload."""

    client: int
    bandwidth: float
    predicted_upload: float  # s
    measured_upload: float  # s
    upload_ended: float  # s since the round began


class PredictedRound(msgspec.Struct, frozen=True, kw_only=True):
    """One round; None where a step of an asynchronous policy has no such number."""

    round: int
    predicted_time: float | None  # s
    measured_time: float  # s
    overhead: float | None  # s that the engine took, beside the longest computing and upload
    loss: float | None
    failed: list[int]
    members: list[PredictedUpload]  # those whose uploads were measured


class RoundPredictor:
    """Compares what the fleet's times predict with what was measured, one round after another."""

    def __init__(self, fleet: Fleet, training: TrainingSettings, upload_numbers: UploadNumbers = ONE_BLOCK) -> None:
        """Start before the first; ``upload_numbers``: of the model, parameters and buffers."""
        self.fleet, self.training = fleet, training
        self.shares = np.array([upload_share(bits, *upload_numbers) for bits in BITS])  # of an upload of 32 bits
        self.number, self.time = 0, 0.0
        self.link_free = -math.inf  # when the last upload ended, in seconds of the run

    def follow(self, record: RoundRecord) -> PredictedRound:
        """Return the next round: its seconds, of which the engine's own, and each member's upload."""
        uploads, one_by_one = uploads_in(record), is_asynchronous(record)
        sizes = dict(zip(record.members, self._sizes(record).tolist(), strict=True))
        predicted = self._uploads(uploads, sizes, one_by_one or self.training.link == "shared")
        members = [
            PredictedUpload(
                client=client,
                bandwidth=upload.share,
                predicted_upload=predicted[client],
                measured_upload=upload.seconds,
                upload_ended=upload.end,
            )
            for client, upload in uploads.items()
        ]
        busy = self._busy(record, uploads)
        found = PredictedRound(
            round=self.number,
            predicted_time=None if one_by_one else self._round_time(record),
            measured_time=record.round_time,
            overhead=record.round_time - max(busy) if busy and not one_by_one else None,
            loss=record.loss,
            failed=list(record.failed),
            members=members,
        )
        self.number, self.time = self.number + 1, self.time + record.round_time
        return found

    def _busy(self, record: RoundRecord, uploads: Mapping[int, UploadNote]) -> list[float]:
        """Return the seconds of computing and uploading of those whose uploads were measured."""
        computing = zip(record.members, record.compute_time, record.local_steps, strict=True)
        return [
            seconds * steps / self.training.local_steps + uploads[client].seconds
            for client, seconds, steps in computing
            if client in uploads and seconds is not None
        ]

    def _sizes(self, record: RoundRecord) -> Vector:
        """Return the size of each member's upload over that of one of 32 bits."""
        if isinstance(record.upload_bits, msgspec.UnsetType):
            return np.ones(len(record.members))
        sizes: Vector = self.shares[np.searchsorted(BITS, record.upload_bits)]
        return sizes

    def _uploads(self, uploads: Mapping[int, UploadNote], sizes: Mapping[int, float], shared: bool) -> dict[int, float]:
        """Return the seconds that uploads should take; on a shared link, in the order in which they really began."""
        clients = np.array(list(uploads), dtype=np.int64)
        if not clients.size:
            return {}
        alone = self.fleet.upload_time[clients] * np.array([sizes[client] for client in uploads])
        ends = self.time + np.array([upload.end for upload in uploads.values()])
        if shared:
            began = ends - np.array([upload.seconds for upload in uploads.values()])
            order = np.argsort(began, kind="stable")
            free = np.maximum(began[order], self.link_free)
            seconds = np.empty_like(began)
            seconds[order] = first_come_first_served(free, alone[order] / self.fleet.total_bandwidth)
            seconds -= began
        else:
            seconds = alone / np.array([upload.share for upload in uploads.values()])
        self.link_free = ends.max()
        return dict(zip(clients.tolist(), seconds.tolist(), strict=True))

    def _round_time(self, record: RoundRecord) -> float:
        members, fleet = np.array(record.members, dtype=np.int64), self.fleet
        work = np.array(record.local_steps) / self.training.local_steps
        uploads = Uploads(
            ready_time=fleet.compute_time[members] * work,
            upload_time=fleet.upload_time[members] * self._sizes(record),
            counts=np.array(record.counts),
            bandwidth_cap=None if fleet.bandwidth_cap is None else fleet.bandwidth_cap[members],
        )
        timing = time_round(
            uploads,
            total_bandwidth=fleet.total_bandwidth,
            link=self.training.link,
            duplicates="physical",  # nobody uploads the same thing twice
        )
        return timing.round_time
