"""Clients in flight as a closed queueing network: how long an update takes, and what each second of a client costs.

M clients are in flight. Each computes on a device of its own, τ seconds on average, then waits in line for the one
link, on which an upload takes t; where it ends, the next client starts. With means τ̄ = Σqτ and t̄ = Σqt such a network
has one update every Y(M) = (τ̄ + R(M))/M seconds, where R, the seconds in line and on the link, follows from mean value
analysis: R(m) = t̄ (1 + Q(m-1)), Q(m) = R(m)/Y(m). It is exact for service in exponential times, and for any times
where the link is shared evenly among those who upload; only the means count.

Y is homogeneous in (τ̄, t̄), so by Euler's theorem Y = A t̄ + B τ̄ with A = ∂Y/∂t̄ and B = ∂Y/∂τ̄. Hence P3 with the time
of an update in place of that of a round, min_q Y(q) (Σ a²/q + C), is stationary where P3 with c_i = A t_i + B τ_i is: a
second of uploading costs A, one of computing B. Where the link is always busy A = 1 and B = 0; where it never is, both
are 1/M (docs/theory.md).
"""

from typing import NamedTuple

import numpy as np

from fedtempo.checks import Vector, check_count, check_nonnegative, check_positive


class UpdateTime(NamedTuple):
    """What an update takes with so many in flight."""

    seconds: float  # Y, between two arrivals
    upload: float  # A, of a second of uploading
    compute: float  # B, of a second of computing


def update_time(in_flight: int, compute: float, upload: float) -> UpdateTime:
    """Return Y, A and B for M in flight and mean times τ̄ and t̄."""
    check_count("in_flight", in_flight)
    tau, t = check_nonnegative("compute", compute), check_positive("upload", upload)
    queue = queue_t = queue_tau = 0.0  # Q and its derivatives
    for m in range(1, in_flight + 1):
        line, line_t, line_tau = t * (1 + queue), 1 + queue + t * queue_t, t * queue_tau
        gap, gap_t, gap_tau = (tau + line) / m, line_t / m, (1 + line_tau) / m
        queue = line / gap
        queue_t, queue_tau = (line_t - queue * gap_t) / gap, (line_tau - queue * gap_tau) / gap
    return UpdateTime(gap, gap_t, gap_tau)


def seconds_between(most: int, compute: float, upload: float) -> Vector:
    """Return Y, the seconds between two arrivals, with 1 to ``most`` in flight."""
    found, queue = np.empty(check_count("most", most)), 0.0
    for m in range(1, most + 1):
        line = upload * (1 + queue)
        found[m - 1] = (compute + line) / m
        queue = line / found[m - 1]
    return found


def fewest_that_fill(compute: float, upload: float, most: int, busy: float) -> int:
    """Return the smallest number in flight that keeps the link busy for a share of the time; at most ``most``.

    Staleness grows with the number in flight, and the link is what all share: more would only wait in line.
    """
    queue = 0.0
    for m in range(1, check_count("most", most) + 1):
        line = upload * (1 + queue)
        gap = (compute + line) / m
        if upload >= busy * gap:
            return m
        queue = line / gap
    return most
