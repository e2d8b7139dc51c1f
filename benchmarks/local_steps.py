"""Setup 2 from other numbers of local steps and step sizes: tempo with E as given, and with E of its own choice.

    python benchmarks/local_steps.py --draws 5,11,12,13

Computing takes time in proportion to E. Prints the geometric mean over draws of the data of the simulated seconds to
the target loss; runs that miss it within the limit enter with the limit and are counted. Writes
benchmarks/local_steps.md.
"""

import argparse
from itertools import product
from pathlib import Path

import numpy as np
from joblib import Parallel, delayed

from fedtempo.engine.divergence import DivergedError
from fedtempo.experiments.running.runner import ready, simulation_of
from fedtempo.experiments.settings.config_file import load_experiment
from fedtempo.files import whole_file
from fedtempo.tables.table import Table

REPORT = Path(__file__).with_suffix(".md")
CONFIG = Path(__file__).parents[1] / "configs" / "setup2.toml"
TARGET, SEED = 0.7, 1000
LIMIT = 1500.0  # simulated seconds, three times as many where computing takes ten times as long
COMPUTE = (1.0, 10.0)  # mean seconds of 50 local steps; uploads take 1 s
LOCAL_STEPS = (10, 50, 200)
PLAIN = ((0.0, 0.002), (0.0, 0.005), (0.0, 0.01))  # server momentum and step size
MOMENTUM = ((0.8, 0.001), (0.8, 0.002), (0.8, 0.004))


def seconds(draw: int, compute: float, steps: int, momentum: float, step_size: float, *, choose: bool) -> float | None:
    """Return the time of one run to the target, None if it misses it."""
    experiment = load_experiment(
        CONFIG,
        "best",
        over={
            "data": {"seed": draw},
            "times": {"seed": draw, "compute": {"kind": "exponential", "mean": compute * steps / 50}},
            "training": {
                "local_steps": steps, "cohort_size": 5, "step_size": step_size, "server_momentum": momentum,
            },
            "stop": {"target_loss": TARGET, "max_time": limit(compute)},
            "policy": {"tempo": {"choose_local_steps": choose}},
        },
    )  # fmt: skip
    with ready(experiment):
        simulation = simulation_of(experiment, "tempo", SEED)
        try:
            for _ in simulation.rounds():
                pass
        except DivergedError:
            return None
    return simulation.summary().time_to_loss


def limit(compute: float) -> float:
    """Return the simulated seconds that a run may take."""
    return LIMIT * (3 if compute > 1 else 1)


def cell(times: list[float | None], compute: float) -> str:
    """Return the mean over draws, and how many missed the target."""
    missed = sum(time is None for time in times)
    mean = np.exp(np.mean([np.log(limit(compute) if time is None else time) for time in times]))
    return f"> {mean:,.0f} ({missed} missed)" if missed else f"{mean:,.0f}"


def main() -> None:
    """Run the grid and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", default="5,11,12,13")
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    draws = [int(draw) for draw in given.draws.split(",")]
    worlds = [(compute, *setting) for compute in COMPUTE for setting in PLAIN] + [(1.0, *one) for one in MOMENTUM]
    cases = list(product(worlds, LOCAL_STEPS, (False, True), draws))
    found = Parallel(n_jobs=given.jobs)(
        delayed(seconds)(draw, compute, steps, momentum, step_size, choose=choose)
        for (compute, momentum, step_size), steps, choose, draw in cases
    )
    times = dict(zip(cases, found, strict=True))
    rows = [
        [
            f"{world[0]:g}", f"{world[1]:g}", f"{world[2]:g}",
            *(
                cell([times[world, steps, choose, draw] for draw in draws], world[0])
                for choose, steps in product((False, True), LOCAL_STEPS)
            ),
        ]
        for world in worlds
    ]  # fmt: skip
    headings = ["computing 50 steps (s)", "server momentum", "step size"]
    headings += [f"{word} {steps}" for word, steps in product(("E =", "own choice, from"), LOCAL_STEPS)]
    report = (
        f"# Local steps: given, or chosen by tempo\n\nMade by `python benchmarks/local_steps.py --draws {given.draws}`."
        f" Setup 2, preset `best`, simulated seconds to loss {TARGET:g}, geometric mean over draws "
        f"{given.draws.replace(',', ', ')}.\n\n{Table.from_rows(headings, rows)}\n"
    )
    print(report)
    with whole_file(REPORT) as stream:
        stream.write(report)


if __name__ == "__main__":
    main()
