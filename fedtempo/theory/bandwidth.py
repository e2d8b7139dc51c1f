"""Bandwidth shares and the round time of one cohort, or of many cohorts at once (eqs. 3-4)."""

from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from fedtempo.checks import InputError, Vector, as_numbers, check_choice, check_positive, first_violation
from fedtempo.theory.roots import reciprocal_roots, root

LinkMode = Literal["paper", "equal", "shared"]
LINK_MODES: tuple[LinkMode, ...] = get_args(LinkMode)

COHORT_BLOCK = 32_768  # members in one block of cohorts: its arrays stay in the second-level cache


class Allocation(NamedTuple):
    """What a cohort's members get, and when all of them have finished."""

    round_time: Vector | float  # T, one for each cohort
    bandwidth: Vector  # f_i, in the shape of the input


def allocate_bandwidth(
    compute_time: npt.ArrayLike,
    upload_time: npt.ArrayLike,
    total_bandwidth: float = 1.0,
    bandwidth_cap: npt.ArrayLike | None = None,
) -> Allocation:
    """Constant shares with which all members of a cohort finish together: τ_i + t_i/f_i = T, Σ f_i = f_tot (eqs. 3-4).

    T is the root of Σ t_i/(T - τ_i) = f_tot above max τ_i: the shortest round that constant shares allow. The last axis
    runs over the members; axes before it, if any, over cohorts. Where a member's own link is capped, T is the later of
    that root and max(τ_i + t_i/cap_i), and part of the total lies idle.
    """
    shape, total, blocks = _prepare(compute_time, upload_time, total_bandwidth, bandwidth_cap)
    round_time, bandwidth = np.empty(shape[:-1]), np.empty(shape)
    times_out, shares_out = round_time.reshape(-1), bandwidth.reshape(-1, shape[-1])
    for rows, tau, t, cap in blocks:
        window = _windows(tau, t, total, cap)
        times_out[rows] = window[0]
        shares = t / window[1]
        if cap is None:
            shares *= total / shares.sum(axis=0)  # takes off the last rounding error
        shares_out[rows] = shares.T
    return Allocation(round_time[()] if shape[:-1] else float(round_time), bandwidth)


def allocate_to_one_cohort(
    compute_time: Vector, upload_time: Vector, total_bandwidth: float, bandwidth_cap: Vector | None
) -> Allocation:
    """Do the same for one cohort whose times have been checked before: a simulation asks once a round."""
    cap = None if bandwidth_cap is None else bandwidth_cap[:, None]
    round_time, windows = _windows(compute_time[:, None], upload_time[:, None], total_bandwidth, cap)
    bandwidth = upload_time / windows[:, 0]
    if cap is None:
        bandwidth *= total_bandwidth / bandwidth.sum()
    return Allocation(float(round_time[0]), bandwidth)


def cohort_round_time(
    compute_time: npt.ArrayLike,
    upload_time: npt.ArrayLike,
    total_bandwidth: float = 1.0,
    *,
    link: LinkMode = "paper",
    bandwidth_cap: npt.ArrayLike | None = None,
) -> Vector | float:
    """Seconds until the last member of a cohort has uploaded; shapes as in ``allocate_bandwidth``.

    - ``paper``: constant shares, chosen so that all finish together.
    - ``equal``: the constant share f_tot/K for each.
    - ``shared``: a link that is never idle while a member is ready. Any such order of service ends at
      max_k (τ_k + Σ_{τ_j ≥ τ_k} t_j/f_tot). With caps it is the best order, which serves first whoever has longest to
      send: max over θ in {τ_k} of θ + Σ_j (t_j - cap_j (θ - τ_j)⁺)⁺/f_tot, and at least max(τ_j + t_j/cap_j).

    For each cohort ``shared`` ≤ ``paper`` ≤ ``equal``.
    """
    check_choice("link", link, LINK_MODES)
    shape, total, blocks = _prepare(compute_time, upload_time, total_bandwidth, bandwidth_cap)
    round_time = np.empty(shape[:-1])
    times_out = round_time.reshape(-1)
    for rows, tau, t, cap in blocks:
        times_out[rows] = ROUND_TIME[link](tau, t, total, cap)
    return round_time if shape[:-1] else float(round_time)


# The functions below work on one block of cohorts, axis 0 over the members and axis 1 over cohorts, so that sums over
# members run along contiguous memory. An upload time of 0 marks a member that has nothing to send: the second and later
# draws of one client, where duplicates are counted once.


def _windows(tau: Vector, t: Vector, total: float, cap: Vector | None) -> tuple[Vector, Vector]:
    """Return T, and T - τ_i for each member.

    The unknown is the slowest member's window x = T - max τ, not T: T - τ would lose digits where uploads are short.
    """
    latest = tau.max(axis=0)
    head_start = latest - tau
    x = _one_window(head_start[:, 0], t[:, 0], total) if t.shape[1] == 1 else _slowest_windows(head_start, t, total)
    if cap is not None:
        x = np.maximum(x, (t / cap - head_start).max(axis=0))
    return latest + x, head_start + x


def _slowest_windows(head_start: Vector, t: Vector, total: float) -> Vector:
    work = t.sum(axis=0)
    alone = work / total  # x if nobody had a head start
    slowest_only = np.where(head_start == 0, t, 0.0).sum(axis=0) / total
    window, rate = np.empty_like(t), np.empty_like(t)
    np.divide(t, work, out=rate)
    low = np.maximum(slowest_only, alone - np.multiply(rate, head_start, out=rate).sum(axis=0))  # the second by Jensen

    def demand(x: Vector) -> tuple[Vector, Vector]:
        np.add(head_start, x, out=window)
        np.divide(1.0, window, out=window)  # the one division; the rest is products
        np.multiply(t, window, out=rate)
        wanted = rate.sum(axis=0)
        np.multiply(rate, window, out=rate)
        return wanted / total, x * rate.sum(axis=0) / wanted

    return reciprocal_roots(demand, low, alone)


def _one_window(head_start: Vector, t: Vector, total: float) -> Vector:
    """Return the slowest member's window in a single cohort: a simulation asks for one each round."""
    work = float(t.sum())
    slowest_only = float(t[head_start == 0].sum()) / total
    low = max(slowest_only, work / total - float((t / work) @ head_start))

    def demand(x: float) -> tuple[float, float]:
        inverse = 1.0 / (head_start + x)
        rate = t * inverse
        wanted = float(rate.sum())
        return wanted / total, x * float(rate @ inverse) / wanted

    return np.array([root(demand, low, work / total, power=1.0)])


def _paper(tau: Vector, t: Vector, total: float, cap: Vector | None) -> Vector:
    return _windows(tau, t, total, cap)[0]


def _equal(tau: Vector, t: Vector, total: float, cap: Vector | None) -> Vector:
    share: Vector = total / np.count_nonzero(t, axis=0)
    if cap is not None:
        share = np.minimum(share, cap)
    return np.asarray((tau + t / share).max(axis=0))


def _shared(tau: Vector, t: Vector, total: float, cap: Vector | None) -> Vector:
    if cap is None:
        order = np.argsort(tau, axis=0)
        ready, work = np.take_along_axis(tau, order, axis=0), np.take_along_axis(t, order, axis=0)
        still_to_send = np.cumsum(work[::-1], axis=0)[::-1]
        return np.asarray((ready + still_to_send / total).max(axis=0))
    end = (tau + t / cap).max(axis=0)
    for theta in tau:
        still_to_send = np.maximum(t - cap * np.maximum(theta - tau, 0.0), 0.0)
        end = np.maximum(end, theta + still_to_send.sum(axis=0) / total)
    return np.asarray(end)


ROUND_TIME: dict[LinkMode, Callable[[Vector, Vector, float, Vector | None], Vector]] = {
    "paper": _paper,
    "equal": _equal,
    "shared": _shared,
}


def _prepare(
    compute_time: npt.ArrayLike, upload_time: npt.ArrayLike, total_bandwidth: float, bandwidth_cap: npt.ArrayLike | None
) -> tuple[tuple[int, ...], float, Iterator[tuple[slice, Vector, Vector, Vector | None]]]:
    """Check the input, and cut it into blocks of cohorts that fit the cache."""
    total = check_positive("total_bandwidth", total_bandwidth)
    given = {"compute_time": compute_time, "upload_time": upload_time}
    if bandwidth_cap is not None:
        given["bandwidth_cap"] = bandwidth_cap
    arrays = {name: as_numbers(name, values) for name, values in given.items()}
    try:
        shape = np.broadcast_shapes(*(array.shape for array in arrays.values()))
    except ValueError:
        shapes = ", ".join(f"{name} {array.shape}" for name, array in arrays.items())
        raise InputError(
            name="times", rule="have one entry for each member of each cohort", got=f"shapes {shapes}"
        ) from None
    if not shape or shape[-1] == 0:
        raise InputError(name="a cohort", rule="have at least one member", got=f"times of shape {shape}")
    for name, array in arrays.items():
        bad = first_violation(array.reshape(-1), allow_zero=name == "compute_time") if array.size else None
        if bad is not None:
            rule = "zero or positive" if name == "compute_time" else "positive"
            raise InputError(name=name, rule=f"be {rule}, and finite", got=f"{array.reshape(-1)[bad]:g}")
    flat = {name: np.broadcast_to(array, shape).reshape(-1, shape[-1]) for name, array in arrays.items()}
    return shape, total, _blocks(flat["compute_time"], flat["upload_time"], flat.get("bandwidth_cap"))


def _blocks(tau: Vector, t: Vector, cap: Vector | None) -> Iterator[tuple[slice, Vector, Vector, Vector | None]]:
    at_once = max(1, COHORT_BLOCK // t.shape[1])
    for start in range(0, t.shape[0], at_once):
        rows = slice(start, start + at_once)
        turned = (None if array is None else np.ascontiguousarray(array[rows].T) for array in (tau, t, cap))
        yield (rows, *turned)  # type: ignore[misc]
