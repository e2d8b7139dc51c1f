"""Measure what the documentation claims of the theory, each as a ratio within this one run (make bench).

Prints a table, and writes it with the command and the versions to benchmarks/theory.md.
"""

import platform
import sys
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import scipy
from scipy.optimize import brentq

from fedtempo import (
    DrawTable,
    Fleet,
    allocate_bandwidth,
    cohort_round_time,
    draw_cohort,
    line_search_sampling,
    optimal_cohort,
    optimal_sampling,
    optimal_sampling_and_bits,
    round_cost,
)
from fedtempo.files import whole_file

REPORT = Path(__file__).with_suffix(".md")


def seconds(work: Callable[[], object], repeats: int = 5) -> float:
    """Return the median time of a call, after one that warms up."""
    work()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return float(np.median(times))


def heterogeneous_fleet(size: int) -> Fleet:
    """Return a fleet with exponential times, as in Setup 2, and lognormal shares and norms."""
    rng = np.random.default_rng(size)
    share = rng.lognormal(size=size)
    times = rng.exponential(size=(2, size)) + 1e-9
    return Fleet(share / share.sum(), rng.lognormal(size=size), times[0], times[1])


def exact_against_line_search() -> tuple[str, str, str]:
    """Time the exact optimum at N = 100 against Algorithm 2 with 50 values of M."""
    fleet = heterogeneous_fleet(100)
    settings = {"cohort_size": 10, "beta_over_alpha": 0.1}
    exact = seconds(lambda: [optimal_sampling(fleet, **settings) for _ in range(100)]) / 100
    search = seconds(lambda: line_search_sampling(fleet, **settings), repeats=3)
    return (
        "optimal_sampling, N = 100, over the line search with 50 values of M",
        f"{search / exact:,.0f} ×",
        "≥ 1,000 ×",
    )


def ten_million_clients() -> list[tuple[str, str, str]]:
    """Count, at N = 10,000,000, time in passes over the data and memory in arrays of N."""
    size = 10_000_000
    fleet = heterogeneous_fleet(size)
    scale = float(fleet.importance.sum())

    def measured_pass() -> float:
        a, c = fleet.importance, round_cost(fleet, cohort_size=10)
        rho = 1 / float(c.min())
        return seconds(lambda: np.sum(a / np.sqrt(rho * c - 0.5)))

    one_pass, ratio = measured_pass(), 0.1 * scale * scale
    solve = seconds(lambda: optimal_sampling(fleet, cohort_size=10, beta_over_alpha=ratio), repeats=3)
    tracemalloc.start()
    optimal_sampling(fleet, cohort_size=10, beta_over_alpha=ratio)
    arrays = tracemalloc.get_traced_memory()[1] / (8 * size)
    tracemalloc.stop()
    best = seconds(lambda: optimal_cohort(fleet, ratio), repeats=1)
    noise = [8.0, 1.5, 0.2, 1e-3, 1e-8, 0.0]
    sized = seconds(
        lambda: optimal_sampling_and_bits(fleet, cohort_size=10, beta_over_alpha=ratio, quantisation_noise=noise),
        repeats=3,
    )
    return [
        ("optimal_sampling, N = 10,000,000, in passes over the data", f"{solve / one_pass:.1f}", "≤ 30"),
        ("  extra memory, in arrays of N (q included)", f"{arrays:.1f}", "≤ 4"),
        ("optimal_cohort, N = 10,000,000, in passes over the data", f"{best / one_pass:.0f}", "-"),
        ("optimal_sampling_and_bits, six sizes, over optimal_sampling", f"{sized / solve:.1f} ×", "≤ 12 ×"),
    ]


def a_million_cohorts() -> list[tuple[str, str, str]]:
    """Time a million cohorts of K = 10 in one call, against a SciPy root find for each of some of them."""
    cohorts, sample = 1_000_000, 2_000
    tau, t = np.random.default_rng(0).exponential(size=(2, cohorts, 10))

    def one_by_one() -> None:
        for i in range(sample):
            head_start, work = tau[i].max() - tau[i], t[i]
            shortest, longest = 0.5 * work[tau[i].argmax()], 2.0 * work.sum()
            brentq(lambda x, h=head_start, w=work: np.sum(w / (x + h)) - 1.0, shortest, longest)

    each = seconds(one_by_one, repeats=3) / sample
    rows = []
    allocated = seconds(lambda: allocate_bandwidth(tau, t), repeats=3) / cohorts
    rows.append(
        ("allocate_bandwidth, a million cohorts of 10, over a SciPy root find each", each / allocated, "≥ 100 ×")
    )
    for link in ("paper", "equal", "shared"):
        timed = seconds(lambda link=link: cohort_round_time(tau, t, link=link), repeats=3) / cohorts
        rows.append((f"  round time alone, link {link}", each / timed, "-"))
    return [(what, f"{ratio:,.0f} ×", goal) for what, ratio, goal in rows]


def repeated_draws() -> tuple[str, str, str]:
    """Time draws of K = 10 from N = 1,000,000 against N = 1,000, the table made once."""
    rng = np.random.default_rng(0)
    small, large = (DrawTable.of(np.full(size, 1 / size)) for size in (1_000, 1_000_000))
    timed = [
        seconds(lambda table=table: [draw_cohort(table, 10, rng) for _ in range(5000)]) for table in (small, large)
    ]
    return "draw_cohort, N = 1,000,000 over N = 1,000", f"{timed[1] / timed[0]:.2f} ×", "-"


def main() -> None:
    """Run every benchmark, print and record the table."""
    rows = [exact_against_line_search(), *ten_million_clients(), *a_million_cohorts(), repeated_draws()]
    lines = ["| what | measured | goal |", "|---|---:|---:|", *(f"| {' | '.join(row)} |" for row in rows)]
    versions = f"Python {platform.python_version()}, NumPy {np.__version__}, SciPy {scipy.__version__}"
    text = "\n".join(
        ["# Benchmarks of the theory", "", f"Made by `make bench` with {versions}; ratios in one run.", "", *lines]
    )
    print(text)
    with whole_file(REPORT) as stream:
        stream.write(text + "\n")


if __name__ == "__main__":
    sys.exit(main())
