"""What a person reads of runs while they train: how many have ended, where the others are, and how long it takes."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from fedtempo.engine.loop import Loop
from fedtempo.engine.records import RoundRecord
from fedtempo.engine.run import Progress as RoundProgress
from fedtempo.engine.settings import StopSettings
from fedtempo.experiments.running.display import display_of
from fedtempo.experiments.running.grid import Grid, last_line
from fedtempo.experiments.running.planned import PlannedRun

POLL_SECONDS, ACTIVE_SECONDS = 1.0, 15.0


@contextmanager
def run_progress(title: str, stop: StopSettings) -> Iterator[RoundProgress]:
    """Yield a function to call after each round of a run; it shows round, simulated time, loss and target."""
    target = "" if stop.target_loss is None else f" (target {stop.target_loss:g})"
    loss, began = "", time.monotonic()
    first: float | None = None
    with display_of(title) as display:

        def show(loop: Loop, record: RoundRecord) -> None:
            nonlocal loss, first
            shares = [loop.rounds_trained / stop.max_rounds] if stop.max_rounds else []
            shares += [loop.time_trained / stop.max_time] if stop.max_time else []
            share = min(1.0, max(shares))
            phase = "" if record.trained else f"{record.phase} "
            if record.loss is not None:
                loss = f", loss {record.loss:.4f}{target}"
            first = share if first is None else first  # what a run that goes on had done before
            done = share - first
            rest = (
                f"at most {duration_in_words((time.monotonic() - began) * (1 - share) / done)} to go"
                if done > 0
                else ""
            )
            display.show(share, f"{phase}round {record.round + 1}, {record.time:,.0f} s{loss}", rest)

        yield show


@contextmanager
def grid_progress(grid: Grid) -> Iterator[Callable[[PlannedRun], object]]:
    """Show how many runs of a grid have ended, and where those under way are, by what they have written so far."""
    waiting, stopped, began = list(grid.unfinished), threading.Event(), time.monotonic()
    total, before = len(grid.runs), len(grid.runs) - len(grid.unfinished)
    names = _Names(grid.runs)
    with display_of(grid.title) as display:

        def watch() -> None:
            while not stopped.wait(POLL_SECONDS):
                under_way = list(waiting)
                ended = total - len(under_way)
                times = times_in_words(ended, total, before, time.monotonic() - began)
                places = ((run, _place(run)) for run in under_way)
                below = "; ".join(f"{names.name(run)}: {place}" for run, place in places if place)
                display.show(ended / total, f"{ended} of {total} runs ended, {times}", below)

        display.show(before / total, f"{before} of {total} runs ended")
        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        try:
            yield waiting.remove
        finally:
            stopped.set()
            watcher.join()


def times_in_words(ended: int, total: int, before: int, elapsed: float) -> str:
    """Say how long some runs took, all that have ended but those before, and the others will if they take as long."""
    if not before < ended < total:
        return duration_in_words(elapsed)
    return (
        f"{duration_in_words(elapsed)}; about {duration_in_words(elapsed / (ended - before) * (total - ended))} to go"
    )


def duration_in_words(seconds: float) -> str:
    """Return seconds in the unit that suits them."""
    minutes = round(seconds / 60)
    if seconds < 100:
        return f"{seconds:.0f} s"
    if minutes < 100:
        return f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60:02d} min" if minutes < 600 else f"{round(minutes / 60)} h"


class _Names:
    """What to call the runs of a grid: by policy and seed, and where several have the same, by how they differ."""

    def __init__(self, runs: Sequence[PlannedRun]) -> None:
        self.alike: dict[tuple[str, int], list[PlannedRun]] = {}
        for run in runs:
            self.alike.setdefault((run.policy, run.seed), []).append(run)
        self.known: dict[Path, str] = {}

    def name(self, run: PlannedRun) -> str:
        if run.folder not in self.known:
            settings = {other.folder: _settings(other) for other in self.alike[run.policy, run.seed]}
            names = [name for name in settings[run.folder] if len({one[name] for one in settings.values()}) > 1]
            for folder, one in settings.items():
                own = "".join(f", {name} {one[name]}" for name in names)
                self.known[folder] = f"{run.policy} {run.seed}{own}"
        return self.known[run.folder]


def _settings(run: PlannedRun) -> dict[str, str]:
    """Return in what the runs of one policy and seed may differ: training, and the draw of the data."""
    training = {name: str(value) for name, value in asdict(run.training).items()}
    data = run.header.config.get("data", {})
    return training | {"draw": str(data.get("seed", 0))}


def _place(run: PlannedRun) -> str | None:
    """Return where a run is that wrote a line not long ago."""
    if not run.records.exists() or time.time() - run.records.stat().st_mtime > ACTIVE_SECONDS:
        return None
    line = last_line(run.records)
    if not isinstance(line, RoundRecord):
        return None
    return f"round {line.round + 1}" + ("" if line.loss is None else f" loss {line.loss:.3f}")
