"""What one run came to, as a person reads it."""

from fedtempo.engine.records import Summary
from fedtempo.engine.settings import StopSettings
from fedtempo.tables.table import Cell, Column, Table


def summary_table(
    summary: Summary, stop: StopSettings, data: str, *, metric: str | None, estimate: str | None = None
) -> Table:
    """Return what a run came to, on which data, and what its pilots found of β/α.

    ``metric``: what stands in place of the accuracy, None where it is the accuracy.
    """
    called = {"accuracy": metric or "accuracy", "time_to_accuracy": f"time to {metric or 'accuracy'}"}
    rows: dict[str, str | Cell] = {"data": data, "end": _reason(summary, stop), "rounds": _number(summary.rounds, ",")}
    rows["simulated time"] = _number(summary.time, ",.1f", " s")
    if summary.pilot_rounds:
        seconds = _number(summary.pilot_time, ",.1f", " s").text
        rows["pilots before"] = f"{summary.pilot_rounds:,} rounds, {seconds}"
        rows["with pilots"] = _number(summary.time + summary.pilot_time, ",.1f", " s")
    if estimate is not None:
        rows["from the pilots"] = estimate
    known = [name for name in ("loss", "accuracy") if summary[name] is not None]
    rows |= {called.get(name, name): _number(summary[name], ".4g") for name in known}
    for name in ("time_to_loss", "time_to_accuracy"):
        if summary[name] is not None:
            rows[called.get(name, name.replace("_", " "))] = _number(summary[name], ",.1f", " s")
    return Table.from_rows([Column("", align="left")] * 2, rows.items())


def _number(value: float, text_format: str, unit: str = "") -> Cell:
    return Cell(f"{value:{text_format}}{unit}", value)


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
