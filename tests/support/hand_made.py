"""Runs made up by hand: what their records hold is what the test says."""

import math
from pathlib import Path

from fedtempo.engine.records import FORMAT, Header, RoundRecord, Summary
from fedtempo.experiments.results import Run

SAMPLES = [30, 10]
CONFIG = {"times": {}, "training": {}, "stop": {}}


def hand_made_run(losses, *, policy="uniform", seed=0, round_time=1.0, pilot_time=0.0, end="max_rounds", config=None):
    """Return a run of two clients that was evaluated where the losses are no NaN, with accuracies of a tenth of them.

    ``pilot_time``: of one pilot round, if there is one. ``end``: None for a run that has not ended.
    """
    records = [_record(0, math.nan, pilot_time, phase="pilot-uniform")] if pilot_time else []
    records += [_record(number, loss, round_time) for number, loss in enumerate(losses)]
    header = Header(
        format=FORMAT, experiment="made up", preset="paper", policy=policy, seed=seed, config=config or CONFIG,
        data="nothing", data_checksum="0123456789", samples=SAMPLES,
    )  # fmt: skip
    summary = None if end is None else _summary(end, len(losses), round_time)
    return Run(Path("made-up"), header, records, summary, policy)


def _record(number, loss, round_time, phase="train"):
    known = None if math.isnan(loss) else loss
    return RoundRecord(
        round=number, phase=phase, time=round_time * (number + 1), round_time=round_time,
        loss=known, accuracy=None if known is None else known / 10,
        members=[0, 1], counts=[2, 1], weights=[0.5, 0.5], step_size=[0.1, 0.1], local_steps=[5, 5],
        compute_time=[1.0, 2.0], upload_time=[0.5, 0.25], largest_gradient_norm=[1.0, 2.0],
        mean_gradient_norm=[1.0, 2.0], update_norm=[1.0, 2.0], mean_loss=[1.0, 2.0], failed=[], aggregate_norm=1.0,
    )  # fmt: skip


def _summary(end, rounds, round_time):
    return Summary(
        end=end, rounds=rounds, time=rounds * round_time, pilot_rounds=0, pilot_time=0.0, loss=None, accuracy=None,
        time_to_loss=None, time_to_accuracy=None,
    )  # fmt: skip
