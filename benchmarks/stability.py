"""Random small federations in which weighted sampling converges: whether tempo ever diverges.

    python benchmarks/stability.py --federations 1000

Sizes, heterogeneity, step sizes, local steps, momentum, fleets and cohort sizes are drawn at random. Both policies have
the same simulated time, that of ROUNDS rounds of weighted sampling. A run converges if the mean loss over the last
tenth of its rounds lies below CONVERGED times that of w₀, and diverges if it ends above the loss of w₀ or leaves the
numbers. Federations in which weighted sampling does not converge do not count and are drawn again. The other forms of
tempo are tried in the first tenth of those that count. Writes benchmarks/stability.md; with levers, settings of
training that both policies have, such as upload_bits="auto", it only prints.
"""

import argparse
import ast
import math
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import numpy as np
from joblib import Parallel, delayed

from fedtempo import simulate
from fedtempo.checks import InputError
from fedtempo.data.federation import FederatedData
from fedtempo.data.synthetic import synthetic_data
from fedtempo.engine.divergence import DivergedError
from fedtempo.files import whole_file
from fedtempo.randomness import stream

REPORT = Path(__file__).with_suffix(".md")
ROUNDS, CONVERGED = 120, 0.9
SEEDS = 1_000_000  # between one draw of the data and the next
MOMENTA = (0.0, 0.0, 0.5, 0.8, 0.9)
FORMS: dict[str, dict] = {
    "synchronous": {"overlap": False}, "without memory": {"memory": False},
    "unbiased": {"largest_factor": math.inf}, "choosing local steps": {"choose_local_steps": True},
}  # fmt: skip


class Outcome(NamedTuple):
    """What came of one policy."""

    first: float  # loss of w₀
    last: float  # mean over the last tenth of the rounds; ∞ if training left the numbers
    seconds: float

    @property
    def converged(self) -> bool:
        """Whether the loss came down."""
        return self.last < CONVERGED * self.first

    @property
    def diverged(self) -> bool:
        """Whether it went up."""
        return not self.last <= self.first


def federation(number: int) -> dict:
    """Draw one: its data, fleet and training."""
    rng = stream(number, "federation")

    def between(low: float, high: float) -> float:
        return float(np.exp(rng.uniform(np.log(low), np.log(high))))

    clients = round(between(2, 60))
    alpha, beta = rng.uniform(0, 2, size=2)
    return {
        "data": {
            "alpha": alpha, "beta": beta, "num_clients": clients, "num_samples": clients * int(rng.integers(60, 200)),
        },
        "compute_time": between(0.1, 10) * rng.lognormal(sigma=rng.uniform(0, 1.5), size=clients),
        "upload_time": rng.lognormal(sigma=rng.uniform(0, 1.5), size=clients),
        "cohort_size": int(rng.integers(1, min(clients, 10) + 1)),
        "local_steps": int(rng.choice([1, 5, 20])),
        "batch_size": int(rng.choice([4, 24])),
        "step_size": between(1e-3, 0.3),
        "schedule": str(rng.choice(["constant", "inverse"], p=[0.8, 0.2])),
        "server_momentum": float(rng.choice(MOMENTA)),
    }  # fmt: skip


def draw_data(number: int, settings: dict) -> FederatedData:
    """Draw data until each class is there."""
    while True:
        try:
            return synthetic_data(**settings, seed=number)
        except InputError:
            number += SEEDS


def outcome(number: int, policy: str, options: dict | None = None, **more: object) -> Outcome:
    """Run one policy in one federation, with a limit and levers."""
    settings = federation(number)
    data = draw_data(number, settings.pop("data"))
    first = math.log(data.num_classes)  # softmax regression starts from zero
    try:
        run = simulate(
            data, policy=policy, options=options, link="shared", duplicates="physical", seed=number, **settings, **more
        )
    except DivergedError:
        return Outcome(first, math.inf, math.nan)
    losses = [record["loss"] for record in run.records]
    return Outcome(first, float(np.mean(losses[-max(len(losses) // 10, 1) :])), run.summary["time"])


def compare(number: int, levers: dict) -> tuple[Outcome, Outcome | None]:
    """Return what came of weighted sampling, and of tempo where that converged."""
    weighted = outcome(number, "weighted", max_rounds=ROUNDS, **levers)
    return weighted, outcome(number, "tempo", max_time=weighted.seconds, **levers) if weighted.converged else None


def forms_table(numbers: list[int], found: list[tuple[Outcome, Outcome]], jobs: int) -> str:
    """Return how the other forms of tempo fare."""
    lines = ["| form | federations | diverges | loss over that of weighted: median |\n|---|---:|---:|---:|"]
    limits = [(number, weighted) for number, (weighted, _) in zip(numbers, found, strict=True)]
    for name, options in FORMS.items():
        ends = Parallel(n_jobs=jobs)(
            delayed(outcome)(number, "tempo", options, max_time=weighted.seconds) for number, weighted in limits
        )
        ratio = np.median([end.last / weighted.last for end, (_, weighted) in zip(ends, limits, strict=True)])
        lines[-1] += f"\n| {name} | {len(ends)} | {sum(end.diverged for end in ends)} | {ratio:.3f} |"
    return "\n\n".join(lines) + "\n"


def table(numbers: list[int], found: list[tuple[Outcome, Outcome]], tried: int) -> str:
    """Return the report."""
    lines = [
        "# Where weighted sampling converges, does tempo?",
        f"Made by `python benchmarks/stability.py --federations {len(numbers)}`. Weighted sampling converges in "
        f"{len(numbers)} of {tried} random federations, which are counted here.",
        "| server momentum | federations | tempo diverges | loss of tempo over that of weighted: median | worst 1 % |\n"
        "|---:|---:|---:|---:|---:|",
    ]
    momentum = [federation(number)["server_momentum"] for number in numbers]
    for m, count in sorted(Counter(momentum).items()):
        group = [pair for mine, pair in zip(momentum, found, strict=True) if mine == m]
        ratios = np.array([tempo.last / weighted.last for weighted, tempo in group])
        bad = sum(tempo.diverged for _, tempo in group)
        lines[-1] += f"\n| {m:g} | {count} | {bad} | {np.median(ratios):.3f} | {np.quantile(ratios, 0.99):.2f} |"
    bad = [number for number, (_, tempo) in zip(numbers, found, strict=True) if tempo.diverged]
    lines.append(f"Diverged: {', '.join(map(str, bad)) or 'none'}.")
    return "\n\n".join(lines) + "\n"


def main() -> None:
    """Try federations one after another until enough have counted."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--federations", type=int, default=1000)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("levers", nargs="*", metavar="NAME=VALUE")
    given = parser.parse_args()
    levers = {name: ast.literal_eval(value) for name, _, value in (one.partition("=") for one in given.levers)}
    numbers: list[int] = []
    found: list[tuple[Outcome, Outcome]] = []
    tried = 0
    with Parallel(n_jobs=given.jobs, batch_size=10) as parallel:
        while len(numbers) < given.federations:
            batch = range(tried, tried + min(2 * (given.federations - len(numbers)), 200))
            for number, (weighted, tempo) in zip(
                batch, parallel(delayed(compare)(one, levers) for one in batch), strict=True
            ):
                tried += 1
                if tempo is not None:
                    numbers.append(number)
                    found.append((weighted, tempo))
                if len(numbers) == given.federations:
                    break
            print(f"{len(numbers)} of {tried} count, tempo diverges in {sum(t.diverged for _, t in found)}", flush=True)
    if levers:
        print(table(numbers, found, tried))
        return
    some = max(len(numbers) // 10, 1)
    report = f"{table(numbers, found, tried)}\n{forms_table(numbers[:some], found[:some], given.jobs)}"
    print(report)
    with whole_file(REPORT) as stream_:
        stream_.write(report)


if __name__ == "__main__":
    main()
