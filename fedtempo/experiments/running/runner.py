"""One run of an experiment: into its folder, or on from where it was stopped."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from fedtempo.engine.loop import Loop
from fedtempo.engine.records import RoundRecord, Summary
from fedtempo.engine.run import Progress, run_into
from fedtempo.engine.run_folder import RunFolder
from fedtempo.experiments.running.identity import canonical
from fedtempo.experiments.running.planned import PlannedRun, run_settings
from fedtempo.experiments.running.problem import problem_of
from fedtempo.experiments.settings.config import Experiment
from fedtempo.learning.threads import one_thread
from fedtempo.simulator.problem import Problem
from fedtempo.simulator.simulation import make_simulation


def no_progress(loop: Loop, record: RoundRecord) -> None:
    """Show nothing of a round."""


def run(
    planned: PlannedRun, progress: Progress = no_progress, at_end: Callable[[Loop], None] = lambda loop: None
) -> Summary:
    """Run into the folder, or go on where an earlier call was stopped; return the summary.

    ``at_end`` is called before the summary is written: should it fail, the run has not ended.
    """
    with ready(planned.experiment) as problem:
        loop = make_simulation(problem, planned.settings)
        files = RunFolder(planned.folder, planned.header, canonical)
        return run_into(files, loop, progress, lambda: at_end(loop))


def simulation_of(experiment: Experiment, policy: str, seed: int) -> Loop:
    """Return the run of one policy under one seed, at its start and without a folder."""
    return make_simulation(problem_of(experiment), run_settings(experiment, policy, seed))


@contextmanager
def ready(experiment: Experiment) -> Iterator[Problem]:
    """Yield the problem of an experiment, and let one thread do all its products."""
    problem = problem_of(experiment)
    _ = problem.trainer  # loads libraries, before their threads can be limited
    with one_thread():
        yield problem
