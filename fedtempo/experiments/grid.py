"""Many runs side by side: policies × seeds × variants, each found again by the hash of what it is."""

import hashlib
import json
import os
import signal
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any

from fedtempo.checks import InputError, MissingDependencyError
from fedtempo.engine.loop import DivergedError
from fedtempo.engine.records import RECORDS, RunNotice, other_code, parsed, read_header
from fedtempo.engine.run import ctrl_c
from fedtempo.experiments import runner
from fedtempo.experiments.config import DataConfig, Experiment, digest_of, files_of, settings_of
from fedtempo.experiments.toml import merged
from fedtempo.files import whole_file
from fedtempo.policies.registry import source_of
from fedtempo.simulator.simulation import Simulation

HASH_LENGTH = 10
KINDS_SHOWN = 3


@dataclass(frozen=True, eq=False, slots=True)
class Job:
    """One run of a grid."""

    experiment: Experiment
    table: dict[str, Any]  # that the experiment was made from
    policy: str
    seed: int
    root: Path
    made_by: int = field(default_factory=os.getpid)  # the process that waits for it
    folder: Path = field(init=False)  # of its records: of another setting another, not of another policy's options

    def __post_init__(self) -> None:
        """Name the folder so that a worker finds it, wherever it was started; files count by what they hold.

        So does the file of a policy that another package brings: changed, it runs anew.
        """
        settings = merged(settings_of(self.experiment, self.policy), files_of(self.experiment))
        own = [] if (source := source_of(self.policy)) is None else [digest_of(str(source))]
        key = json.dumps([settings, self.policy, self.seed, *own], sort_keys=True, default=str)
        digest = hashlib.sha256(key.encode()).hexdigest()[:HASH_LENGTH]
        object.__setattr__(self, "folder", self.root.absolute() / f"{self.policy}-seed{self.seed}-{digest}")

    def run(self) -> Path:
        """Run it, or go on with it, unless it has ended; return its records."""
        table = self.table | {"policy": {k: v for k, v in self.table.get("policy", {}).items() if k == self.policy}}
        started_by = os.getppid() if os.getpid() != self.made_by else None

        def check(simulation: Simulation, record: dict[str, Any]) -> None:
            if started_by not in (None, os.getppid()):
                raise SystemExit  # whoever waits for this run is dead: a new grid may go on with it

        with suppress(DivergedError), warnings.catch_warnings():  # the records say so, and the grid which code began it
            warnings.simplefilter("ignore", RunNotice)
            runner.run(self.experiment, table, policy=self.policy, seed=self.seed, folder=self.folder, progress=check)
        return self.folder / RECORDS


def has_ended(job: Job) -> bool:
    """Return whether the records of a run are complete."""
    path = job.folder / RECORDS
    return path.exists() and "end" in last_line(path)


def _check_records(jobs: list[Job]) -> None:
    """Refuse records of other data, as sets of images depend on the files that are there; tell of other code once."""
    checksums: dict[DataConfig, str] = {}
    begun, differing = 0, Counter[str]()
    for job in jobs:
        data, kind = runner.load_data(job.experiment.data), job.experiment.data
        if kind not in checksums:
            checksums[kind] = data.checksum()
        if not (header := read_header(job.folder / RECORDS)):
            continue
        begun += 1
        if header.get("data_checksum") != checksums[kind]:
            raise InputError(
                name=job.folder,
                rule=f"hold a run on {data.name}",
                got=f"other data, {header.get('data')}",
                remedy="choose another folder",
            )
        if said := other_code(header, runner.made_with()):
            differing[said] += 1
    if differing:
        told = ", ".join(f"{count} of {begun} ({said})" for said, count in differing.most_common(KINDS_SHOWN))
        warnings.warn(
            f"of the runs in {jobs[0].folder.parent}, {told} were made by other or unknown code, whose numbers may "
            "differ; they are taken as they are: delete them to run them again",
            RunNotice,
            stacklevel=3,
        )


def last_line(path: Path) -> dict[str, Any]:
    """Return the last whole line of a records file without reading the rest."""
    with open(path, "rb") as stream:
        size, block = stream.seek(0, os.SEEK_END), 4096
        while True:
            stream.seek(max(0, size - block))
            lines = stream.read().split(b"\n")
            if len(lines) > 2 or block >= size:
                whole = [line for line in lines[:-1] if line] if block >= size else lines[1:-1]
                return parsed(whole[-1], path, "its last line; delete its folder") if whole else {}
            block *= 4


def run_grid(jobs: list[Job], *, processes: int, ray: str | None = None) -> list[Path]:
    """Run all jobs that have not ended, on this machine's processes or a Ray cluster; return their records in order.

    Interrupted or killed, it goes on where it was when it is called again.
    """
    once = list({job.folder: job for job in jobs}.values())
    unfinished = [job for job in once if not has_ended(job)]
    _check_records(once)
    if ray is None:
        _run_here(unfinished, processes)
    else:
        _run_on_ray(unfinished, ray)
    return [job.folder / RECORDS for job in jobs]


def _run_here(jobs: list[Job], processes: int) -> None:
    from joblib import Parallel, delayed, effective_n_jobs

    if jobs and effective_n_jobs(processes) > 1:
        _compile(jobs[0])
    parallel = Parallel(n_jobs=processes, return_as="generator_unordered")
    with warnings.catch_warnings(), ExitStack() as at_the_end:
        # After a run, a worker that has come to hold much data makes way for a new one.
        warnings.filterwarnings("ignore", "A worker stopped", UserWarning)
        warnings.filterwarnings("ignore", ".* tasks .* have been cancelled", UserWarning)  # by Ctrl-C
        with _ctrl_c_held_back():
            ended = parallel(delayed(Job.run)(job) for job in jobs)
            at_the_end.callback(ended.close)
        for _ in ended:
            pass


def _compile(job: Job) -> None:
    """Run one round here: the kernels are then compiled once, and found by all workers."""
    with runner.one_thread(job.experiment), suppress(DivergedError):
        next(runner.make_simulation(job.experiment, job.policy, job.seed).rounds())


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


def _run_on_ray(jobs: list[Job], address: str) -> None:
    """Run jobs on a cluster, and write the records of each when it ends, unless its machine shares this one's folders.

    No run is lost with those that are still under way.
    """
    _connect_to_ray(address)
    import ray

    run_there = ray.remote(num_cpus=1)(_run_there)
    under_way = {run_there.remote(job): job for job in jobs}
    while under_way:
        (ended, *_), _ = ray.wait(list(under_way))
        job = under_way.pop(ended)
        try:
            records = ray.get(ended)
        except ray.exceptions.RayTaskError as error:
            raise error.cause from None  # without the traceback of the other machine
        if not has_ended(job):
            job.folder.mkdir(parents=True, exist_ok=True)
            with whole_file(job.folder / RECORDS, "wb") as stream:
                stream.write(records)


def _run_there(job: Job) -> bytes:
    return job.run().read_bytes()


def _connect_to_ray(address: str) -> None:
    try:
        import ray
    except ModuleNotFoundError:
        raise MissingDependencyError("ray", "ray", "--ray") from None
    if not ray.is_initialized():
        try:
            own = {"include_dashboard": False} if address == "local" else {}
            ray.init(address=address, log_to_driver=False, **own)
        except ConnectionError as error:
            raise InputError(
                name="--ray", rule="be the address of a running cluster", got=f"{address!r}: {error}"
            ) from None
