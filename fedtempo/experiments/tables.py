"""Tables of a comparison, as Markdown: rounds to a loss, time to a target, where gains come from, round times."""

import math
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
NOTHING = "-"  # where there is no number to tell
NO_PILOTS = "none"
CLOSED_FORM = "`proposed-oracle` then has β/α = 0, the closed form"
INTERVALS_SAID = (
    "Ratios are those of mean times. All intervals are 95 % intervals by Student's t over the seeds, for ratios in "
    "pairs of equal seeds."
)


def markdown(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table: the first column to the left, numbers to the right."""
    lines = [f"| {' | '.join(headings)} |", "|---" + "|---:" * (len(headings) - 1) + "|"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def limits(stop: Mapping[str, Any]) -> str:
    """Return for how long runs train at most, by the settings that end them."""
    units = {"max_rounds": "rounds", "max_time": "s"}
    return " or ".join(f"{stop[name]:,g} {unit}" for name, unit in units.items() if stop.get(name) is not None)


def amount(value: float, like: float | None = None) -> str:
    """Return a number with three digits or more, as many decimals as ``like`` has."""
    scale = abs(value if like is None else like)
    decimals = 0 if scale == 0 else min(max(0, 2 - math.floor(math.log10(scale))), 6)
    return f"{value:,.{decimals}f}"


def mean_seconds(times: Times) -> str:
    """Return mean ± deviation, or what the mean exceeds where runs missed the target."""
    mean = amount(times.mean)
    if times.missed:
        return f"> {mean}"
    return mean if times.seconds.size == 1 else f"{mean} ± {amount(times.deviation, times.mean)}"


def not_reached(missed: int, runs: int) -> str:
    """Return what follows a bound: how many runs missed the target, nothing where none did."""
    return f", {missed} of {runs} not reached" if missed else ""


def seconds(times: Times) -> str:
    """Return mean ± deviation, or a bound where runs missed the target, with how many did."""
    return f"{mean_seconds(times)}{not_reached(times.missed, times.seconds.size)}"


def rounds(times: Times) -> str:
    """Return the mean number of rounds, or what it exceeds where runs missed the target."""
    return f"{'> ' if times.missed else ''}{times.rounds.mean():,.0f}"


def pilots(times: Times) -> str:
    """Return the mean seconds of the pilots."""
    if times.oracle:
        return "taken for granted"
    return amount(float(times.pilots.mean())) if times.pilots.any() else NO_PILOTS


def interval(times: Times) -> str:
    """Return the 95 % interval of the mean, where there is one."""
    if times.interval is None:
        return NOTHING
    low, high = (amount(end, times.mean) for end in times.interval)
    return f"{low}–{high}" if times.interval[0] > 0 else f"up to {high}"


def multiple(value: float, *, of_missed: bool, to_missed: bool) -> str:
    """Return a ratio of times, or how it is bounded where runs of one side missed; of both, nothing is known of it."""
    if of_missed and to_missed:
        return NOTHING
    return f"{'> ' if of_missed else '< ' if to_missed else ''}{_times(value)} ×"


def _times(value: float) -> str:
    """Return a ratio with two decimals, or as many digits as its size calls for."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}" if value >= 0.1 else f"{value:.2g}"


def factor_and_interval(of: Times, to: Times) -> tuple[str, str]:
    """Return how many times longer one took than the other, or a bound where runs are missing, and its interval."""
    value, low, high = ratio(of, to)
    known = not (of.missed or to.missed or math.isnan(low))
    told = multiple(value, of_missed=of.missed > 0, to_missed=to.missed > 0)
    return told, f"{_times(low)}–{_times(high)}" if known else ""


def factor(of: Times, to: Times) -> str:
    """Return how many times longer one took than the other, with its interval, or a bound where runs are missing."""
    told, interval = factor_and_interval(of, to)
    return f"{told} ({interval})" if interval else told


def time_table(
    runs: Sequence[Run],
    target: Target,
    paper: dict[str, tuple[float, float] | None] | None = None,
    time_limit: float | None = None,
) -> str:
    """Table 3: time to a target for each policy, without and with pilots, and how much longer than ours it took.

    Where none of ours is there, the first policy stands for it. Times with pilots are not told of policies that take
    pilots for granted, nor of any where nobody has pilots.
    """
    found = times_to(runs, target, time_limit)
    ours = [policy for policy in PROPOSED if policy in found] or list(found)[:1]
    piloted = any(pilots(times) != NO_PILOTS for times in found.values())
    counted = next((policy for policy in ours if piloted and not found[policy].oracle), None)
    rows = []
    for policy, times in found.items():
        row = [policy, seconds(times), interval(times), rounds(times)]
        row += ["1" if policy == our else factor(times, found[our]) for our in ours]
        if piloted:
            row += [pilots(times), NOTHING if times.oracle else seconds(times.with_pilots())]
        if counted is not None:
            told = factor(times.with_pilots(), found[counted].with_pilots())
            row.append("1" if policy == counted else NOTHING if times.oracle else told)
        if paper is not None:
            printed = paper.get(policy.removesuffix("-oracle"))
            row.append(
                f"{printed[0]:,.0f} ± {printed[1]:,.0f}" if printed else "not reached" if policy in paper else "-"
            )
        rows.append(row)
    headings = ["policy", "seconds", "95 % interval", "rounds", *(f"over {our}" for our in ours)]
    headings += ["pilots (s)", "with pilots (s)"] if piloted else []
    headings += [] if counted is None else [f"over {counted}, with pilots"]
    table = markdown(headings + (["paper (s)"] if paper is not None else []), rows)
    return f"{table}\n\n{INTERVALS_SAID}" if " × (" in table else table


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
    found = {policy: [_rounds_to(grouped[policy], loss) for loss in setup.losses] for policy in ("uniform", "weighted")}
    rows = []
    for policy, printed in (("uniform", setup.rounds_uniform), ("weighted", setup.rounds_weighted)):
        rows.append([policy, *(_rounds_said(*cell, len(grouped[policy])) for cell in found[policy])])
        rows.append([f"{policy}, paper", *map(str, printed)])
    rows.append([
        "uniform / weighted",
        *(
            multiple(mean / other, of_missed=missed > 0, to_missed=other_missed > 0).removesuffix(" ×")
            for (mean, missed), (other, other_missed) in zip(found["uniform"], found["weighted"], strict=True)
        ),
    ])  # fmt: skip
    table = markdown(["rounds to loss", *(f"{loss:g}" for loss in setup.losses)], rows)
    every = grouped["uniform"][0].header["config"]["training"].get("evaluate_every", 1)
    parts = [table, *([f"The loss was evaluated every {every} rounds."] if every > 1 else [])]
    told = _estimate_said(estimate(runs, setup.losses, cohort_size))
    parts.append(f"From the means over seeds: {told}. The paper prints {setup.ratio:g} under the title α/β.")
    parts += [said] if (said := own_estimates(grouped.get("proposed", []))) else []
    return "\n\n".join(parts)


def _rounds_to(runs: Sequence[Run], loss: float) -> tuple[float, int]:
    """Return the mean number of rounds to a loss, and how many runs missed it, which enter with all their rounds."""
    found = [run.round_of(loss=loss) for run in runs]
    counted = [run.time.size if r is None else r for run, r in zip(runs, found, strict=True)]
    return float(np.mean(counted)), found.count(None)


def _rounds_said(mean: float, missed: int, runs: int) -> str:
    return f"> {mean:,.0f}{not_reached(missed, runs)}" if missed else f"{mean:,.1f}"


def _estimate_said(found: BetaOverAlphaEstimate) -> str:
    """Say what the means of rounds lead to; they are known only of losses that all runs have reached."""
    if found.value is not None:
        return str(found)
    known = found.ratios[~np.isnan(found.ratios)]
    if not known.size:
        return f"no estimate of β/α, since no loss was reached by all runs of both; {CLOSED_FORM}"
    seen = ", ".join(f"{ratio:.4g}" for ratio in known)
    between = f"strictly between {found.lowest_ratio:.4g} and {found.highest_ratio:.4g}"
    return f"no estimate of β/α, which needs a ratio of rounds {between}, got {seen}; {CLOSED_FORM}"


def own_estimates(runs: Sequence[Run]) -> str:
    """Say what β/α the runs of ``proposed`` found in their own pilots, "" where none of them has ended its pilots."""
    notes = [run.note for run in runs if "fallback" in run.note]
    if not notes:
        return ""
    values = [float(note["beta_over_alpha"]) for note in notes if not note["fallback"]]
    said = f"From the pilots of each run: {len(notes) - len(values)} of {len(notes)} runs of `proposed` found no "
    said += "estimate and fell back to the closed form, β/α = 0"
    if values:
        least, middle, most = (amount(float(x)) for x in np.quantile(values, [0.0, 0.5, 1.0]))
        said += f"; the others found {least} to {most}, median {middle}" if len(values) > 1 else f"; one found {least}"
    return f"{said}."


def gains_table(runs: Sequence[Run], target: Target, best_cohort: Sequence[Run], cohort_size: int) -> str:
    """Take the gain apart: the same uniform runs timed on three links, then another sampler, then another K.

    Of the same runs under two clocks the ratio is known, even where some missed the target.
    """
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
    rows: list[list[str]] = []
    done: list[tuple[Sequence[Run], float, int]] = []  # runs, their mean time, how many of them missed the target
    for name, group, link, duplicates in steps:
        took = [_retimed(run, target, link, duplicates) for run in group]
        mean, missed = float(np.mean([time for time, _ in took])), sum(not reached for _, reached in took)
        done.append((group, mean, missed))
        gains = []
        for others, before, others_missed in (done[max(0, len(done) - 2)], done[0]):
            other_runs = others is not group
            gains.append(
                multiple(before / mean, of_missed=other_runs and others_missed > 0, to_missed=other_runs and missed > 0)
            )
        bound = "> " if missed else ""
        rows.append([name, f"{bound}{amount(mean)}{not_reached(missed, len(took))}", *gains])
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
    return markdown(
        ["policy", "lower bound (s)", "surrogate", "E[T] of drawn cohorts", "measured mean", "upper bound"], rows
    )


def _cohort(run: Run) -> Any:  # noqa: ANN401
    return sum(run.trained[0]["counts"])


def _retimed(run: Run, target: Target, link: LinkMode, duplicates: Duplicates) -> tuple[float, bool]:
    """Return the seconds to a target on another link, or of all rounds, and whether it was reached."""
    rounds = run.round_of(loss=target.loss, accuracy=target.accuracy)
    return float(run.round_times(link, duplicates)[:rounds].sum()), rounds is not None
