"""What one run came to, as a person reads it."""

from rich.table import Table
from rich.text import Text

from fedtempo.engine.records import Summary
from fedtempo.engine.settings import StopSettings


def summary_table(summary: Summary, stop: StopSettings, data: str, estimate: str | None = None) -> Table:
    """Return what a run came to, on which data, and what its pilots found of β/α."""
    table = Table(show_header=False)
    table.add_row("data", Text(data))
    table.add_row("end", _reason(summary, stop))
    table.add_row("rounds", f"{summary.rounds:,}")
    table.add_row("simulated time", f"{summary.time:,.1f} s")
    if summary.pilot_rounds:
        table.add_row("pilots before", f"{summary.pilot_rounds:,} rounds, {summary.pilot_time:,.1f} s")
        table.add_row("with pilots", f"{summary.time + summary.pilot_time:,.1f} s")
    if estimate is not None:
        table.add_row("from the pilots", estimate)
    for name in ("loss", "accuracy"):
        if summary[name] is not None:
            table.add_row(name, f"{summary[name]:.4f}")
    for name in ("time_to_loss", "time_to_accuracy"):
        if summary[name] is not None:
            table.add_row(name.replace("_", " "), f"{summary[name]:,.1f} s")
    return table


def _reason(summary: Summary, stop: StopSettings) -> str:
    """Say why a run ended."""
    if stop.target_loss is None and stop.target_accuracy is None:
        reasons = {"max_rounds": "all rounds run", "max_time": "time is up"}
    else:
        reasons = {
            "target": "target reached",
            "max_rounds": f"not at the target after {stop.max_rounds} rounds",
            "max_time": f"not at the target after {stop.max_time:g} s" if stop.max_time else "",
        }
    return reasons.get(summary.end, summary.end)
