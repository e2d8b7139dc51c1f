"""What the runs of a comparison lead to: the fleet that they show, and β/α from rounds to losses."""

from collections.abc import Iterable, Sequence

import numpy as np

from fedtempo.checks import Vector
from fedtempo.experiments.estimate import measured_fleet
from fedtempo.experiments.running.results import Run, by_policy
from fedtempo.fleet import Fleet
from fedtempo.theory.estimation import BetaOverAlphaEstimate, estimate_beta_over_alpha


def fleet_of(runs: Sequence[Run]) -> Fleet:
    """Return the fleet that the records of some runs show."""
    return measured_fleet(runs[0].header.samples, (record for run in runs for record in run.records))[0]


def mean_rounds(runs: Iterable[Run], losses: Sequence[float]) -> Vector:
    """Return the mean number of rounds to each loss, NaN where a run did not get there."""
    rounds = [[run.round_of(loss=loss) for loss in losses] for run in runs]
    known = np.array([[np.nan if r is None else r for r in row] for row in rounds], dtype=np.float64)
    return np.asarray(known.mean(axis=0))


def estimate(runs: Sequence[Run], losses: Sequence[float], cohort_size: int) -> BetaOverAlphaEstimate:
    """Return β/α from the mean rounds of the uniform and the weighted runs."""
    grouped = by_policy(runs)
    uniform, weighted = (mean_rounds(grouped[policy], losses) for policy in ("uniform", "weighted"))
    fleet = fleet_of(grouped["uniform"] + grouped["weighted"])
    return estimate_beta_over_alpha(fleet, uniform, weighted, cohort_size=cohort_size)
