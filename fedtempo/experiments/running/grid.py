"""Many runs side by side: policies × seeds × variants; those that have ended are not run again."""

import os
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from fedtempo.checks import InputError
from fedtempo.engine.headers import LIMITS, limits, other_code
from fedtempo.engine.records import (
    HeaderLine,
    RoundRecord,
    RunNotice,
    Summary,
    decode_line,
    read_header,
    read_records,
)
from fedtempo.experiments.running.cluster import run_on_ray
from fedtempo.experiments.running.planned import PlannedRun
from fedtempo.experiments.running.processes import run_here
from fedtempo.experiments.running.results import Run, read_run

KINDS_SHOWN = 3
TAIL_BYTES = 4096  # bytes that are read at first to find a last line


@dataclass(frozen=True, eq=False, slots=True)
class Grid:
    """Runs that are asked for together, each once."""

    title: str
    runs: list[PlannedRun]
    unfinished: list[PlannedRun]


class GridInterrupted(KeyboardInterrupt):
    """Ctrl-C while runs were under way; asked for again, the same grid goes on with those that have not ended."""

    def __init__(self, ended: int, total: int, folder: Path) -> None:
        """Keep how many runs have ended, of how many, and where they are."""
        super().__init__(ended, total, folder)
        self.ended, self.total, self.folder = ended, total, folder

    def __str__(self) -> str:
        """Say how far it has come, and where."""
        return f"{self.ended} of {self.total} runs have ended, in {_from_here(self.folder)}"


# Shows how a grid gets on: a context whose function is called with each run as it ends.
Watch: TypeAlias = Callable[[Grid], AbstractContextManager[Callable[[PlannedRun], object]]]


@contextmanager
def unwatched(grid: Grid) -> Iterator[Callable[[PlannedRun], object]]:
    """Show nothing."""
    yield lambda run: None


@dataclass(frozen=True, kw_only=True, slots=True)
class Execution:
    """Where runs are computed, and what shows how they get on."""

    jobs: int = -1  # processes side by side on this machine; -1: one for each core
    ray: str | None = None  # or the address of a Ray cluster
    watch: Watch = unwatched

    def __post_init__(self) -> None:
        """Check that somebody computes."""
        if self.jobs == 0 or self.jobs < -1:
            raise InputError(name="jobs", rule="be a number of processes, or -1 for one to each core", got=self.jobs)


def run_grid(title: str, runs: Sequence[PlannedRun], execution: Execution) -> list[Run]:
    """Run all that have not ended, and return what each run came to, in the same order.

    Interrupted or killed, it goes on where it was when it is called again.
    """
    once = list({run.folder: run for run in runs}.values())
    grid = Grid(title, once, [run for run in once if not has_ended(run)])
    _check_records(grid)
    try:
        with execution.watch(grid) as show_end:
            if execution.ray is None:
                run_here(grid.unfinished, execution.jobs, show_end)
            else:
                run_on_ray(grid.unfinished, execution.ray, show_end)
    except KeyboardInterrupt:
        left = sum(not has_ended(run) for run in grid.unfinished)
        folder = Path(os.path.commonpath([run.folder.parent for run in once]))
        raise GridInterrupted(len(once) - left, len(once), folder) from None
    read = {run.folder: read_run(run.records) for run in once}
    return [read[run.folder] for run in runs]


def _from_here(folder: Path) -> Path:
    """Return a folder as seen from the present one, where it lies below that."""
    return folder.relative_to(Path.cwd()) if folder.is_relative_to(Path.cwd()) else folder


def has_ended(run: PlannedRun) -> bool:
    """Return whether the records of a run go as far as is asked for: to its end, or to this limit and beyond."""
    if not run.records.exists():
        return False
    last, header = last_line(run.records), read_header(run.records)
    if header is None or last is None or isinstance(last, HeaderLine):
        return False
    if isinstance(last, Summary) and last.end not in LIMITS:
        return True
    there, asked = limits(header), limits(run.header)
    if isinstance(last, Summary):
        return all(limit >= wanted for limit, wanted in zip(there, asked, strict=True))
    return there != asked and _trained_until(run.records, *asked)  # on its way to a later limit, beyond this one


def _trained_until(records: Path, max_rounds: float, max_time: float) -> bool:
    """Return whether the records of a run go as far as a limit."""
    times = [record.round_time for record in read_records(records).rounds if record.trained]
    return len(times) >= max_rounds or sum(times) >= max_time


def last_line(path: Path) -> HeaderLine | RoundRecord | Summary | None:
    """Return the last whole line of a records file without reading the rest; None if there is none."""
    with open(path, "rb") as stream:
        size, block = stream.seek(0, os.SEEK_END), TAIL_BYTES
        while True:
            stream.seek(max(0, size - block))
            lines = stream.read().split(b"\n")
            if len(lines) > 2 or block >= size:
                whole = [line for line in lines[:-1] if line] if block >= size else lines[1:-1]
                break
            block *= 4
    try:
        return decode_line(whole[-1], path, "its last line") if whole else None
    except InputError as error:
        raise InputError(error.name, error.rule, error.got, "delete its folder") from None


def _check_records(grid: Grid) -> None:
    """Refuse records of other data, as sets of images depend on the files that are there; warn of other code once."""
    begun, differing = 0, Counter[str]()
    for run in grid.runs:
        if (header := read_header(run.records)) is None:
            continue
        begun += 1
        if header.data_checksum != run.header.data_checksum:
            raise InputError(
                name=run.folder,
                rule=f"hold a run on {run.header.data}",
                got=f"other data, {header.data}",
                remedy="choose another folder",
            )
        if difference := other_code(header, run.header):
            differing[difference] += 1
    if differing:
        kinds = ", ".join(f"{count} of {begun} ({kind})" for kind, count in differing.most_common(KINDS_SHOWN))
        warnings.warn(
            f"of the runs in {grid.runs[0].folder.parent}, {kinds} were made by other or unknown code, whose numbers "
            "may differ; they are taken as they are: delete them to run them again",
            RunNotice,
            stacklevel=3,
        )
