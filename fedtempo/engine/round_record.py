"""The record of a round, from what is reported of it."""

import math

import msgspec
import numpy as np

from fedtempo.checks import Vector
from fedtempo.engine.records import RoundRecord
from fedtempo.policies.policy import RoundReport


def round_record(time: float, report: RoundReport, step_size: Vector) -> RoundRecord:
    """Return plain values alone, nothing that differs between equal runs; members trained with ``step_size``."""
    plan = report.plan
    return RoundRecord(
        round=report.round_index,
        phase=plan.phase,
        time=time,
        round_time=report.round_time,
        loss=report.loss,
        accuracy=report.accuracy,
        members=plan.members.tolist(),
        counts=[1] * len(plan.members) if plan.counts is None else plan.counts.tolist(),
        weights=plan.weights.tolist(),
        step_size=step_size.tolist(),
        local_steps=report.local_steps.tolist(),
        compute_time=_known(report.compute_time),
        upload_time=_known(report.upload_time),
        largest_gradient_norm=_known(report.largest_gradient_norm),
        mean_gradient_norm=_known(report.mean_gradient_norm),
        update_norm=_known(report.update_norm),
        mean_loss=_known(report.mean_loss),
        failed=plan.members[report.failed].tolist(),
        aggregate_norm=report.aggregate_norm,
        note=msgspec.UNSET if plan.note is None else dict(plan.note),
    )


def _known(numbers: Vector) -> list[float | None]:
    """Return numbers as records hold them, None for NaN."""
    plain = numbers.tolist()
    return [None if math.isnan(x) else x for x in plain] if np.isnan(numbers).any() else plain
