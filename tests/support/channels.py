"""Channels and traces of a few lines."""

import os
from pathlib import Path

import numpy as np

from fedtempo.simulator.channel import StaticChannel
from fedtempo.simulator.traces import RateTrace

DATA = Path(os.environ.get("FEDTEMPO_DATA", ""), "traces")
PACKETS = RateTrace.of_packets([3, 3, 7, 20, 20, 20, 41])
RATES = RateTrace.of_rates([5.0, 6.0, 8.0, 8.5], [1.0, 0.0, 3.0, 0.5])


def static(size, seed=0):
    compute, upload = np.random.default_rng(seed).exponential(size=(2, size))
    return StaticChannel(compute, upload)
