"""Records of a testbed with four nodes, made up by hand."""

from fedtempo import Fleet
from fedtempo.engine.records import RoundRecord
from fedtempo.engine.settings import TrainingSettings

FLEET = Fleet([0.25] * 4, [1.0] * 4, [1.0, 2.0, 3.0, 4.0], [1.0, 2.0, 1.0, 2.0])


def record(uploads, *, seconds=10.0, staleness=None, **more):
    """Return the record of a round with uploads as (client, share, seconds, end)."""
    members = [client for client, *_ in uploads]
    notes = {
        "uploads": {str(c): {"share": share, "seconds": s, "end": end, "bytes": 1} for c, share, s, end in uploads}
    }
    known = [1.0] * len(members)
    fields = {
        "round": 0, "phase": "train", "time": seconds, "round_time": seconds, "loss": 1.0, "accuracy": None,
        "members": members, "counts": [1] * len(members), "weights": known, "step_size": known,
        "local_steps": [10] * len(members), "compute_time": known, "upload_time": known,
        "largest_gradient_norm": known, "mean_gradient_norm": known, "update_norm": known, "mean_loss": known,
        "failed": [], "aggregate_norm": 1.0, "note": notes if staleness is None else notes | {"staleness": staleness},
    }  # fmt: skip
    return RoundRecord(**(fields | more))


def training(link="paper", duplicates="paper"):
    return TrainingSettings(cohort_size=2, local_steps=10, link=link, duplicates=duplicates)
