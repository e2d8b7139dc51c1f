"""What each part of tempo brings: Setup 2 with parts of it taken away, and parts of it given to others.

    python benchmarks/forms.py

Five draws of the data, one seed each, preset best, plain server, seconds to loss 0.7; the step size of each form
is the better of two on two other draws. Writes benchmarks/forms.md.
"""

import argparse
from pathlib import Path
from typing import NamedTuple

import numpy as np
from joblib import Parallel, delayed

from fedtempo.experiments.running.runner import ready, simulation_of
from fedtempo.experiments.settings.config_file import load_experiment
from fedtempo.files import whole_file
from fedtempo.tables.table import Table

REPORT = Path(__file__).with_suffix(".md")
CONFIG = Path(__file__).parents[1] / "configs" / "setup2.toml"
STEP_SIZES, TUNING_DRAWS, DRAWS = (0.002, 0.005), (1000, 1001), (0, 1, 2, 3, 4)
TARGET_LOSS, MOST_SECONDS = 0.7, 6000.0


class Form(NamedTuple):
    """A policy with options of its own, and settings of training that go with it."""

    policy: str
    options: dict
    training: dict


FORMS = {
    "tempo": Form("tempo", {}, {}),
    "tempo, weights never cut: each step unbiased": Form("tempo", {"largest_factor": float("inf")}, {}),
    "tempo, draws by data share": Form("tempo", {"floor": 1.0}, {}),
    "tempo, synchronous": Form("tempo", {"overlap": False}, {}),
    "tempo without memory, K = 2": Form("tempo", {"memory": False}, {"cohort_size": 2}),
    "tempo with a memory of 8 bits": Form("tempo", {"memory_bits": 8}, {}),
    "tempo that chooses E": Form("tempo", {"choose_local_steps": True}, {}),
    "weighted, K = 2": Form("weighted", {}, {"cohort_size": 2}),
    "weighted with a server memory, K = 2": Form("weighted", {}, {"cohort_size": 2, "server_memory": True}),
    "FedBuff, K = 1": Form("fedbuff", {}, {"cohort_size": 1}),
    "FedBuff, K = 1, three in flight, old updates count in full": Form(
        "fedbuff", {"concurrency": 3, "staleness_exponent": 0.0}, {"cohort_size": 1}
    ),
}


def seconds(form: Form, draw: int, step_size: float) -> tuple[float, float]:
    """Return the time to the target, or the limit, and the share of updates whose weight was cut."""
    own = {form.policy: form.options | {"training": {"cohort_size": 10} | form.training | {"step_size": step_size}}}
    over = {
        "data": {"seed": draw}, "times": {"seed": draw}, "policy": own,
        "stop": {"target_loss": TARGET_LOSS, "max_time": MOST_SECONDS},
    }  # fmt: skip
    experiment = load_experiment(CONFIG, "best", over=over)
    with ready(experiment):
        simulation = simulation_of(experiment, form.policy, draw)
        records = list(simulation.rounds())
    share = simulation.policy.fleet.data_share if form.policy == "tempo" else None
    cut = 0.0
    if share is not None and np.isfinite(bound := simulation.policy.form.largest_factor):
        factors = np.concatenate([np.array(one.weights) / share[one.members] for one in records if one.members])
        cut = float(np.mean(factors > bound * (1 - 1e-9)))
    summary = simulation.summary()
    return (summary.time if summary.end == "target" else MOST_SECONDS), cut


def row(name: str, form: Form, jobs: int) -> list[str]:
    """Return one form's line."""
    tried = [(step, draw) for step in STEP_SIZES for draw in TUNING_DRAWS]
    with Parallel(n_jobs=jobs) as parallel:
        tuned = parallel(delayed(seconds)(form, draw, step) for step, draw in tried)
        means = {
            step: np.mean([np.log(one[0]) for (at, _), one in zip(tried, tuned, strict=True) if at == step])
            for step in STEP_SIZES
        }
        best = min(means, key=lambda step: means[step])
        found = parallel(delayed(seconds)(form, draw, best) for draw in DRAWS)
    times, cut = np.array([time for time, _ in found]), np.mean([share for _, share in found])
    missed = int((times >= MOST_SECONDS).sum())
    mean = f"{'> ' if missed else ''}{np.exp(np.log(times).mean()):,.0f}"
    each = " ".join(f"{'>' if time >= MOST_SECONDS else ''}{time:,.0f}" for time in times)
    return [name, f"{best:g}", mean, each, f"{cut:.0%}" if form.policy == "tempo" else "-"]


def main() -> None:
    """Measure, and write the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=2)
    jobs = parser.parse_args().jobs
    rows = []
    for name, form in FORMS.items():
        rows.append(row(name, form, jobs))
        print(*rows[-1], sep=" | ", flush=True)
    headings = ["form", "step size", "seconds", "each draw", "updates with a weight that was cut"]
    report = (
        "# What each part of tempo brings\n\n"
        "Made by `python benchmarks/forms.py`: Setup 2, static channel, plain server, geometric means over five draws, "
        f"one seed each; runs end after {MOST_SECONDS:,.0f} s.\n\n{Table.from_rows(headings, rows)}\n"
    )
    with whole_file(REPORT) as stream:
        stream.write(report)


if __name__ == "__main__":
    main()
