"""A small experiment: its file, the command line in this process, whole and stopped runs of it."""

import json

import pytest

from fedtempo.cli import main
from fedtempo.engine.records import RECORDS
from fedtempo.engine.run_folder import CHECKPOINT
from fedtempo.experiments.running import runner
from fedtempo.experiments.running.planned import plan_run
from fedtempo.experiments.settings.config_file import load_experiment

SMALL = """
name = "small"
[data]
kind = "synthetic"
clients = 10
samples = 800
[model]
kind = "softmax"
[times]
compute = { kind = "exponential", mean = 1.0 }
upload = { kind = "uniform", low = 0.2, high = 2.0 }
[training]
cohort_size = 3
local_steps = 5
[stop]
max_rounds = 6
[policy.proposed]
losses = [2.2, 2.1]
max_rounds = 4
[policy.weighted.training]
step_size = 0.05
[presets.best.training]
link = "shared"
duplicates = "physical"
"""


UPLOAD = 'upload = { kind = "uniform", low = 0.2, high = 2.0 }'


def command(*arguments):
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    return ended.value.code


def run_file(config, folder, policy="uniform", seed=0, *, preset="paper", over=None, progress=runner.no_progress):
    """Run the experiment of a file, or go on with it; return the summary."""
    experiment = load_experiment(config, preset, over=over)
    return runner.run(plan_run(experiment, policy, seed, folder), progress)


def stopped_run(config, folder, seed=0, policy="uniform"):
    """Run four rounds and stop, as a kill after a checkpoint does."""

    def stop(loop, record):
        if loop.state.rounds_done == 4:
            raise RuntimeError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fedtempo.engine.run.CHECKPOINT_SECONDS", 0.0)
        with pytest.raises(RuntimeError):
            run_file(config, folder, policy, seed, progress=stop)
    assert (folder / CHECKPOINT).exists()


def whole_run(config, folder, seed=0, policy="uniform", **over):
    run_file(config, folder, policy, seed, over=over)
    return (folder / RECORDS).read_bytes()


def change_header(folder, change):
    header, *rest = (folder / RECORDS).read_bytes().splitlines(keepends=True)
    record = json.loads(header)
    change(record["header"])
    line = json.dumps(record, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"
    (folder / RECORDS).write_bytes(line + b"".join(rest))
    return line
