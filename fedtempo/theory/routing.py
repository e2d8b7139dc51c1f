"""Whom to send the next task in asynchronous SGD with one step for each arrival, so that training takes the least time.

M clients are in flight, the next is drawn from q, and an update counts p_i/q_i. The bound of Generalized AsyncSGD
(Leconte et al., AISTATS 2024) for R steps of η has, next to what falls with 1/(η R), the noise of draws, η L B Σ p²/q,
and that of staleness, η² L² B M Σ p² D/q, where D_i is how many steps come while client i is in flight. With the
largest η for which the bound holds, of the order of 1/(4 L M), the time to a given loss is in proportion to

    F(q) = Y Σ (p_i²/q_i) (1 + κ D_i),      D_i = (τ_i + t_i + w)/Y,      κ = 1/4,

with the seconds Y from one arrival to the next and the seconds w that an update waits in line, both from the closed
network of clients in flight (closed_network.py): M Y = τ̄ + t̄ + w.
"""

import numpy as np

from fedtempo.checks import Vector, check_nonnegative
from fedtempo.theory.closed_network import update_time

SHARE_OF_STALENESS = 0.25  # κ
MOST_STEPS = 200
CLOSE = 1e-5  # of each q: nearer does not change a draw in a run
ROUNDING = 1e-12


def routing_time(
    sampling_prob: Vector, data_share: Vector, compute: Vector, upload: Vector, in_flight: int, staleness: float
) -> float:
    """Return F(q), for p, τ, t with the whole link, M and κ."""
    q, tau, t = sampling_prob, compute, upload
    seconds = update_time(in_flight, float(q @ tau), float(q @ t)).seconds
    line = in_flight * seconds - float(q @ (tau + t))
    return float((data_share**2 / q) @ (seconds + staleness * (tau + t + line)))


def optimal_routing(
    data_share: Vector, compute: Vector, upload: Vector, in_flight: int, staleness: float = SHARE_OF_STALENESS
) -> Vector:
    """Return a q that makes F stationary and is better than p, for p, τ, t with the whole link, M and κ.

    Y and w depend on q by τ̄ and t̄ alone. With n_i = Y + κ (τ_i + t_i + w), S = Σ p²/q, and the seconds A and B that a
    second of uploading and of computing costs, ∂F/∂q_i = g_i - p_i² n_i/q_i² with
    g_i = S ((1 + κ M) (A t_i + B τ_i) - κ (τ_i + t_i)). So q_i = p_i √n_i/√(g_i + λ), with the λ for which Σ q = 1.
    Each round takes n and g from the q before, and goes so far on the way there, in logarithms, that F falls.
    """
    kappa = check_nonnegative("staleness", staleness)
    present = data_share > 0
    p, tau, t = data_share[present], compute[present], np.maximum(upload[present], 1e-12)
    q, step = p / p.sum(), 1.0
    best = routing_time(q, p, tau, t, in_flight, kappa)
    for _ in range(MOST_STEPS):
        network = update_time(in_flight, float(q @ tau), float(q @ t))
        line = in_flight * network.seconds - float(q @ (tau + t))
        spread = float((p * p / q).sum())
        needed = network.seconds + kappa * (tau + t + line)
        cost = (1 + kappa * in_flight) * (network.upload * t + network.compute * tau) - kappa * (tau + t)
        new = _with_sum(p * np.sqrt(needed), spread * cost)
        way = np.log(new / q)
        if float(np.abs(way).max()) < CLOSE:
            break
        while step > CLOSE:
            trial = q * np.exp(step * way)
            trial /= trial.sum()
            seconds = routing_time(trial, p, tau, t, in_flight, kappa)
            if seconds <= best * (1 + ROUNDING):
                break
            step /= 2
        q, best, step = trial, seconds, min(2 * step, 1.0)
    result: Vector = np.zeros(len(data_share))
    result[present] = q
    return result


def _with_sum(factor: Vector, cost: Vector) -> Vector:
    """Return factor/√(cost + λ) with the λ for which the sum is 1.

    The sum to the power -2 rises in λ and is concave, so Newton's method from the left never overshoots.
    """
    added = float((factor * factor - cost).max())  # there one term alone is 1
    for _ in range(MOST_STEPS):
        root = np.sqrt(cost + added)
        total = float((factor / root).sum())
        if total - 1 < 1e-12:
            break
        slope = float((factor / root**3).sum()) / total**3
        added += (1 - total**-2) / slope
    values: Vector = factor / np.sqrt(cost + added)
    values /= values.sum()
    return values
