"""What clients computed, from what they reported."""

from collections.abc import Sequence

import numpy as np

from fedtempo.checks import Vector
from fedtempo.fleet import Fleet
from fedtempo.flower.strategy.assignment import ClientReport, upload_bits_of
from fedtempo.flower.strategy.judge import Judge
from fedtempo.flower.strategy.messages import LARGEST_GRADIENT_NORM, MEAN_GRADIENT_NORM, MEASURED_METRICS
from fedtempo.flower.strategy.metric_names import averaged, loss_of
from fedtempo.flower.strategy.packing import noise_in
from fedtempo.learning.trainer import LocalResult, norms


def local_result(reports: Sequence[ClientReport], judge: Judge) -> LocalResult:
    """Return what clients computed; rows of those who failed are zeros."""
    layout = judge.layout
    update = np.zeros((len(reports), layout.num_parameters), dtype=np.float32)
    buffers = np.zeros((len(reports), layout.num_buffers))
    for row, one in enumerate(reports):
        if one.update is not None:
            update[row], buffers[row] = one.update, one.buffers
    # Who does not measure gradients walked at least so far on average.
    least = norms(update) / np.array([one.assignment.path for one in reports])
    largest, mean = _reported(reports, LARGEST_GRADIENT_NORM), _reported(reports, MEAN_GRADIENT_NORM)
    believed = judge.believe(np.maximum(largest, mean))
    return LocalResult(
        update=update,
        largest_gradient_norm=np.where(believed & (largest >= mean), largest, least),
        mean_gradient_norm=np.where(believed & (mean >= 0), mean, least),
        mean_loss=np.array([loss_of(one.numbers) for one in reports]),
        buffers=buffers if layout.num_buffers else None,
        noise=_noise(reports),
    )


def _noise(reports: Sequence[ClientReport]) -> Vector | None:
    """Return ω of each upload at each size, as rows; NaN where nobody knows, None where no client was to measure it."""
    if upload_bits_of([one.assignment for one in reports]) is None:
        return None
    return np.array([noise_in({} if one.update is None else one.numbers) for one in reports])


def own_metrics(reports: Sequence[ClientReport], fleet: Fleet) -> dict[str, float]:
    """Return the metrics that apps report of their own, averaged by data."""
    own = {one.client: one.numbers for one in reports if one.update is not None}
    return averaged(own, fleet, but_for=MEASURED_METRICS)


def _reported(reports: Sequence[ClientReport], name: str) -> Vector:
    """Return a metric of each client; negative: not reported, or by one who was refused."""
    return np.array([-1.0 if one.update is None else float(one.numbers.get(name, -1.0)) for one in reports])
