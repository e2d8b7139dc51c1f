"""Runs to report on, and the page that is written of them."""

from dataclasses import replace

import msgspec
import numpy as np

from fedtempo.experiments.comparing.statistics import Target, Times
from fedtempo.experiments.report.page import write_report
from fedtempo.experiments.running import runner
from fedtempo.experiments.running.planned import plan_run
from fedtempo.experiments.settings.config_file import load_experiment
from support.runs import SMALL

LONG = SMALL.replace("max_rounds = 6", "max_rounds = 12").replace("mean = 1.0", "mean = 900.0")
LONG = LONG.replace("low = 0.2, high = 2.0", "low = 200.0, high = 2000.0")
TARGET = Target(loss=1.95)


def run_small(folder, *, policies=("proposed", "uniform"), seeds=(0, 1), preset="paper", over=None):
    (folder / "small.toml").write_text(LONG)
    experiment = load_experiment(folder / "small.toml", preset, over=over or {})
    for policy in policies:
        for seed in seeds:
            runner.run(plan_run(experiment, policy, seed, folder / f"{policy}{seed}"))


def written(runs, tmp_path, target=None):
    write_report(runs, tmp_path / "report.html", target=target)
    return (tmp_path / "report.html").read_text(encoding="utf-8")


def times_of(policy, seconds, *, missed=0, pilots=0.0, oracle=False):
    reached = np.array([place >= missed for place in range(3)])
    return Times(policy, (0, 1, 2), np.full(3, seconds), np.full(3, pilots), reached, np.ones(3), oracle)


def with_header(run, **fields):
    """Return a run with another header."""
    return replace(run, header=msgspec.structs.replace(run.header, **fields))


def with_config(run, **tables):
    """Return a run with other tables of its configuration."""
    return with_header(run, config=run.header.config | tables)


def with_end(run, end):
    """Return a run that ended otherwise, None: that has not ended."""
    return replace(run, summary=None if end is None else msgspec.structs.replace(run.summary, end=end))
