"""When a run has left the numbers, or stands where no run comes back from."""

import math

from fedtempo.engine.records import RoundRecord
from fedtempo.policies.policy import RoundReport

HOPELESS = 1000.0  # times the loss of w₀, or its size above it: no run comes back from there
SMALL_LOSS = 0.01  # that of w₀ counts as so much at least


class DivergedError(ArithmeticError):
    """Training left the numbers; the message names the round, ``records`` hold what came before."""

    records: tuple[RoundRecord, ...] = ()


def check_numbers(report: RoundReport, initial_loss: float | None, rounds: int) -> None:
    """Refuse to go on after so many rounds where the loss or the updates say that it is of no use."""
    wrong = None
    first = math.inf if initial_loss is None else initial_loss
    if report.loss is not None and not report.loss <= first + (HOPELESS - 1) * max(abs(first), SMALL_LOSS):
        wrong = f"the loss is {report.loss:.3g}, at first it was {first:.3g}"
    elif not math.isfinite(report.aggregate_norm):
        wrong = "the updates are no longer finite numbers"
    if wrong is not None:
        raise DivergedError(f"training diverged in round {rounds}: {wrong}; use a smaller step_size")
