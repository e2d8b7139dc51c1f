"""Large fleets and long steps: whether tempo reaches what weighted sampling reaches, and stays there.

    python benchmarks/large_fleets.py

Fleets of Synthetic(α, α) with uploads in exponential or lognormal times, in times that grow with the data share or fall
with it. Weighted sampling draws K = 10 for 300 rounds at each step size of a grid; the best is the one with the lowest
loss. At this step size and at three times it, tempo has as long, with the same settings but for K. The target is the
lowest loss that weighted sampling had at the same step size. Small fleets have steps ten times as long as the best.
Writes benchmarks/large_fleets.md; with --small 320:332 it only prints, for 30 clients and each of these seeds.
"""

import argparse
from pathlib import Path
from typing import NamedTuple

import numpy as np
from joblib import Parallel, delayed

from fedtempo import simulate
from fedtempo.checks import Vector
from fedtempo.data.federation import FederatedData
from fedtempo.data.synthetic import synthetic_data
from fedtempo.engine.divergence import DivergedError
from fedtempo.files import whole_file
from fedtempo.randomness import stream

REPORT = Path(__file__).with_suffix(".md")
STEP_SIZES = (0.0005, 0.001, 0.002, 0.005, 0.01)
ROUNDS, COHORT = 300, 10
LARGE, SMALL = (1, 3), (1, 10)  # times the best step size
RELATIONS = {"with the share": 0.5, "against the share": -0.5, "of chance": 0.0}  # powers of N p


class Condition(NamedTuple):
    """One fleet."""

    clients: int
    alpha: float
    times: str  # exponential or lognormal
    relation: str
    seed: int

    def __str__(self) -> str:
        """Return it in words."""
        return f"{self.clients:,} clients, Synthetic({self.alpha:g}, {self.alpha:g}), {self.times} {self.relation}"


CONDITIONS = (
    Condition(1000, 0.5, "exponential", "of chance", 101),
    Condition(1000, 1.0, "lognormal", "of chance", 102),
    Condition(1000, 2.0, "exponential", "with the share", 103),
    Condition(1000, 2.0, "lognormal", "against the share", 104),
    Condition(1000, 1.0, "exponential", "against the share", 105),
    Condition(1000, 0.5, "lognormal", "with the share", 106),
    Condition(10_000, 1.0, "exponential", "of chance", 107),
    Condition(300, 2.0, "lognormal", "of chance", 108),
    Condition(30, 0.5, "exponential", "of chance", 109),
    Condition(30, 2.0, "lognormal", "of chance", 110),
    Condition(30, 1.0, "exponential", "with the share", 111),
)

SMALL_KINDS = (
    (0.5, "exponential", "of chance"),
    (2.0, "lognormal", "of chance"),
    (1.0, "exponential", "with the share"),
    (1.0, "lognormal", "against the share"),
    (2.0, "exponential", "with the share"),
    (0.5, "lognormal", "against the share"),
)


class Outcome(NamedTuple):
    """What came of tempo at one step size."""

    condition: Condition
    times_best: int
    step_size: float
    target: float
    time: float  # of tempo over weighted sampling's; ∞: missed
    highest: float  # loss afterwards, over the target
    end: float  # last loss over weighted sampling's


def fleet(condition: Condition) -> tuple[FederatedData, Vector, Vector]:
    """Return the data, and the times to compute and upload."""
    clients, alpha, kind, relation, seed = condition
    samples = clients * (200 if clients <= 1000 else 60)
    data = synthetic_data(alpha=alpha, beta=alpha, num_clients=clients, num_samples=samples, seed=seed)
    rng = stream(seed, "large fleets")
    draw = rng.exponential if kind == "exponential" else lambda scale, size: rng.lognormal(-0.5, 1.0, size)
    compute, upload = draw(1.0, clients), draw(1.0, clients)
    upload = upload * (clients * data.data_share) ** RELATIONS[relation]
    return data, compute, np.maximum(upload / upload.mean(), 1e-3)


Fleet = tuple[FederatedData, Vector, Vector]


def curve(made: Fleet, seed: int, policy: str, step_size: float, **limit: float) -> Vector:
    """Return times and losses, as columns; a run that diverges ends with an infinite loss."""
    data, compute, upload = made
    usual = {"link": "shared", "duplicates": "physical", "schedule": "constant", "evaluate_growth": 0.01}
    seen: list = []
    try:
        simulate(
            data, compute_time=compute, upload_time=upload, policy=policy, step_size=step_size, cohort_size=COHORT,
            seed=seed, progress=False, callbacks=[seen.append], **usual, **limit,
        )  # fmt: skip
    except DivergedError as error:
        return np.array([(record.time, record.loss) for record in error.records if record.loss] + [(np.inf, np.inf)])
    return np.array([(record.time, record.loss) for record in seen if record.loss is not None])


def compare(condition: Condition) -> list[Outcome]:
    """Return how tempo does at the best step size of weighted sampling, and at longer ones."""
    made, seed = fleet(condition), condition.seed
    weighted = {size: curve(made, seed, "weighted", size, max_rounds=ROUNDS) for size in STEP_SIZES}
    best = min(weighted, key=lambda size: weighted[size][:, 1].min())
    found = []
    for times in LARGE if condition.clients >= 300 else SMALL:
        size = times * best
        other = weighted[size] if size in weighted else curve(made, seed, "weighted", size, max_rounds=ROUNDS)
        target = float(other[:, 1].min())
        own = curve(made, seed, "tempo", size, max_time=float(other[np.isfinite(other[:, 0]), 0].max()))
        hits, other_hit = np.flatnonzero(own[:, 1] <= target), other[other[:, 1].argmin(), 0]
        time = own[hits[0], 0] / other_hit if hits.size else np.inf
        highest = own[hits[0] :, 1].max() / target if hits.size else own[:, 1].min() / target
        found.append(Outcome(condition, times, size, target, time, highest, own[-1, 1] / other[-1, 1]))
    return found


def table(found: list[Outcome]) -> str:
    """Return the page."""
    lines = [
        "# Large fleets and long steps",
        "Made by `python benchmarks/large_fleets.py`, one run each. The time of tempo over that of weighted sampling "
        "(K = 10) to the lowest loss that this had in 300 rounds at the same step size; the highest loss of tempo "
        "after that, over the target (the lowest, where it missed it); its last loss over that of weighted sampling.",
        "| fleet | step size | times the best | target | time | highest loss afterwards | last loss |\n"
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for one in found:
        time = "missed" if np.isinf(one.time) else f"{one.time:.2f}"
        lines[-1] += (
            f"\n| {one.condition} | {one.step_size:g} | {one.times_best} | {one.target:.3f} | {time} "
            f"| {one.highest:.2f} | {one.end:.2f} |"
        )
    return "\n\n".join(lines) + "\n"


def main() -> None:
    """Run all conditions."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--most-clients", type=int, default=10_000)
    parser.add_argument("--small", help="seeds of small fleets: the first, and the one after the last")
    given = parser.parse_args()
    chosen = [condition for condition in CONDITIONS if condition.clients <= given.most_clients]
    if given.small:
        seeds = range(*map(int, given.small.split(":")))
        chosen = [Condition(30, *SMALL_KINDS[place % len(SMALL_KINDS)], seed) for place, seed in enumerate(seeds)]
    found = [one for many in Parallel(n_jobs=given.jobs)(map(delayed(compare), chosen)) for one in many]
    report = table(found)
    print(report)
    if given.small:
        return
    with whole_file(REPORT) as stream_:
        stream_.write(report)


if __name__ == "__main__":
    main()
