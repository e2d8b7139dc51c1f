"""What a run on the testbed came to: predicted and measured times side by side."""

import math
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

import numpy as np

from fedtempo.engine.clock import first_come_first_served, time_round
from fedtempo.engine.settings import TrainingSettings
from fedtempo.fleet import Fleet


def report_on(records: Sequence[Mapping[str, Any]], fleet: Fleet, training: TrainingSettings) -> dict[str, Any]:
    """Return the rounds with predicted and measured times, and how many updates were refused or did not come."""
    rounds = [record for record in records if "members" in record]
    events = [
        {"round": number, "client": int(client), "what": said}
        for number, record in enumerate(rounds)
        for client, said in (record.get("note") or {}).get("failures", {}).items()
    ]
    refused = sum(event["what"].startswith("refused") for event in events)
    follow = Rounds(fleet, training)
    return {
        "rounds": [follow.report(record) for record in rounds],
        "nodes": len(fleet),
        "refused": refused,
        "failures": len(events) - refused,
        "events": events,
    }


class Rounds:
    """Compares what the fleet's times predict with what was measured, one round after another."""

    def __init__(self, fleet: Fleet, training: TrainingSettings) -> None:
        """Start before the first."""
        self.fleet, self.training = fleet, training
        self.number, self.time = 0, 0.0
        self.link_free = -math.inf  # when the last upload ended, in seconds of the run

    def report(self, record: Mapping[str, Any]) -> dict[str, Any]:
        """Return one round: its seconds, of which the engine's own, and each member's upload."""
        note = record.get("note") or {}
        uploads = {int(client): found for client, found in note.get("uploads", {}).items()}
        one_by_one = "staleness" in note  # as updates come in: there are no rounds to predict
        predicted = self._uploads(uploads, one_by_one or self.training.link == "shared")
        members = [
            {
                "client": client,
                "bandwidth": found["share"],
                "predicted_upload": predicted[client],
                "measured_upload": found["seconds"],
                "upload_ended": found["end"],
            }
            for client, found in uploads.items()
        ]
        computing = zip(record["members"], record["compute_time"], record["local_steps"], strict=True)
        busy = [
            compute * steps / self.training.local_steps + uploads[client]["seconds"]
            for client, compute, steps in computing
            if client in uploads and compute is not None
        ]
        found = {
            "round": self.number,
            "predicted_time": None if one_by_one else self._round(record),
            "measured_time": record["round_time"],
            "overhead": record["round_time"] - max(busy) if busy and not one_by_one else None,
            "loss": record["loss"],
            "failed": list(record["failed"]),
            "members": members,
        }
        self.number, self.time = self.number + 1, self.time + record["round_time"]
        return found

    def _uploads(self, uploads: Mapping[int, Mapping[str, float]], shared: bool) -> dict[int, float]:
        """Return the seconds that uploads should take; on a shared link, in the order in which they really began."""
        clients = np.array(list(uploads), dtype=np.int64)
        if not clients.size:
            return {}
        alone = self.fleet.upload_time[clients]
        ends = self.time + np.array([found["end"] for found in uploads.values()])
        if shared:
            began = ends - np.array([found["seconds"] for found in uploads.values()])
            order = np.argsort(began, kind="stable")
            free = np.maximum(began[order], self.link_free)
            seconds = np.empty_like(began)
            seconds[order] = first_come_first_served(free, alone[order] / self.fleet.total_bandwidth)
            seconds -= began
        else:
            seconds = alone / np.array([found["share"] for found in uploads.values()])
        self.link_free = ends.max()
        return dict(zip(clients.tolist(), seconds.tolist(), strict=True))

    def _round(self, record: Mapping[str, Any]) -> float:
        members, fleet = np.array(record["members"], dtype=np.int64), self.fleet
        work = np.array(record["local_steps"]) / self.training.local_steps
        timing = time_round(
            fleet.compute_time[members] * work,
            fleet.upload_time[members],
            total_bandwidth=fleet.total_bandwidth,
            link=self.training.link,
            duplicates="physical",  # nobody uploads the same thing twice
            counts=np.array(record["counts"]),
            bandwidth_cap=None if fleet.bandwidth_cap is None else fleet.bandwidth_cap[members],
        )
        return timing.round_time


def summary_of(report: Mapping[str, Any]) -> dict[str, float]:
    """Return medians over uploads and rounds: how far off, how far apart they ended, rounds and the engine's part."""
    uploads = [member for one in report["rounds"] for member in one["members"]]
    errors = [abs(one["measured_upload"] / one["predicted_upload"] - 1) for one in uploads]
    spreads = [
        (max(ends) - min(ends)) / max(ends)
        for one in report["rounds"]
        if len(ends := [member["upload_ended"] for member in one["members"]]) > 1
    ]
    overheads = [one["overhead"] for one in report["rounds"] if one["overhead"] is not None]
    told = [one for one in report["rounds"] if one["predicted_time"] is not None]
    found = {
        "upload_error": errors, "spread_of_ends": spreads, "overhead": overheads,
        "predicted_time": [one["predicted_time"] for one in told],
        "measured_time": [one["measured_time"] for one in told],
    }  # fmt: skip
    return {name: median(values) for name, values in found.items() if values}
