"""How long a round takes in expectation: Theorem 2, the paper's surrogate, and the truth by drawing cohorts."""

from typing import Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from fedtempo.checks import Vector, check_choice, check_count
from fedtempo.fleet import Fleet
from fedtempo.theory.bandwidth import COHORT_BLOCK, LINK_MODES, ROUND_TIME, LinkMode
from fedtempo.theory.sampling import DrawTable, check_sampling_prob, draw_cohort

# A client drawn twice counts twice in the round time of the paper; in truth it computes and uploads once.
Duplicates = Literal["paper", "physical"]
DUPLICATES: tuple[Duplicates, ...] = get_args(Duplicates)


class RoundTimeBounds(NamedTuple):
    """Theorem 2: lower ≤ E[T] ≤ upper."""

    lower: float
    upper: float


class RoundTimeEstimate(NamedTuple):
    """A mean over drawn cohorts, and how far it may be off."""

    mean: float
    standard_error: float


def round_cost(fleet: Fleet, *, cohort_size: int) -> Vector:
    """c_i = K t_i/f_tot + τ_i: what one draw of client i adds to the surrogate round time."""
    size, total = check_count("cohort_size", cohort_size), fleet.total_bandwidth
    if fleet.bandwidth_cap is None:
        cost = fleet.upload_time * (size / total)
    else:
        # One upload at the client's own rate, the others' at the link's: K t/f_tot + (t/cap - t/f_tot)⁺.
        cost = np.minimum(fleet.bandwidth_cap, total)
        np.divide(fleet.upload_time, cost, out=cost)
        cost += fleet.upload_time * ((size - 1) / total)
    cost += fleet.compute_time
    if fleet.download_time is not None:
        cost += fleet.download_time
    return cost


def mean_round_time(
    fleet: Fleet, sampling_prob: npt.ArrayLike, *, cohort_size: int, duplicates: Duplicates = "paper"
) -> float:
    """Σ q_i c_i: the paper's surrogate of E[T], exact for K = 1, or for equal compute times and no caps.

    Where duplicates count once, K q_i in the upload term becomes 1 - (1 - q_i)^K.
    """
    q = check_sampling_prob(sampling_prob, len(fleet))
    return _mean_upload_time(fleet, q, cohort_size, duplicates) + float(q @ fleet.private_time)


def round_time_bounds(
    fleet: Fleet, sampling_prob: npt.ArrayLike, *, cohort_size: int, duplicates: Duplicates = "paper"
) -> RoundTimeBounds:
    """Theorem 2: K Σ q t/f_tot + E[min τ] ≤ E[T] ≤ K Σ q t/f_tot + E[max τ], over the K draws of a round.

    They hold for the links ``paper`` and ``shared``. The expectations are the paper's closed forms, summed by parts so
    that every term is positive: stable for K from 1 to many thousands.
    """
    q = check_sampling_prob(sampling_prob, len(fleet))
    upload = _mean_upload_time(fleet, q, cohort_size, duplicates)
    fastest = _expected_extreme(fleet.ready_time, q, cohort_size, slowest=False)
    slowest = _expected_extreme(fleet.private_time, q, cohort_size, slowest=True)
    return RoundTimeBounds(upload + fastest, upload + slowest)


def expected_round_time(
    fleet: Fleet,
    sampling_prob: npt.ArrayLike,
    *,
    cohort_size: int,
    rng: np.random.Generator,
    draws: int = 10_000,
    link: LinkMode = "paper",
    duplicates: Duplicates = "paper",
) -> RoundTimeEstimate:
    """E[T] as the mean round time of many drawn cohorts, with its standard error."""
    check_choice("link", link, LINK_MODES)
    check_choice("duplicates", duplicates, DUPLICATES)
    size, cohorts = check_count("cohort_size", cohort_size), check_count("draws", draws)
    table = DrawTable.of(check_sampling_prob(sampling_prob, len(fleet)))
    ready_time = fleet.ready_time
    times = np.empty(cohorts)
    at_once = max(1, COHORT_BLOCK // size)
    for start in range(0, cohorts, at_once):
        part = times[start : start + at_once]
        members = draw_cohort(table, size, rng, cohorts=part.size).T
        if duplicates == "physical":
            members = np.sort(members, axis=0)
        t = fleet.upload_time[members]
        if duplicates == "physical":
            t[1:][members[1:] == members[:-1]] = 0.0
        cap = None if fleet.bandwidth_cap is None else fleet.bandwidth_cap[members]
        part[:] = ROUND_TIME[link](ready_time[members], t, fleet.total_bandwidth, cap)
    spread = float(times.std(ddof=1)) if cohorts > 1 else float("inf")
    return RoundTimeEstimate(float(times.mean()), spread / cohorts**0.5)


def distinct_clients(sampling_prob: npt.ArrayLike, *, cohort_size: int) -> float:
    """Σ 1 - (1 - q_i)^K: how many different clients a round has, in expectation."""
    return float(_chance_of_any(check_sampling_prob(sampling_prob), check_count("cohort_size", cohort_size)).sum())


def _mean_upload_time(fleet: Fleet, q: Vector, cohort_size: int, duplicates: Duplicates) -> float:
    """Return E[Σ t]/f_tot over the uploads of a round."""
    check_choice("duplicates", duplicates, DUPLICATES)
    size = check_count("cohort_size", cohort_size)
    uploads = size * q if duplicates == "paper" else _chance_of_any(q, size)
    return float(uploads @ fleet.upload_time) / fleet.total_bandwidth


def _chance_of_any(chance: Vector, trials: int) -> Vector:
    """Return 1 - (1 - chance)^trials, without cancellation where the chance is tiny."""
    with np.errstate(divide="ignore"):  # a chance of 1 is log 0, and then 1 - 0^K = 1
        return np.asarray(-np.expm1(trials * np.log1p(-chance)))


def _expected_extreme(time: Vector, q: Vector, cohort_size: int, *, slowest: bool) -> float:
    """Return E[max] or E[min] of the times of K draws.

    With times in ascending order and Q_i the chance that a draw takes longer than time i, summation by parts of the
    closed form leaves time_1 + Σ_i (time_{i+1} - time_i) P(extreme > time_i), where P is 1 - (1 - Q_i)^K or Q_i^K.
    """
    order = np.argsort(time)
    time, q = time[order], q[order]
    longer = np.minimum(np.cumsum(q[:0:-1])[::-1], 1.0)
    beyond = _chance_of_any(longer, cohort_size) if slowest else longer**cohort_size
    return float(time[0] + np.diff(time) @ beyond)
