"""Jobs of a grid, runs made up by hand, and the cells of printed tables."""

from pathlib import Path

import numpy as np

from fedtempo.experiments.config import read_experiment
from fedtempo.experiments.grid import Job
from fedtempo.experiments.results import Run
from fedtempo.experiments.tuning import Candidate


def jobs_of(config, root, policies=("uniform", "weighted"), seeds=(0, 1), **over):
    experiment, table = read_experiment(config, over=over)
    return [Job(experiment, table, policy, seed, root) for policy in policies for seed in seeds]


def candidate(policy, step_size, cohort_size, seconds, **more):
    run = made_up(policy, 0, [1.0], seconds)
    training = {"step_size": step_size, "cohort_size": cohort_size, **more}
    made = Candidate(policy, training, cohort_size, [])
    made.__dict__["runs"] = [run]
    return made


def made_up(policy, seed, losses, seconds, *, end="max_rounds", pilot=0.0, counts=(2, 1)):
    """Return a run whose rounds take equal times and whose two members compute and upload in times of their own."""
    records = [
        {
            "round": r, "phase": "train", "round_time": seconds, "loss": loss, "accuracy": 1 - loss / 3,
            "members": [0, 1], "counts": list(counts), "compute_time": [1.0, 2.0], "upload_time": [0.5, 0.25],
            "largest_gradient_norm": [1.0, 2.0],
        }
        for r, loss in enumerate(losses)
    ]  # fmt: skip
    header = {
        "experiment": "made up", "policy": policy, "seed": seed, "samples": [30, 10], "data": "nothing",
        "config": {"times": {}, "training": {}, "stop": {}},
    }  # fmt: skip
    time = seconds * np.arange(1.0, len(losses) + 1)
    losses = np.array(losses)
    return Run(Path("nowhere"), header, {"end": end}, records, policy, seed, pilot, time, losses, 1 - losses / 3)


def cells(table):
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines() if line.startswith("| ")]


def late(end, rounds=4, seconds=10.0, **stop):
    """Return a run that does not come below loss 1.5 in its rounds."""
    run = made_up("uniform", 0, [2.0] * (rounds - 1) + [1.5], seconds, end=end)
    run.header["config"]["stop"] = stop
    return run
