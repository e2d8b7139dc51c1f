"""Many runs side by side: policies × seeds × variants, each found again by the hash of what it is."""

import hashlib
import json
import os
import signal
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any

from fedtempo.checks import InputError, MissingDependencyError
from fedtempo.engine.loop import DivergedError
from fedtempo.engine.records import RECORDS, read_lines
from fedtempo.engine.run import ctrl_c
from fedtempo.experiments import runner
from fedtempo.experiments.config import Experiment, for_policy
from fedtempo.simulator.simulation import Simulation

HASH_LENGTH = 10


@dataclass(frozen=True, eq=False, slots=True)
class Job:
    """One run of a grid."""

    experiment: Experiment
    table: dict[str, Any]  # that the experiment was made from
    policy: str
    seed: int
    root: Path
    made_by: int = field(default_factory=os.getpid)  # the process that waits for it

    def __post_init__(self) -> None:
        """Name the folder so that a worker finds it, wherever it was started."""
        object.__setattr__(self, "root", self.root.absolute())

    @property
    def folder(self) -> Path:
        """Where its records are: another setting is another folder, another policy's options are not."""
        training, options = for_policy(self.experiment, self.policy)
        settings = asdict(self.experiment) | {
            "training": asdict(training),
            "policy": options,
            "name": None,
            "preset": None,
        }
        key = json.dumps([settings, self.policy, self.seed], sort_keys=True, default=str)
        digest = hashlib.sha256(key.encode()).hexdigest()[:HASH_LENGTH]
        return self.root / f"{self.policy}-seed{self.seed}-{digest}"

    def run(self) -> Path:
        """Run it, or go on with it, unless it has ended; return its records."""
        table = self.table | {"policy": {k: v for k, v in self.table.get("policy", {}).items() if k == self.policy}}
        started_by = os.getppid() if os.getpid() != self.made_by else None

        def check(simulation: Simulation, record: dict[str, Any]) -> None:
            if started_by not in (None, os.getppid()):
                raise SystemExit  # whoever waits for this run is dead: a new grid may go on with it

        with suppress(DivergedError):  # the records say so
            runner.run(self.experiment, table, policy=self.policy, seed=self.seed, folder=self.folder, progress=check)
        return self.folder / RECORDS


def has_ended(job: Job) -> bool:
    """Return whether the records of a run are complete."""
    path = job.folder / RECORDS
    return path.exists() and "end" in last_line(path)


def _check_data(job: Job) -> None:
    """Refuse records of other data: what a set of images holds depends on the files that are there."""
    path = job.folder / RECORDS
    header = next(read_lines(path), {}).get("header", {}) if path.exists() else {}
    data = runner.load_data(job.experiment.data)
    if header.get("data_checksum", data.checksum()) != data.checksum():
        raise InputError(
            f"{job.folder} must hold a run on {data.name}, got other data, {header['data']}; choose another folder"
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
                return json.loads(whole[-1]) if whole else {}
            block *= 4


def run_grid(jobs: list[Job], *, processes: int, ray: str | None = None) -> list[Path]:
    """Run all jobs that have not ended, on this machine's processes or a Ray cluster; return their records in order.

    Interrupted or killed, it goes on where it was when it is called again.
    """
    from joblib import Parallel, delayed, effective_n_jobs, parallel_config

    unfinished = [job for job in jobs if not has_ended(job)]
    for job in jobs:
        _check_data(job)
    if ray is None:
        if unfinished and effective_n_jobs(processes) > 1:
            _compile(unfinished[0])
        parallel = Parallel(n_jobs=processes, return_as="generator_unordered")
        with warnings.catch_warnings(), ExitStack() as at_the_end:
            # After a run, a worker that has come to hold much data makes way for a new one.
            warnings.filterwarnings("ignore", "A worker stopped", UserWarning)
            warnings.filterwarnings("ignore", ".* tasks .* have been cancelled", UserWarning)  # by Ctrl-C
            with _ctrl_c_held_back():
                ended = parallel(delayed(Job.run)(job) for job in unfinished)
                at_the_end.callback(ended.close)
            for _ in ended:
                pass
        return [job.folder / RECORDS for job in jobs]
    _connect_to_ray(ray)
    with parallel_config(backend="ray"):
        found = Parallel(n_jobs=-1)(delayed(_run_there)(job) for job in unfinished)
    for job, records in zip(unfinished, found, strict=True):
        if not has_ended(job):  # it ran on a machine that does not share this one's folders
            job.folder.mkdir(parents=True, exist_ok=True)
            (job.folder / RECORDS).write_bytes(records)
    return [job.folder / RECORDS for job in jobs]


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


def _run_there(job: Job) -> bytes:
    return job.run().read_bytes()


def _connect_to_ray(address: str) -> None:
    try:
        import ray
        from ray.util.joblib import register_ray
    except ModuleNotFoundError:
        raise MissingDependencyError("ray", "ray", "--ray") from None
    if not ray.is_initialized():
        try:
            own = {"include_dashboard": False} if address == "local" else {}
            ray.init(address=address, log_to_driver=False, **own)
        except ConnectionError as error:
            raise InputError(f"--ray must be the address of a running cluster, got {address!r}: {error}") from None
    register_ray()
