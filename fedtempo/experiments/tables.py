"""Tables of a comparison, as Markdown: rounds to a loss, time to a target, where gains come from, round times."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from fedtempo.checks import Vector
from fedtempo.engine.settings import TrainingSettings
from fedtempo.experiments.comparison import Target, Times, ratio, times_to
from fedtempo.experiments.paper import PaperSetup
from fedtempo.experiments.readback import measured_fleet
from fedtempo.experiments.results import Run, by_policy
from fedtempo.fleet import Fleet
from fedtempo.theory.bandwidth import LinkMode
from fedtempo.theory.estimation import BetaOverAlphaEstimate, estimate_beta_over_alpha
from fedtempo.theory.round_time import Duplicates, expected_round_time, round_cost, round_time_bounds

PROPOSED = ("proposed", "proposed-oracle")


def markdown(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table: the first column to the left, numbers to the right."""
    lines = [f"| {' | '.join(headings)} |", "|---" + "|---:" * (len(headings) - 1) + "|"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def limits(stop: Mapping[str, Any]) -> str:
    """Return for how long runs train at most, by the settings that end them."""
    units = {"max_rounds": "rounds", "max_time": "s"}
    return " or ".join(f"{stop[name]:,g} {unit}" for name, unit in units.items() if stop.get(name) is not None)


def seconds(times: Times) -> str:
    """Return mean ± deviation, or a bound where runs are missing, which enter with what they were given."""
    told = f"{times.mean:,.0f}" if times.seconds.size == 1 else f"{times.mean:,.0f} ± {times.deviation:,.0f}"
    if not times.missed:
        return told
    return f"> {times.mean:,.0f}, {times.missed} of {times.seconds.size} not reached"


def interval(times: Times) -> str:
    """Return the 95 % interval of the mean, where there is one."""
    if times.interval is None:
        return "-"
    low, high = times.interval
    return f"{low:,.0f}–{high:,.0f}" if low > 0 else f"up to {high:,.0f}"


def factor(of: Times, to: Times) -> str:
    """Return how many times longer one took than the other, with its interval, or a bound where runs are missing."""
    value, low, high = ratio(of, to)
    if of.missed and to.missed:
        return "-"
    if of.missed or to.missed:
        return f"{'>' if of.missed else '<'} {value:.2f} ×"
    return f"{value:.2f} ×" if np.isnan(low) else f"{value:.2f} × ({low:.2f}–{high:.2f})"


def time_table(
    runs: Sequence[Run],
    target: Target,
    paper: dict[str, tuple[float, float] | None] | None = None,
    time_limit: float | None = None,
) -> str:
    """Table 3: time to a target for each policy, without and with pilots, and how much longer than ours it took.

    Where none of ours is there, the first policy stands for it.
    """
    found = times_to(runs, target, time_limit)
    ours = [policy for policy in PROPOSED if policy in found] or list(found)[:1]
    rows = []
    for policy, times in found.items():
        row = [policy, seconds(times), interval(times), f"{times.rounds.mean():,.0f}"]
        row += ["1" if policy == our else factor(times, found[our]) for our in ours]
        row += [f"{times.pilots.mean():,.0f}" if times.pilots.any() else "none", seconds(times.with_pilots())]
        row.append("1" if policy == ours[0] else factor(times.with_pilots(), found[ours[0]].with_pilots()))
        if paper is not None:
            printed = paper.get(policy.removesuffix("-oracle"))
            row.append(
                f"{printed[0]:,.0f} ± {printed[1]:,.0f}" if printed else "not reached" if policy in paper else "-"
            )
        rows.append(row)
    headings = ["policy", "seconds", "95 % interval", "rounds", *(f"over {our}" for our in ours)]
    headings += ["pilots (s)", "with pilots (s)", f"over {ours[0]}, with pilots"]
    return markdown(headings + (["paper (s)"] if paper is not None else []), rows)


def ratio_table(runs: Sequence[Run], target: Target, paper: dict[str, tuple[float, float] | None] | None = None) -> str:
    """Table 3 in short: how many times longer each baseline takes than the paper's scheme."""
    found = times_to(runs, target)
    rows = []
    for policy in ("uniform", "weighted", "statistical"):
        times = found[policy]
        counted = factor(times.with_pilots(), found["proposed"].with_pilots())
        rows.append([policy, factor(times, found["proposed-oracle"]), factor(times, found["proposed"]), counted])
        if paper is not None:
            theirs, ours = paper[policy], paper["proposed"]
            rows[-1].append(f"{theirs[0] / ours[0]:.1f} ×" if theirs and ours else "not reached")
    headings = [f"to {target}", "over proposed-oracle", "over proposed", "over proposed, all pilots counted"]
    return markdown(headings + (["paper"] if paper is not None else []), rows)


def fleet_of(runs: Sequence[Run]) -> Fleet:
    """Return the fleet that the records of some runs show."""
    return measured_fleet(runs[0].header["samples"], (record for run in runs for record in run.records))[0]


def mean_rounds(runs: Iterable[Run], losses: Sequence[float]) -> Vector:
    """Return the mean number of rounds to each loss, NaN where a run did not get there."""
    rounds = [[run.round_of(loss=loss) for loss in losses] for run in runs]
    known = np.array([[np.nan if r is None else r for r in row] for row in rounds], dtype=np.float64)
    return np.asarray(known.mean(axis=0))


def estimate(runs: Sequence[Run], losses: Sequence[float], cohort_size: int) -> BetaOverAlphaEstimate:
    """Return β/α from the mean rounds of the uniform and the weighted runs."""
    grouped = by_policy(runs)
    uniform, weighted = (mean_rounds(grouped[policy], losses) for policy in ("uniform", "weighted"))
    fleet = fleet_of(grouped["uniform"] + grouped["weighted"])
    return estimate_beta_over_alpha(fleet, uniform, weighted, cohort_size=cohort_size)


def rounds_table(runs: Sequence[Run], setup: PaperSetup, cohort_size: int) -> str:
    """Table 2: rounds to each F_s under uniform and weighted sampling, and the β/α that they lead to."""
    grouped = by_policy(runs)
    rows = []
    for policy, printed in (("uniform", setup.rounds_uniform), ("weighted", setup.rounds_weighted)):
        found = mean_rounds(grouped[policy], setup.losses)
        rows.append([policy, *("-" if np.isnan(r) else f"{r:.1f}" for r in found)])
        rows.append([f"{policy}, paper", *map(str, printed)])
    ratios = mean_rounds(grouped["uniform"], setup.losses) / mean_rounds(grouped["weighted"], setup.losses)
    rows.append(["uniform / weighted", *("-" if np.isnan(r) else f"{r:.2f}" for r in ratios)])
    table = markdown(["rounds to loss", *(f"{loss:g}" for loss in setup.losses)], rows)
    told = str(estimate(runs, setup.losses, cohort_size))
    every = grouped["uniform"][0].header["config"]["training"].get("evaluate_every", 1)
    table += f"\n\nThe loss was evaluated every {every} rounds." if every > 1 else ""
    return f"{table}\n\nFrom the means over seeds: {told}. The paper prints {setup.ratio:g} under the title α/β."


def gains_table(runs: Sequence[Run], target: Target, best_cohort: Sequence[Run], cohort_size: int) -> str:
    """Take the gain apart: the same uniform runs timed on three links, then another sampler, then another K."""
    grouped = by_policy(runs)
    uniform, sampled = grouped["uniform"], grouped["proposed-oracle"]
    steps: list[tuple[str, Sequence[Run], LinkMode, Duplicates]] = [
        ("uniform sampling, equal shares of the link", uniform, "equal", "paper"),
        ("shares as in the paper, all end together", uniform, "paper", "paper"),
        ("a link that serves whoever is ready", uniform, "shared", "paper"),
        ("a client drawn twice uploads once", uniform, "shared", "physical"),
        ("clients drawn by the optimal q", sampled, "shared", "physical"),
    ]
    if best_cohort:
        steps.append((f"K = {cohort_size} in place of {_cohort(sampled[0])}", best_cohort, "shared", "physical"))
    rows, first, before = [], None, None
    for name, group, link, duplicates in steps:
        took = [_retimed(run, target, link, duplicates) for run in group]
        mean, missed = float(np.mean([time for time, _ in took])), sum(not reached for _, reached in took)
        first, before = first or mean, before or mean
        told = f"> {mean:,.0f}, {missed} of {len(took)} not reached" if missed else f"{mean:,.0f}"
        bound = "< " if missed else ""
        rows.append([name, told, f"{bound}{before / mean:.2f} ×", f"{bound}{first / mean:.2f} ×"])
        before = mean
    table = markdown(["what", f"seconds to {target}", "this step", "all so far"], rows)
    return table if best_cohort else f"{table}\n\nWithout an estimate of β/α the theory names no best K."


def round_time_table(
    runs: Sequence[Run], sampling: dict[str, list[Vector]], training: dict[str, TrainingSettings]
) -> str:
    """Theorem 2 against measured rounds: bounds, surrogate and exact mean of the round time, for the q of each run.

    The theorem is about the paper's shares and counts a client drawn twice as two; elsewhere it has nothing to say.
    """
    grouped = by_policy(runs)
    fleet, rng = fleet_of(runs), np.random.default_rng(0)
    rows = []
    for policy, every_q in sampling.items():
        used, told = training[policy], []
        size = used.cohort_size
        for q, run in zip(every_q, grouped[policy], strict=True):
            lower, upper = round_time_bounds(fleet, q, cohort_size=size)
            exact = expected_round_time(
                fleet, q, cohort_size=size, rng=rng, link=used.link, duplicates=used.duplicates
            ).mean
            measured = np.mean([record["round_time"] for record in run.trained])
            surrogate = round_cost(fleet, cohort_size=size) @ q
            told.append([float(number) for number in (lower, surrogate, exact, measured, upper)])
        cells = [f"{number:.2f}" for number in np.mean(told, axis=0)]
        if (used.link, used.duplicates) != ("paper", "paper"):
            cells = ["-", "-", *cells[2:4], "-"]
        rows.append([policy, *cells])
    return markdown(["policy", "lower bound (s)", "surrogate", "exact E[T]", "measured mean", "upper bound"], rows)


def _cohort(run: Run) -> Any:  # noqa: ANN401
    return sum(run.trained[0]["counts"])


def _retimed(run: Run, target: Target, link: LinkMode, duplicates: Duplicates) -> tuple[float, bool]:
    """Return the seconds to a target on another link, or of all rounds, and whether it was reached."""
    rounds = run.round_of(loss=target.loss, accuracy=target.accuracy)
    return float(run.round_times(link, duplicates)[:rounds].sum()), rounds is not None
