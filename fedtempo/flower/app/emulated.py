"""Processes on one machine that stand for devices elsewhere, and begin at once as those would.

Flower takes seconds to bring a message to a ClientApp, and longer to some where many share a machine. So the members of
a cohort meet first, by a file each in a folder that they share.
"""

import time
from pathlib import Path

POLL_SECONDS = 0.02


def meet(place: Path, client: int, size: int, patience: float) -> float:
    """Wait until so many clients have come; return the moment when the last came, or when patience (s) ran out."""
    place.mkdir(parents=True, exist_ok=True)
    (place / f"{client}").touch()
    end = time.time() + patience
    while len(present := list(place.iterdir())) < size:
        if time.time() >= end:
            return time.time()
        time.sleep(POLL_SECONDS)
    return max(one.stat().st_mtime for one in present)
