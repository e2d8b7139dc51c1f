"""What a person sees of a run: a line that moves while it trains, and a table at the end."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from fedtempo.simulator.loop import Simulation
from fedtempo.simulator.settings import StopSettings


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


def data_note(kind: str, name: str) -> str | None:
    """Say that the data are not the whole set that the configuration names, None where they are."""
    if name.startswith("partial") or "instead of" in name:
        return f"the data are {name}, not the whole of {kind.upper()}; run: fedtempo fetch {kind}"
    return None


def summary_table(summary: dict[str, Any], stop: StopSettings, data: str) -> Table:
    """Return what a run came to, and on which data."""
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
        table.add_row("pilots before", f"{summary['pilot_rounds']:,} rounds, {summary['pilot_time']:,.1f} s")
    for name in ("loss", "accuracy"):
        if summary[name] is not None:
            table.add_row(name, f"{summary[name]:.4f}")
    for name in ("time_to_loss", "time_to_accuracy"):
        if summary[name] is not None:
            table.add_row(name.replace("_", " "), f"{summary[name]:,.1f} s")
    return table
