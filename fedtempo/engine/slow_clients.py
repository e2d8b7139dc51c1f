"""The clients that upload slowest: what the model that a run returns is worth to them."""

import math

import msgspec
import numpy as np

from fedtempo.checks import Integers, Vector
from fedtempo.engine.clients import Clients
from fedtempo.fleet import Fleet
from fedtempo.learning.trainer import Buffers, Parameters


def slowest(fleet: Fleet, share: float) -> Integers:
    """Return the share of clients with the longest nominal uploads, one at least; equals in the order of the fleet."""
    number = math.ceil(round(share * len(fleet), 9))  # 0.1 of 30 clients are 3, whatever the last digit says
    return np.sort(np.argsort(-fleet.upload_time, kind="stable")[:number])


def mean_loss(losses: Vector, data_share: Vector) -> float | None:
    """Return Σ pᵢ Fᵢ / Σ pᵢ over some clients; None where it is no number."""
    mean = float(losses @ data_share / data_share.sum())
    return mean if math.isfinite(mean) else None


def slow_loss_of(
    model: Parameters, buffers: Buffers, clients: Clients, fleet: Fleet, share: float
) -> float | msgspec.UnsetType | None:
    """Return what a model is worth to the slowest; unset where nobody knows their losses."""
    who = slowest(fleet, share)
    losses = clients.losses(model, buffers, who)
    return msgspec.UNSET if losses is None else mean_loss(losses, fleet.data_share[who])
