"""What a run on the testbed came to: predicted and measured times side by side."""

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
    return {
        "rounds": [round_report(number, record, fleet, training) for number, record in enumerate(rounds)],
        "nodes": len(fleet),
        "refused": refused,
        "failures": len(events) - refused,
        "events": events,
    }


def round_report(number: int, record: Mapping[str, Any], fleet: Fleet, training: TrainingSettings) -> dict[str, Any]:
    """Return one round: its seconds, of which the engine's own, and each member's upload."""
    note = record.get("note") or {}
    uploads = {int(client): found for client, found in note.get("uploads", {}).items()}
    predicted = _predicted_uploads(uploads, fleet, training)
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
    busy = [
        compute + uploads[client]["seconds"]
        for client, compute in zip(record["members"], record["compute_time"], strict=True)
        if client in uploads and compute is not None
    ]
    return {
        "round": number,
        "predicted_time": None if "staleness" in note else _predicted_round(record, fleet, training),
        "measured_time": record["round_time"],
        "overhead": record["round_time"] - max(busy) if busy and "staleness" not in note else None,
        "loss": record["loss"],
        "failed": list(record["failed"]),
        "members": members,
    }


def summary_of(report: Mapping[str, Any]) -> dict[str, float]:
    """Return medians over uploads and rounds: how far off uploads were, how far apart they ended, the overhead."""
    uploads = [member for one in report["rounds"] for member in one["members"]]
    errors = [abs(one["measured_upload"] / one["predicted_upload"] - 1) for one in uploads]
    spreads = [
        (max(ends) - min(ends)) / max(ends)
        for one in report["rounds"]
        if len(ends := [member["upload_ended"] for member in one["members"]]) > 1
    ]
    overheads = [one["overhead"] for one in report["rounds"] if one["overhead"] is not None]
    found = {"upload_error": errors, "spread_of_ends": spreads, "overhead": overheads}
    return {name: median(values) for name, values in found.items() if values}


def _predicted_uploads(
    uploads: Mapping[int, Mapping[str, float]], fleet: Fleet, training: TrainingSettings
) -> dict[int, float]:
    """Return the seconds that uploads should take; on a shared link, in the order in which they really began."""
    clients = np.array(list(uploads), dtype=np.int64)
    if not clients.size:
        return {}
    alone = fleet.upload_time[clients]
    if training.link == "shared":
        began = np.array([found["end"] - found["seconds"] for found in uploads.values()])
        seconds = first_come_first_served(began, alone / fleet.total_bandwidth) - began
    else:
        seconds = alone / np.array([found["share"] for found in uploads.values()])
    return dict(zip(clients.tolist(), seconds.tolist(), strict=True))


def _predicted_round(record: Mapping[str, Any], fleet: Fleet, training: TrainingSettings) -> float:
    members = np.array(record["members"], dtype=np.int64)
    timing = time_round(
        fleet.compute_time[members],
        fleet.upload_time[members],
        total_bandwidth=fleet.total_bandwidth,
        link=training.link,
        duplicates=training.duplicates,
        counts=np.array(record["counts"]),
    )
    return timing.round_time
