"""How many times another policy's time ours is, and what its model is worth to the slowest clients."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedtempo.checks import Vector
from fedtempo.experiments.comparing.amounts import amount, multiple, ratio_text
from fedtempo.experiments.comparing.statistics import interval_of_mean
from fedtempo.experiments.ranking.standings import Standing, Standings
from fedtempo.policies.registry import traits
from fedtempo.tables.table import EMPTY, Cell, Column, Table, as_cell

BASELINES = ("uniform", "weighted")  # of the regime plain, which everybody knows


def mean_time(standings: Sequence[Standing]) -> float:
    """Return the geometric mean over draws of the mean time over seeds."""
    return float(np.exp(np.mean([np.log(one.times.mean) for one in standings])))


def missed(standings: Sequence[Standing]) -> int:
    """Return how many runs did not reach the target."""
    return sum(one.times.missed for one in standings)


def order_of(standings: Standings) -> list[str]:
    """Return policies by missed runs, then by time; those that take pilots for granted stand below all others."""

    def place(policy: str) -> tuple[bool, int, float]:
        own = standings[policy]
        return own[0].times.oracle, missed(own), mean_time(own)

    return sorted(standings, key=place)


def spread(standings: Sequence[Standing], reference: Sequence[Standing]) -> tuple[Cell, Cell]:
    """Return the 95 % interval of the mean ratio of times, in pairs of draws, and its range, where no run missed."""
    if missed(standings) or missed(reference):
        return EMPTY, EMPTY
    ratios = np.array([one.times.mean / other.times.mean for one, other in zip(standings, reference, strict=True)])
    return _interval(ratios), as_cell(f"{ratios.min():.2f}–{ratios.max():.2f}")


def _interval(ratios: Vector) -> Cell:
    """Return the 95 % interval of a geometric mean."""
    interval = interval_of_mean(np.log(ratios))
    return EMPTY if interval is None else as_cell(f"{np.exp(interval[0]):.2f}–{np.exp(interval[1]):.2f}")


@dataclass(frozen=True, eq=False, slots=True)
class Opponent:
    """Whose time ours is compared with."""

    name: str  # in words
    standings: Sequence[Standing]


def opponents(standings: Standings, ours: str, plain: Standings) -> list[Opponent]:
    """Return the best baseline in the regime plain, where it is known, and the best other policy beside ours."""
    found = []
    if baselines := order_of({policy: own for policy, own in plain.items() if policy in BASELINES}):
        found.append(Opponent(f"best baseline in plain: {baselines[0]}", plain[baselines[0]]))
    others = {policy: own for policy, own in standings.items() if policy != ours and not own[0].times.oracle}
    if others and not traits(order_of(others)[0]).oracle:
        best = order_of(others)[0]
        found.append(Opponent(f"best other here: {best}", standings[best]))
    return found


def ratio_table(ours: str, standings: Sequence[Standing], others: Iterable[Opponent]) -> Table:
    """Return the ratio of our time to that of each other: geometric mean, interval, and every draw."""
    columns: list[str | Column] = [f"time of {ours} over that of the", "seconds", "ratio", "95 %", "each draw"]
    rows: list[list[str | Cell]] = []
    for other in others:
        theirs, bounds = other.standings, (missed(standings) > 0, missed(other.standings) > 0)
        ratio = mean_time(standings) / mean_time(theirs)
        text = multiple(ratio, numerator_missed=bounds[0], denominator_missed=bounds[1])
        rows.append([
            other.name,
            f"{'> ' if bounds[1] else ''}{amount(mean_time(theirs))}",
            as_cell(text) if any(bounds) else Cell(text, ratio),
            spread(standings, theirs)[0],
            " ".join(_ratio_of_draw(one, two) for one, two in zip(standings, theirs, strict=True)),
        ])  # fmt: skip
    return Table.from_rows(columns, rows)


def _ratio_of_draw(one: Standing, two: Standing) -> str:
    if one.times.missed and two.times.missed:
        return "?"
    bound = ">" if one.times.missed else "<" if two.times.missed else ""
    return f"{bound}{ratio_text(one.times.mean / two.times.mean)}"


def slow_table(standings: Mapping[str, Sequence[Standing]], order: Sequence[str], reference: str) -> Table | None:
    """Return the loss of the slowest clients at the end of the runs; None where nobody measured it.

    Means over draws are geometric. Runs that missed the target ended at another loss: their policies are marked.
    """
    known = {policy: losses for policy in order if (losses := _slow_losses(standings[policy])) is not None}
    if not known:
        return None
    usual = known.get(reference)
    columns: list[str | Column] = ["policy", "loss of the slowest tenth", f"over {reference}", "95 %", "each draw"]
    rows: list[list[str | Cell]] = []
    for policy, losses in known.items():
        mean = float(np.exp(np.mean(np.log(losses))))
        row: list[str | Cell] = [
            f"{policy} (missed)" if missed(standings[policy]) else policy,
            Cell(f"{mean:.4g}", mean),
        ]
        if usual is None or policy == reference:
            row += [EMPTY if usual is None else Cell("1", 1.0), EMPTY]
        else:
            ratios = losses / usual
            over = float(np.exp(np.mean(np.log(ratios))))
            row += [Cell(f"{ratio_text(over)} ×", over), _interval(ratios)]
        rows.append([*row, " ".join(f"{loss:.3g}" for loss in losses)])
    return Table.from_rows(columns, rows)


def _slow_losses(standings: Sequence[Standing]) -> Vector | None:
    """Return the loss of each draw, None where it is not known of all or is no positive number."""
    found = [one.mean_slow_loss for one in standings]
    known = [loss for loss in found if loss is not None and loss > 0]
    return np.array(known) if known and len(known) == len(found) else None
