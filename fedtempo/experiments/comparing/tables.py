"""Tables of a comparison: what each policy took to a target, and how many times longer baselines take."""

from collections.abc import Mapping, Sequence

from fedtempo.experiments.comparing import cells
from fedtempo.experiments.comparing.cells import factor, has_pilots
from fedtempo.experiments.comparing.statistics import Target, Times, times_to
from fedtempo.experiments.paper_numbers import BASELINES_OF_PAPER, SCHEME, SCHEME_WITHOUT_PILOTS, Printed
from fedtempo.experiments.running.results import Run
from fedtempo.policies.registry import traits
from fedtempo.tables.table import EMPTY, Cell, Column, Table, as_cell

INTERVALS = (
    "Ratios are those of mean times. All intervals are 95 % intervals by Student's t over the seeds, for ratios in "
    "pairs of equal seeds."
)


def time_table(
    runs: Sequence[Run],
    target: Target,
    paper: Mapping[str, Printed] | None = None,
    time_limit: float | None = None,
    *,
    title: str = "",
) -> Table:
    """Table 3: time to a target for each policy, without and with pilots, and how much longer than ours it took.

    Where none of ours was run, the first policy stands for it. There are no times with pilots for policies that take
    pilots for granted, nor for any where nobody has pilots. ``paper``: what the paper prints for each policy.
    """
    found = times_to(runs, target, time_limit)
    every = list(found.values())
    ours = sorted((policy for policy in found if traits(policy).papers), key=lambda policy: found[policy].oracle)
    ours = ours or list(found)[:1]
    columns: dict[str | Column, Sequence[str | Cell]] = {
        "policy": list(found),
        "seconds": [cells.seconds(times) for times in every],
        "95 % interval": [cells.interval(times) for times in every],
        "rounds": [cells.rounds(times) for times in every],
    }
    factors = {our: [factor(times, found[our]) for times in every if times.policy != our] for our in ours}
    for our in ours:
        others = iter(factors[our])
        columns[f"over {our}"] = [_one() if policy == our else next(others).cell for policy in found]
    if any(times.oracle or has_pilots(times) for times in every):
        columns |= _pilot_columns(found, ours)
    if paper is not None:
        columns[Column("paper", "s")] = [_printed(paper, policy) for policy in found]
    shown = any(one.interval for some in factors.values() for one in some)
    return Table.from_columns(columns, title=title, notes=[INTERVALS] if shown else [])


def _pilot_columns(found: Mapping[str, Times], ours: Sequence[str]) -> dict[str | Column, Sequence[str | Cell]]:
    """Return the seconds of pilots, with them, and how much longer than ours all of it took."""
    columns: dict[str | Column, Sequence[str | Cell]] = {
        Column("pilots", "s"): [cells.pilots(times) for times in found.values()],
        Column("with pilots", "s"): [
            EMPTY if times.oracle else cells.seconds(times.with_pilots()) for times in found.values()
        ],
    }
    counted = next((policy for policy in ours if not found[policy].oracle), None)
    if counted is not None:
        reference = found[counted].with_pilots()
        columns[f"over {counted}, with pilots"] = [
            _one() if policy == counted else EMPTY if times.oracle else factor(times.with_pilots(), reference).cell
            for policy, times in found.items()
        ]
    return columns


def _one() -> Cell:
    return Cell("1", 1.0)


def _printed(paper: Mapping[str, Printed], policy: str) -> Cell:
    """Return what the paper prints; its scheme stands beside ours, pilots or not."""
    name = SCHEME if traits(policy).papers else policy
    if name not in paper:
        return EMPTY
    printed = paper[name]
    return as_cell("not reached") if printed is None else Cell(f"{printed[0]:,.0f} ± {printed[1]:,.0f}", printed[0])


def ratio_table(runs: Sequence[Run], target: Target, paper: Mapping[str, Printed] | None = None) -> Table:
    """Table 3 in short: how many times longer each baseline takes than the paper's scheme."""
    found = times_to(runs, target)
    known, scheme = found[SCHEME_WITHOUT_PILOTS], found[SCHEME]
    baselines = [found[policy] for policy in BASELINES_OF_PAPER]
    columns: dict[str | Column, Sequence[str | Cell]] = {
        f"to {target}": BASELINES_OF_PAPER,
        f"over {SCHEME_WITHOUT_PILOTS}": [factor(times, known).cell for times in baselines],
        f"over {SCHEME}": [factor(times, scheme).cell for times in baselines],
        f"over {SCHEME}, all pilots counted": [
            factor(times.with_pilots(), scheme.with_pilots()).cell for times in baselines
        ],
    }
    if paper is not None:
        columns["paper"] = [_printed_ratio(paper[policy], paper[SCHEME]) for policy in BASELINES_OF_PAPER]
    return Table.from_columns(columns)


def _printed_ratio(baseline: Printed, scheme: Printed) -> Cell:
    if baseline is None or scheme is None:
        return as_cell("not reached")
    value = baseline[0] / scheme[0]
    return Cell(f"{value:.1f} ×", value)
