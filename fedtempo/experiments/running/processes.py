"""Runs on this machine, on several processes: Ctrl-C reaches this one alone, which ends the others."""

import os
import signal
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from multiprocessing import resource_tracker
from pathlib import Path

from fedtempo.engine.divergence import DivergedError
from fedtempo.engine.loop import Loop
from fedtempo.engine.records import RoundRecord, RunNotice
from fedtempo.engine.run import ctrl_c
from fedtempo.experiments.running.planned import PlannedRun
from fedtempo.experiments.running.runner import ready, run
from fedtempo.simulator.simulation import make_simulation


def run_here(runs: Sequence[PlannedRun], jobs: int, show_end: Callable[[PlannedRun], object]) -> None:
    """Compute runs on so many processes, and call ``show_end`` with each that has ended."""
    from joblib import Parallel, delayed, effective_n_jobs

    if runs and effective_n_jobs(jobs) > 1:
        _compile(runs[0])
    parallel = Parallel(n_jobs=jobs, return_as="generator_unordered")
    by_folder = {one.folder: one for one in runs}
    with warnings.catch_warnings(), ExitStack() as at_the_end:
        # After a run, a worker that has come to hold much data makes way for a new one.
        warnings.filterwarnings("ignore", "A worker stopped", UserWarning)
        warnings.filterwarnings("ignore", ".* tasks .* have been cancelled", UserWarning)  # by Ctrl-C
        with _ctrl_c_held_back():
            ended = parallel(delayed(compute)(one, os.getpid()) for one in runs)
            at_the_end.callback(ended.close)
        for folder in ended:
            show_end(by_folder[folder])


def compute(planned: PlannedRun, asked_by: int) -> Path:
    """Run, or go on with a run, unless it has ended; return its folder. ``asked_by``: the process that waits for it."""
    started_by = os.getppid() if os.getpid() != asked_by else None

    def check(loop: Loop, record: RoundRecord) -> None:
        if started_by not in (None, os.getppid()):
            raise SystemExit  # whoever waits for this run is dead: a new grid may go on with it

    with suppress(DivergedError), warnings.catch_warnings():  # the records say so, and the grid which code began it
        warnings.simplefilter("ignore", RunNotice)
        run(planned, check)
    return planned.folder


def _compile(planned: PlannedRun) -> None:
    """Run one round here: the kernels are then compiled once, and found by all workers."""
    with ready(planned.experiment) as problem, suppress(DivergedError):
        next(make_simulation(problem, planned.settings).rounds())


@contextmanager
def _ctrl_c_held_back() -> Iterator[None]:
    """Hear Ctrl-C at the end of the block; workers that it starts never hear it, since this process ends them."""
    pressed: list[int] = []
    with ctrl_c(lambda signum, frame: pressed.append(signum)), _not_heard_by_workers():
        yield
    if pressed:
        signal.raise_signal(signal.SIGINT)


@contextmanager
def _not_heard_by_workers() -> Iterator[None]:
    """Block Ctrl-C for this thread: processes inherit it, also those that its threads start later for others."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    resource_tracker.ensure_running()  # workers need it, and it lets Ctrl-C through when it starts
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
