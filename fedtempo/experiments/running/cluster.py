"""Runs on a Ray cluster, whose machines need not share this one's folders."""

import os
from collections.abc import Callable, Sequence

from fedtempo.checks import InputError, MissingDependencyError
from fedtempo.engine.records import RECORDS
from fedtempo.experiments.running.planned import PlannedRun
from fedtempo.experiments.running.processes import compute
from fedtempo.files import whole_file


def run_on_ray(runs: Sequence[PlannedRun], address: str, show_end: Callable[[PlannedRun], object]) -> None:
    """Compute runs on a cluster, and write the records of each when it ends, unless its machine has written them.

    No run is lost with those that are still under way.
    """
    _connect(address)
    import ray

    run_there = ray.remote(num_cpus=1)(_run_there)
    under_way = {run_there.remote(run, os.getpid()): run for run in runs}
    while under_way:
        (ended, *_), _ = ray.wait(list(under_way))
        run = under_way.pop(ended)
        try:
            records = ray.get(ended)
        except ray.exceptions.RayTaskError as error:
            raise error.cause from None  # without the traceback of the other machine
        if not (run.records.exists() and run.records.read_bytes() == records):
            run.folder.mkdir(parents=True, exist_ok=True)
            with whole_file(run.records, "wb") as stream:
                stream.write(records)
        show_end(run)


def _run_there(run: PlannedRun, asked_by: int) -> bytes:
    return (compute(run, asked_by) / RECORDS).read_bytes()


def _connect(address: str) -> None:
    try:
        import ray
    except ModuleNotFoundError:
        raise MissingDependencyError("ray", "ray") from None
    if not ray.is_initialized():
        try:
            own = {"include_dashboard": False} if address == "local" else {}
            ray.init(address=address, log_to_driver=False, **own)
        except ConnectionError as error:
            raise InputError(
                name="ray", rule="be the address of a running cluster", got=f"{address!r}: {error}"
            ) from None
