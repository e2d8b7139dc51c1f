"""The table of a section: policies by the time that they took to a target, the fastest first."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from fedtempo.experiments.comparing.cells import factor, interval, mean_seconds, pilots, rounds
from fedtempo.experiments.comparing.statistics import Target, Times, times_to
from fedtempo.experiments.comparing.styles import Style
from fedtempo.experiments.comparing.tables import INTERVALS
from fedtempo.experiments.report.headlines import accounting, contenders, fastest
from fedtempo.experiments.report.sections import SectionRuns
from fedtempo.experiments.running.results import Run
from fedtempo.tables.table import EMPTY, Cell, Column, Table, as_cell

WHY = {"diverged": "diverged", "target": "ended at another target", None: "not finished"}  # a run missed a target


@dataclass(frozen=True, slots=True)
class TargetTable:
    """What policies took to a target, and the style of the policy in each row."""

    name: str
    table: Table
    styles: tuple[Style, ...]


def target_table(section: SectionRuns, target: Target, look: Mapping[str, Style]) -> TargetTable:
    """Return what each policy took to a target, pilots counted; those who take them for granted stand below."""
    times = times_to(section.runs, target)
    counted = {label: one.with_pilots() for label, one in times.items()}
    ranked = contenders(counted)
    first, how = fastest(ranked), accounting(ranked)
    order = sorted(counted, key=lambda label: (label not in ranked, counted[label].missed, counted[label].mean))
    granted = [label for label in order if label not in ranked]
    below = f" Below all others, with pilots taken for granted: {', '.join(granted)}." if granted else ""
    table = Table.from_rows(
        _columns(how),
        [_row(ranked.get(label), times[label], first, section.groups[label], target) for label in order],
        title=f"Time to {target}, {how}",
        notes=[INTERVALS + below],
        marked=None if first is None else order.index(first.policy),
    )
    return TargetTable(f"Time to {target}", table, tuple(look[label] for label in order))


def _columns(how: str) -> list[Column]:
    return [
        Column("Policy", align="left"),
        Column("Seconds", below=f"mean ± sd, {how}"),
        Column("95 % interval", below="of the mean"),
        Column("× fastest", below="95 % interval"),
        Column("Rounds", below="mean"),
        Column("Pilots", below="seconds"),
        Column("Without pilots", below="mean ± sd"),
        Column("Missed it", below="runs"),
    ]


def _row(
    counted: Times | None, trained: Times, first: Times | None, runs: Sequence[Run], target: Target
) -> list[str | Cell]:
    """Return the row of one policy; ``counted`` has its times with pilots, None where it is outside the ranking."""
    cells = [EMPTY] * 3 if counted is None else [mean_seconds(counted), interval(counted), _over(counted, first)]
    ordered = sorted(runs, key=lambda run: run.seed)
    missed = [run for run, reached in zip(ordered, trained.reached, strict=True) if not reached]
    counts = Cell(f"{len(missed)} of {len(runs)}", len(missed), why_missed(missed, target))
    return [trained.policy, *cells, rounds(trained), pilots(trained), mean_seconds(trained), counts]


def _over(times: Times, first: Times | None) -> Cell:
    if first is None:
        return EMPTY
    if times is first:
        return Cell("1", 1.0)
    found = factor(times, first)
    return as_cell(found.text) if found.bound else Cell(found.text, found.value, found.interval)


def why_missed(runs: Iterable[Run], target: Target) -> str:
    """Say in a few words why some runs did not reach a target, or not in their time."""
    counts = Counter(
        WHY.get(run.end, "at the limit")
        if run.round_of(loss=target.loss, accuracy=target.accuracy) is None
        else "after the limit"
        for run in runs
    )
    return ", ".join(f"{count} {word}" for word, count in counts.items())
