"""Random fleets over many decades."""

import numpy as np

from fedtempo import Fleet


def random_fleet(rng: np.random.Generator, size: int, decades: float = 2.0) -> Fleet:
    """Return a fleet whose shares, norms and times each spread over so many decades; some compute in no time at all."""

    def spread() -> np.ndarray:
        return 10 ** rng.uniform(-decades / 2, decades / 2, size)

    share = spread()
    compute_time = spread() * (rng.random(size) > 0.1)
    return Fleet(share / share.sum(), spread(), compute_time, spread(), float(10 ** rng.uniform(-2, 2)))
