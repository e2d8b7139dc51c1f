"""One run of an experiment: into its folder, or on from where it was stopped."""

from collections.abc import Iterator
from contextlib import contextmanager

from threadpoolctl import threadpool_limits

from fedtempo.engine.loop import Loop
from fedtempo.engine.records import RoundRecord, Summary
from fedtempo.engine.run import Progress, run_into
from fedtempo.engine.run_folder import RunFolder
from fedtempo.experiments.running.identity import canonical
from fedtempo.experiments.running.planned import PlannedRun, run_settings
from fedtempo.experiments.running.problem import problem_of
from fedtempo.experiments.settings.config import Experiment
from fedtempo.simulator.simulation import make_simulation


def no_progress(loop: Loop, record: RoundRecord) -> None:
    """Show nothing of a round."""


def run(planned: PlannedRun, progress: Progress = no_progress) -> Summary:
    """Run into the folder, or go on where an earlier call was stopped; return the summary."""
    with one_thread(planned.experiment):
        simulation = make_simulation(problem_of(planned.experiment), planned.settings)
        return run_into(RunFolder(planned.folder, planned.header, canonical), simulation, progress)


def simulation_of(experiment: Experiment, policy: str, seed: int) -> Loop:
    """Return the run of one policy under one seed, at its start and without a folder."""
    return make_simulation(problem_of(experiment), run_settings(experiment, policy, seed))


@contextmanager
def one_thread(experiment: Experiment) -> Iterator[None]:
    """Let one thread do all products: sums then have one order, however many runs share the machine."""
    problem_of(experiment)  # loads libraries, before their threads can be limited
    with threadpool_limits(limits=1):
        yield
