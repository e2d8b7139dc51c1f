"""What a person sees of a run: a line that moves while it trains, and a table at the end."""

import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from fedtempo.engine.records import RECORDS
from fedtempo.engine.settings import StopSettings
from fedtempo.experiments.config import Experiment, for_policy
from fedtempo.experiments.grid import Job, has_ended, last_line
from fedtempo.policies.proposed import PilotSettings
from fedtempo.simulator.simulation import Simulation

POLL_SECONDS, ACTIVE_SECONDS = 1.0, 15.0


@contextmanager
def run_progress(title: str, stop: StopSettings) -> Iterator[Any]:
    """Yield a function to call with each record of a run; it shows round, simulated time, loss and target."""
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn(
            "{task.fields[phase]} round {task.fields[round]}, {task.fields[time]:,.0f} s, {task.fields[loss]}",
            markup=False,
        ),
        TimeRemainingColumn(),
    )
    target = "" if stop.target_loss is None else f" (target {stop.target_loss:g})"
    with Progress(*columns, transient=True) as bar:
        task = bar.add_task(title, total=1.0, phase="", round=0, time=0.0, loss="")

        def show(simulation: Simulation, record: dict[str, Any]) -> None:
            if "round" not in record:
                return
            rounds, time = simulation.rounds_done - simulation.pilot_rounds, simulation.time - simulation.pilot_time
            shares = [rounds / stop.max_rounds] if stop.max_rounds else []
            shares += [time / stop.max_time] if stop.max_time else []
            phase = "" if record["phase"] == "train" else record["phase"]
            bar.update(task, completed=max(shares), phase=phase, round=record["round"] + 1, time=record["time"])
            if record["loss"] is not None:
                bar.update(task, loss=f"loss {record['loss']:.4f}{target}")

        yield show


@contextmanager
def grid_progress(title: str, jobs: Sequence[Job]) -> Iterator[None]:
    """Show how many runs of a grid have ended, and where those under way are, by what they have written so far."""
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("runs, {task.fields[active]}", markup=False),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    waiting, stopped = [job for job in jobs if not has_ended(job)], threading.Event()
    with Progress(*columns, transient=True) as bar:
        task = bar.add_task(title, total=len(jobs), completed=len(jobs) - len(waiting), active="")

        def watch() -> None:
            while not stopped.wait(POLL_SECONDS):
                waiting[:] = [job for job in waiting if not has_ended(job)]
                active = "; ".join(filter(None, map(_where, waiting)))
                bar.update(task, completed=len(jobs) - len(waiting), active=active)

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        try:
            yield
        finally:
            stopped.set()
            watcher.join()


def _where(job: Job) -> str | None:
    """Return where a run is that wrote a line not long ago."""
    path = job.folder / RECORDS
    if not path.exists() or time.time() - path.stat().st_mtime > ACTIVE_SECONDS:
        return None
    line = last_line(path)
    loss = "" if line.get("loss") is None else f" loss {line['loss']:.3f}"
    return f"{job.policy} {job.seed}: round {line['round'] + 1}{loss}" if "round" in line else None


def data_note(kind: str, name: str) -> str | None:
    """Say that the data are not the whole set that the configuration names, None where they are."""
    if name.startswith("partial") or "instead of" in name:
        return f"the data are {name}, not the whole of {kind.upper()}; run: fedtempo fetch {kind}"
    return None


def pilot_note(experiment: Experiment, policies: Iterable[str]) -> str | None:
    """Say that pilots go further than the run that they are for, None where they do not."""
    target, options = experiment.stop.target_loss, {name: for_policy(experiment, name)[1] for name in policies}
    ends = {name: min(PilotSettings(losses=own["losses"]).losses) for name, own in options.items() if "losses" in own}
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
