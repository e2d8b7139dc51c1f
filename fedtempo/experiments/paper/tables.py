"""Tables of a reproduction beside the paper: rounds of the pilots, where gains come from, round times."""

from collections.abc import Sequence

import numpy as np

from fedtempo.checks import Vector
from fedtempo.engine.settings import TrainingSettings
from fedtempo.experiments.comparing.amounts import amount, multiple, not_reached
from fedtempo.experiments.comparing.statistics import Target
from fedtempo.experiments.paper.estimates import estimate, fleet_of
from fedtempo.experiments.paper_numbers import PILOT_POLICIES, SCHEME, SCHEME_WITHOUT_PILOTS, PaperSetup
from fedtempo.experiments.running.results import Run, by_policy
from fedtempo.fleet import Fleet
from fedtempo.tables.prose import Code, Paragraph, Span
from fedtempo.tables.table import EMPTY, Cell, Column, Table, as_cell, number_cell
from fedtempo.theory.bandwidth import LinkMode
from fedtempo.theory.estimation import BetaOverAlphaEstimate
from fedtempo.theory.round_time import Duplicates, expected_round_time, round_cost, round_time_bounds

Step = tuple[str, Sequence[Run], LinkMode, Duplicates]


def rounds_table(runs: Sequence[Run], setup: PaperSetup, cohort_size: int) -> Table:
    """Table 2: rounds to each F_s under uniform and weighted sampling, and the β/α that they lead to."""
    grouped = by_policy(runs)
    found = {policy: [_rounds_to(grouped[policy], loss) for loss in setup.losses] for policy in PILOT_POLICIES}
    rows: list[list[str | Cell]] = []
    for policy, printed in zip(PILOT_POLICIES, (setup.rounds_uniform, setup.rounds_weighted), strict=True):
        rows.append([policy, *(_rounds_cell(*one, len(grouped[policy])) for one in found[policy])])
        rows.append([f"{policy}, paper", *(number_cell(one, "d") for one in printed)])
    ratios = [
        multiple(mean / other, numerator_missed=missed > 0, denominator_missed=other_missed > 0).removesuffix(" ×")
        for (mean, missed), (other, other_missed) in zip(*found.values(), strict=True)
    ]
    rows.append([" / ".join(PILOT_POLICIES), *ratios])
    every = grouped[PILOT_POLICIES[0]][0].header.config["training"].get("evaluate_every", 1)
    notes = [Paragraph(f"The loss was evaluated every {every} rounds.")] if every > 1 else []
    estimated = _estimate_spans(estimate(runs, setup.losses, cohort_size))
    printed_ratio = f". The paper prints {setup.ratio:g} under the title α/β."
    notes.append(Paragraph("From the means over seeds: ", *estimated, printed_ratio))
    notes += [] if (own := own_estimates(grouped.get(SCHEME, []))) is None else [own]
    return Table.from_rows(["rounds to loss", *(f"{loss:g}" for loss in setup.losses)], rows, notes=notes)


def _rounds_to(runs: Sequence[Run], loss: float) -> tuple[float, int]:
    """Return the mean number of rounds to a loss, and how many runs missed it, which enter with all their rounds."""
    found = [run.round_of(loss=loss) for run in runs]
    counted = [run.time.size if r is None else r for run, r in zip(runs, found, strict=True)]
    return float(np.mean(counted)), found.count(None)


def _rounds_cell(mean: float, missed: int, runs: int) -> Cell:
    return as_cell(f"> {mean:,.0f}{not_reached(missed, runs)}") if missed else number_cell(mean, ",.1f")


def _estimate_spans(found: BetaOverAlphaEstimate) -> tuple[Span, ...]:
    """Say what the means of rounds lead to; they are known only of losses that all runs have reached."""
    if found.value is not None:
        return (str(found),)
    closed_form = Code(SCHEME_WITHOUT_PILOTS), " then has β/α = 0, the closed form"
    known = found.ratios[~np.isnan(found.ratios)]
    if not known.size:
        return "no estimate of β/α, since no loss was reached by all runs of both; ", *closed_form
    seen = ", ".join(f"{ratio:.4g}" for ratio in known)
    between = f"strictly between {found.lowest_ratio:.4g} and {found.highest_ratio:.4g}"
    return f"no estimate of β/α, which needs a ratio of rounds {between}, got {seen}; ", *closed_form


def own_estimates(runs: Sequence[Run]) -> Paragraph | None:
    """Say what β/α the runs of the scheme found in their own pilots, None where none of them has ended its pilots."""
    notes = [run.note for run in runs if "fallback" in run.note]
    if not notes:
        return None
    values = [float(note["beta_over_alpha"]) for note in notes if not note["fallback"]]
    rest = " found no estimate and fell back to the closed form, β/α = 0"
    if values:
        least, middle, most = (amount(float(x)) for x in np.quantile(values, [0.0, 0.5, 1.0]))
        rest += f"; the others found {least} to {most}, median {middle}" if len(values) > 1 else f"; one found {least}"
    missing = f"{len(notes) - len(values)} of {len(notes)}"
    return Paragraph(f"From the pilots of each run: {missing} runs of ", Code(SCHEME), f"{rest}.")


def gains_table(runs: Sequence[Run], target: Target, best_cohort: Sequence[Run], cohort_size: int) -> Table:
    """Take the gain apart: the same uniform runs timed on three links, then another sampler, then another K.

    Of the same runs under two clocks the ratio is known, even where some missed the target. ``best_cohort``: the runs
    with the K that the theory names, ``cohort_size``; none where it names none.
    """
    rows: list[list[str | Cell]] = []
    done: list[tuple[Sequence[Run], float, int]] = []  # runs, their mean time, how many of them missed the target
    for name, group, link, duplicates in _steps(runs, best_cohort, cohort_size):
        took = [_retimed(run, target, link, duplicates) for run in group]
        mean, missed = float(np.mean([time for time, _ in took])), sum(not reached for _, reached in took)
        done.append((group, mean, missed))
        gains = []
        for others, before, others_missed in (done[max(0, len(done) - 2)], done[0]):
            other_runs = others is not group
            bounds = other_runs and others_missed > 0, other_runs and missed > 0
            text = multiple(before / mean, numerator_missed=bounds[0], denominator_missed=bounds[1])
            gains.append(as_cell(text) if any(bounds) else Cell(text, before / mean))
        text = f"> {amount(mean)}{not_reached(missed, len(took))}" if missed else amount(mean)
        rows.append([name, as_cell(text) if missed else Cell(text, mean), *gains])
    notes = [] if best_cohort else ["Without an estimate of β/α the theory names no best K."]
    return Table.from_rows(["what", f"seconds to {target}", "this step", "all so far"], rows, notes=notes)


def _steps(runs: Sequence[Run], best_cohort: Sequence[Run], cohort_size: int) -> list[Step]:
    """Return what changes from one row to the next: the clock of the same runs, then the runs."""
    grouped = by_policy(runs)
    uniform, sampled = grouped["uniform"], grouped[SCHEME_WITHOUT_PILOTS]
    steps: list[Step] = [
        ("uniform sampling, equal shares of the link", uniform, "equal", "paper"),
        ("shares as in the paper, all end together", uniform, "paper", "paper"),
        ("a link that serves whoever is ready", uniform, "shared", "paper"),
        ("a client drawn twice uploads once", uniform, "shared", "physical"),
        ("clients drawn by the optimal q", sampled, "shared", "physical"),
    ]
    if best_cohort:
        usual = sum(sampled[0].trained[0].counts)
        steps.append((f"K = {cohort_size} in place of {usual}", best_cohort, "shared", "physical"))
    return steps


def _retimed(run: Run, target: Target, link: LinkMode, duplicates: Duplicates) -> tuple[float, bool]:
    """Return the seconds to a target on another link, or of all rounds, and whether it was reached."""
    rounds = run.round_of(loss=target.loss, accuracy=target.accuracy)
    return float(run.round_times(link, duplicates)[:rounds].sum()), rounds is not None


def round_time_table(
    runs: Sequence[Run], sampling: dict[str, list[Vector]], training: dict[str, TrainingSettings]
) -> Table:
    """Theorem 2 against measured rounds: bounds, surrogate and exact mean of the round time, for the q of each run.

    The theorem is about the paper's shares and counts a client drawn twice as two; elsewhere it has nothing to say.
    """
    grouped, fleet, rng = by_policy(runs), fleet_of(runs), np.random.default_rng(0)
    rows: list[list[str | Cell]] = []
    for policy, every_q in sampling.items():
        used = training[policy]
        found = [_round_times(fleet, q, run, used, rng) for q, run in zip(every_q, grouped[policy], strict=True)]
        shown: list[str | Cell] = [number_cell(float(mean), ".2f") for mean in np.mean(found, axis=0)]
        if (used.link, used.duplicates) != ("paper", "paper"):
            shown = [EMPTY, EMPTY, *shown[2:4], EMPTY]
        rows.append([policy, *shown])
    columns = [Column("lower bound", "s"), *map(Column, ("surrogate", "E[T] of drawn cohorts", "measured mean"))]
    return Table.from_rows(["policy", *columns, "upper bound"], rows)


def _round_times(
    fleet: Fleet, q: Vector, run: Run, used: TrainingSettings, rng: np.random.Generator
) -> tuple[float, float, float, float, float]:
    """Return lower bound, surrogate, exact mean, measured mean and upper bound of the round time."""
    size = used.cohort_size
    lower, upper = round_time_bounds(fleet, q, cohort_size=size)
    exact = expected_round_time(fleet, q, cohort_size=size, rng=rng, link=used.link, duplicates=used.duplicates).mean
    measured = float(np.mean([record.round_time for record in run.trained]))
    return lower, float(round_cost(fleet, cohort_size=size) @ q), exact, measured, upper
