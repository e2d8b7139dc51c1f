"""What a person sees of runs: a line that moves while they train, and a table at the end."""

import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Column, Table
from rich.text import Text

from fedtempo.engine.records import RECORDS
from fedtempo.engine.settings import StopSettings
from fedtempo.experiments.config import Experiment, for_policy
from fedtempo.experiments.grid import Job, has_ended, last_line
from fedtempo.policies.proposed import PilotOptions
from fedtempo.simulator.simulation import Simulation

POLL_SECONDS, ACTIVE_SECONDS = 1.0, 15.0
LINE_SECONDS = 60.0  # between lines where there is no terminal
BAR_WIDTH, REST_WIDTH = 18, 54  # letters that a bar takes, and what stands beside it


class _Progress(Progress):
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

    def say(self, text: str) -> None:
        if time.monotonic() - self.last >= LINE_SECONDS:
            self.last = time.monotonic()
            print(f"{self.title}: {text}", file=sys.stderr, flush=True)


@contextmanager
def run_progress(title: str, stop: StopSettings) -> Iterator[Any]:
    """Yield a function to call with each record of a run; it shows round, simulated time, loss and target."""
    target = "" if stop.target_loss is None else f" (target {stop.target_loss:g})"
    lines, loss = _Lines(title), ""
    bar = _Progress(Console(stderr=True), TextColumn("{task.fields[said]}", markup=False), TimeRemainingColumn())
    with bar if bar.console.is_terminal else nullcontext():
        task = bar.add_task(title, total=1.0, said="")

        def show(simulation: Simulation, record: dict[str, Any]) -> None:
            nonlocal loss
            if "round" not in record:
                return
            rounds, time = simulation.rounds_done - simulation.pilot_rounds, simulation.time - simulation.pilot_time
            shares = [rounds / stop.max_rounds] if stop.max_rounds else []
            shares += [time / stop.max_time] if stop.max_time else []
            phase = "" if record["phase"] == "train" else f"{record['phase']} "
            if record["loss"] is not None:
                loss = f", loss {record['loss']:.4f}{target}"
            said = f"{phase}round {record['round'] + 1}, {record['time']:,.0f} s{loss}"
            if bar.console.is_terminal:
                bar.update(task, completed=max(shares), said=said)
            else:
                lines.say(said)

        yield show


@contextmanager
def grid_progress(title: str, jobs: Sequence[Job]) -> Iterator[None]:
    """Show how many runs of a grid have ended, and where those under way are, by what they have written so far."""
    jobs = list({job.folder: job for job in jobs}.values())
    waiting, begun, stopped = [job for job in jobs if not has_ended(job)], time.monotonic(), threading.Event()
    total, before, names, lines = len(jobs), len(jobs) - len(waiting), _Names(jobs), _Lines(title)
    bar = _Progress(Console(stderr=True), TextColumn("{task.fields[said]}", markup=False))
    with bar if bar.console.is_terminal else nullcontext():
        task = bar.add_task(title, total=total, completed=before, said=f"{before} of {total} runs")

        def watch() -> None:
            while not stopped.wait(POLL_SECONDS):
                waiting[:] = [job for job in waiting if not has_ended(job)]
                ended = total - len(waiting)
                times = times_said(ended, total, before, time.monotonic() - begun)
                if bar.console.is_terminal:
                    bar.below = "; ".join(f"{names.of(job)}: {where}" for job in waiting if (where := _where(job)))
                    bar.update(task, completed=ended, said=f"{ended} of {total} runs, {times}")
                else:
                    lines.say(f"{ended} of {total} runs have ended, {times}")

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        try:
            yield
        finally:
            stopped.set()
            watcher.join()


def times_said(ended: int, total: int, before: int, elapsed: float) -> str:
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

    def __init__(self, jobs: Sequence[Job]) -> None:
        self.alike: dict[tuple[str, int], list[Job]] = {}
        for job in jobs:
            self.alike.setdefault((job.policy, job.seed), []).append(job)
        self.known: dict[Path, str] = {}

    def of(self, job: Job) -> str:
        if job.folder not in self.known:
            settings = {other.folder: _settings(other) for other in self.alike[job.policy, job.seed]}
            names = [name for name in settings[job.folder] if len({one[name] for one in settings.values()}) > 1]
            for folder, one in settings.items():
                own = "".join(f", {name} {one[name]}" for name in names)
                self.known[folder] = f"{job.policy} {job.seed}{own}"
        return self.known[job.folder]


def _settings(job: Job) -> dict[str, str]:
    """Return in what the runs of one policy and seed may differ: training, and the draw of the data."""
    training, _ = for_policy(job.experiment, job.policy)
    return {name: str(value) for name, value in asdict(training).items()} | {"draw": str(job.experiment.data.seed)}


def _where(job: Job) -> str | None:
    """Return where a run is that wrote a line not long ago."""
    path = job.folder / RECORDS
    if not path.exists() or time.time() - path.stat().st_mtime > ACTIVE_SECONDS:
        return None
    line = last_line(path)
    loss = "" if line.get("loss") is None else f" loss {line['loss']:.3f}"
    return f"round {line['round'] + 1}{loss}" if "round" in line else None


def data_note(kind: str, name: str) -> str | None:
    """Say that the data are not the whole set that the configuration names, None where they are."""
    if name.startswith("partial") or "instead of" in name:
        return f"the data are {name}, not the whole of {kind.upper()}; run: fedtempo fetch {kind}"
    return None


def pilot_note(experiment: Experiment, policies: Iterable[str]) -> str | None:
    """Say that pilots go further than the run that they are for, None where they do not."""
    target, options = experiment.stop.target_loss, {name: for_policy(experiment, name)[1] for name in policies}
    ends = {name: min(PilotOptions(losses=own["losses"]).losses) for name, own in options.items() if "losses" in own}
    low = {name: end for name, end in ends.items() if target is not None and end < target}
    if not low:
        return None
    return (
        f"the pilots of {' and '.join(low)} go on to loss {min(low.values()):g}, below the target {target:g}, and all "
        f"their time counts; set losses of {target:g} or more under {' and '.join(f'[policy.{name}]' for name in low)}"
    )


def summary_table(summary: dict[str, Any], stop: StopSettings, data: str, estimate: str | None = None) -> Table:
    """Return what a run came to, on which data, and what its pilots told of β/α."""
    table = Table(show_header=False)
    table.add_row("data", Text(data))
    reasons = {
        "target": "target reached",
        "max_rounds": f"not at the target after {stop.max_rounds} rounds",
        "max_time": f"not at the target after {stop.max_time:g} s" if stop.max_time else "",
    }
    if stop.target_loss is None and stop.target_accuracy is None:
        reasons |= {"max_rounds": "all rounds run", "max_time": "time is up"}
    table.add_row("end", reasons.get(summary["end"], summary["end"]))
    table.add_row("rounds", f"{summary['rounds']:,}")
    table.add_row("simulated time", f"{summary['time']:,.1f} s")
    if summary["pilot_rounds"]:
        total = summary["time"] + summary["pilot_time"]
        table.add_row("pilots before", f"{summary['pilot_rounds']:,} rounds, {summary['pilot_time']:,.1f} s")
        table.add_row("with pilots", f"{total:,.1f} s")
    if estimate is not None:
        table.add_row("from the pilots", estimate)
    for name in ("loss", "accuracy"):
        if summary[name] is not None:
            table.add_row(name, f"{summary[name]:.4f}")
    for name in ("time_to_loss", "time_to_accuracy"):
        if summary[name] is not None:
            table.add_row(name.replace("_", " "), f"{summary[name]:,.1f} s")
    return table
