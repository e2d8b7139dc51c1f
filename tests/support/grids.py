"""Runs that a grid is asked for, runs and trials made up by hand, and the cells of printed tables."""

from pathlib import Path

from fedtempo.engine.records import FORMAT, Header, RoundRecord, Summary
from fedtempo.engine.settings import TrainingSettings
from fedtempo.experiments.ranking.candidates import Candidate, Trial
from fedtempo.experiments.running.grid import Execution
from fedtempo.experiments.running.planned import plan_runs
from fedtempo.experiments.running.results import Run
from fedtempo.experiments.settings.config_file import load_experiment

ONE_PROCESS, TWO_PROCESSES = Execution(jobs=1), Execution(jobs=2)


def planned_runs(config, root, policies=("uniform", "weighted"), seeds=(0, 1), **over):
    return plan_runs(load_experiment(config, over=over), policies, seeds, root)


def trial(policy, step_size, cohort_size, seconds, **more):
    """Return a trial whose one run reaches loss 1 after so many seconds."""
    return trial_of([made_up(policy, 0, [1.0], seconds)], step_size, cohort_size, **more)


def trial_of(runs, step_size=0.1, cohort_size=3, **more):
    choice = {"step_size": step_size, "cohort_size": cohort_size, **more}
    return Trial(Candidate(runs[0].policy, choice, TrainingSettings(**choice), []), runs)


def made_up(policy, seed, losses, seconds, *, end="max_rounds", pilot=0.0, counts=(2, 1), **stop):
    """Return a run whose rounds take equal times and whose two members compute and upload in times of their own."""
    records = [made_up_round("pilot-uniform", 0, pilot, 2.0, counts)] if pilot else []
    records += [made_up_round("train", r, seconds, loss, counts) for r, loss in enumerate(losses)]
    header = Header(
        format=FORMAT, experiment="made up", preset="paper", policy=policy, seed=seed, samples=[30, 10], data="nothing",
        data_checksum="none", config={"times": {}, "training": {}, "stop": stop},
    )  # fmt: skip
    summary = Summary(
        end=end or "target", rounds=len(losses), time=seconds * len(losses), pilot_rounds=int(pilot > 0),
        pilot_time=pilot, loss=losses[-1] if losses else None, accuracy=None, time_to_loss=None, time_to_accuracy=None,
    )  # fmt: skip
    return Run(Path("nowhere"), header, records, None if end is None else summary, policy)


def made_up_round(phase, number, seconds, loss, counts):
    """Return a round; of a loss None it was not evaluated."""
    nothing, accuracy = [0.0, 0.0], None if loss is None else 1 - loss / 3
    return RoundRecord(
        round=number, phase=phase, time=seconds * (number + 1), round_time=seconds, loss=loss, accuracy=accuracy,
        members=[0, 1], counts=list(counts), weights=[0.5, 0.5], step_size=[0.1, 0.1], local_steps=[5, 5],
        compute_time=[1.0, 2.0], upload_time=[0.5, 0.25], largest_gradient_norm=[1.0, 2.0],
        mean_gradient_norm=nothing, update_norm=nothing, mean_loss=nothing, failed=[], aggregate_norm=0.0,
    )  # fmt: skip


def cells(table):
    """Return the cells of all tables in a text, or of a table, row by row."""
    lines = str(table).splitlines()
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if line.startswith("| ")]


def late(end, rounds=4, seconds=10.0, *, seed=0, **stop):
    """Return a run that does not come below loss 1.5 in its rounds."""
    return made_up("uniform", seed, [2.0] * (rounds - 1) + [1.5], seconds, end=end, **stop)
