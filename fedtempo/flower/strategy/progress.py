"""What a round looks like in the log, and among the metrics of Flower's result."""

from collections.abc import Mapping

from flwr.app import MetricRecord
from flwr.serverapp.strategy import Result

from fedtempo.engine.loop import Loop
from fedtempo.engine.records import Records, RoundRecord
from fedtempo.flower.strategy.notes import failures_in

LONGEST_REASON = 120  # characters of what went wrong, in a line of the log


def round_line(loop: Loop, num_rounds: int, record: RoundRecord) -> str:
    """Return the line of the log for a round that has just ended."""
    done, pilots = loop.rounds_trained, loop.state.pilot_rounds
    place = f"round {done} of {num_rounds}" if record.trained else f"pilot round {pilots}"
    loss = "" if record.loss is None else f", loss {record.loss:.4g}"
    reasons = {client: str(one)[-LONGEST_REASON:] for client, one in failures_in(record).items()}
    failed = "".join(f", {client} failed: {reasons.get(client, '')}" for client in record.failed)
    return f"{place}: clients {record.members}, {record.round_time:.2f} s{loss}{failed}"


def round_metrics(record: RoundRecord, own: Mapping[str, float]) -> MetricRecord:
    """Return what apps report of their own, and what the round was."""
    counts = {"round-time": record.round_time, "members": len(record.members), "failed": len(record.failed)}
    return MetricRecord({**own, **counts})


def complete(result: Result, found: Records, *, by_clients: bool) -> None:
    """Add to a result what the records know of rounds before this start; ``by_clients``: who evaluated them."""
    evaluated = result.evaluate_metrics_clientapp if by_clients else result.evaluate_metrics_serverapp
    for number, record in enumerate(found.rounds, 1):
        result.train_metrics_clientapp.setdefault(number, round_metrics(record, {}))
        known = {"loss": record.loss, "accuracy": record.accuracy}
        if (metrics := {name: value for name, value in known.items() if value is not None}) and number not in evaluated:
            evaluated[number] = MetricRecord({**metrics})
