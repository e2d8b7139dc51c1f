"""What a person sees of runs while they train: a line that moves, or where there is no terminal a line now and then."""

import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path

from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Column
from rich.text import Text

from fedtempo.engine.loop import Loop
from fedtempo.engine.records import RoundRecord
from fedtempo.engine.run import Progress as RoundProgress
from fedtempo.engine.settings import StopSettings
from fedtempo.experiments.running.grid import Grid, last_line
from fedtempo.experiments.running.planned import PlannedRun

POLL_SECONDS, ACTIVE_SECONDS = 1.0, 15.0
LINE_SECONDS = 60.0  # between lines where there is no terminal
BAR_WIDTH, REST_WIDTH = 18, 54  # letters that a bar takes, and what stands beside it


class _Bar(Progress):
    """A bar on the terminal that notes and errors go to, and a line below it, cut to what fits."""

    below = ""

    def __init__(self, console: Console, *columns: ProgressColumn) -> None:
        title = Column(no_wrap=True, overflow="ellipsis", max_width=max(8, console.width - BAR_WIDTH - REST_WIDTH))
        first = TextColumn("{task.description}", markup=False, table_column=title)
        super().__init__(
            first, BarColumn(BAR_WIDTH), *columns, console=console, transient=True, redirect_stdout=sys.stdout.isatty()
        )

    def get_renderables(self) -> Iterable[RenderableType]:
        """Return the two lines."""
        yield from super().get_renderables()
        if self.below:
            yield Text(self.below, style="dim", no_wrap=True, overflow="ellipsis")


class _Lines:
    """A plain line now and then, where nobody sees a bar move."""

    def __init__(self, title: str) -> None:
        self.title, self.last = title, time.monotonic()

    def print(self, text: str) -> None:
        if time.monotonic() - self.last >= LINE_SECONDS:
            self.last = time.monotonic()
            print(f"{self.title}: {text}", file=sys.stderr, flush=True)


def shows_bars() -> bool:
    """Return whether somebody is likely to look: at a terminal, or at a notebook."""
    console = Console(stderr=True)
    return console.is_terminal or console.is_jupyter


@contextmanager
def run_progress(title: str, stop: StopSettings) -> Iterator[RoundProgress]:
    """Yield a function to call after each round of a run; it shows round, simulated time, loss and target."""
    target = "" if stop.target_loss is None else f" (target {stop.target_loss:g})"
    lines, loss = _Lines(title), ""
    bar = _Bar(Console(stderr=True), TextColumn("{task.fields[status]}", markup=False), TimeRemainingColumn())
    with bar if bar.console.is_terminal else nullcontext():
        task = bar.add_task(title, total=1.0, status="")

        def show(loop: Loop, record: RoundRecord) -> None:
            nonlocal loss
            shares = [loop.rounds_trained / stop.max_rounds] if stop.max_rounds else []
            shares += [loop.time_trained / stop.max_time] if stop.max_time else []
            phase = "" if record.trained else f"{record.phase} "
            if record.loss is not None:
                loss = f", loss {record.loss:.4f}{target}"
            status = f"{phase}round {record.round + 1}, {record.time:,.0f} s{loss}"
            if bar.console.is_terminal:
                bar.update(task, completed=max(shares), status=status)
            else:
                lines.print(status)

        yield show


@contextmanager
def grid_progress(grid: Grid) -> Iterator[Callable[[PlannedRun], object]]:
    """Show how many runs of a grid have ended, and where those under way are, by what they have written so far."""
    waiting, stopped, began = list(grid.unfinished), threading.Event(), time.monotonic()
    total, before = len(grid.runs), len(grid.runs) - len(grid.unfinished)
    names, lines = _Names(grid.runs), _Lines(grid.title)
    bar = _Bar(Console(stderr=True), TextColumn("{task.fields[status]}", markup=False))
    with bar if bar.console.is_terminal else nullcontext():
        task = bar.add_task(grid.title, total=total, completed=before, status=f"{before} of {total} runs")

        def watch() -> None:
            while not stopped.wait(POLL_SECONDS):
                under_way = list(waiting)
                ended = total - len(under_way)
                times = times_in_words(ended, total, before, time.monotonic() - began)
                if bar.console.is_terminal:
                    places = ((run, _place(run)) for run in under_way)
                    bar.below = "; ".join(f"{names.name(run)}: {place}" for run, place in places if place)
                    bar.update(task, completed=ended, status=f"{ended} of {total} runs, {times}")
                else:
                    lines.print(f"{ended} of {total} runs have ended, {times}")

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
        return _duration(elapsed)
    return f"{_duration(elapsed)}; about {_duration(elapsed / (ended - before) * (total - ended))} to go"


def _duration(seconds: float) -> str:
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
