"""Records of a testbed with four nodes, made up by hand."""

from fedtempo import Fleet
from fedtempo.engine.settings import TrainingSettings

FLEET = Fleet([0.25] * 4, [1.0] * 4, [1.0, 2.0, 3.0, 4.0], [1.0, 2.0, 1.0, 2.0])


def record(uploads, *, seconds=10.0, **more):
    """Return the record of a round with uploads as (client, share, seconds, end)."""
    members = [client for client, *_ in uploads]
    return {
        "phase": "train", "time": seconds, "round_time": seconds, "loss": 1.0, "members": members, "failed": [],
        "counts": [1] * len(members), "compute_time": [1.0] * len(members), "local_steps": [10] * len(members),
        "note": {
            "uploads": {str(c): {"share": share, "seconds": s, "end": end, "bytes": 1} for c, share, s, end in uploads}
        },
    } | more  # fmt: skip


def training(link="paper", duplicates="paper"):
    return TrainingSettings(cohort_size=2, local_steps=10, link=link, duplicates=duplicates)
