"""The sentences above a section's tables: who was first at a target, and by how much."""

from collections.abc import Sequence

from fedtempo.experiments.comparing.amounts import amount, ratio_text
from fedtempo.experiments.comparing.cells import factor, has_pilots
from fedtempo.experiments.comparing.statistics import Target, Times

MOST_NAMED = 3  # policies that a headline names


def headline(times: dict[str, Times], target: Target) -> str:
    """Say who was first at a target with all time counted, who came next, and who would be first without pilots."""
    ranked = contenders(times)
    counted = {label: one.with_pilots() for label, one in ranked.items()}
    piloted = any(map(has_pilots, ranked.values()))
    text = _ranking_text(counted, target, f", {accounting(ranked)}," if piloted or _only_oracles(ranked) else "")
    first, trained = fastest(counted), fastest(ranked)
    if first is not None and trained is not None and trained.policy != first.policy:
        text += f" With all pilots left out, {trained.policy} would be first, after {amount(trained.mean)} s."
    return text


def contenders(times: dict[str, Times]) -> dict[str, Times]:
    """Return those to rank with pilots counted: all but who takes them for granted, or these if there are no others."""
    return times if _only_oracles(times) else {label: one for label, one in times.items() if not one.oracle}


def accounting(ranked: dict[str, Times]) -> str:
    """Return how the times of a ranking take account of pilots, in words."""
    return "pilots taken for granted" if _only_oracles(ranked) else "pilots counted"


def _only_oracles(times: dict[str, Times]) -> bool:
    return all(one.oracle for one in times.values())


def fastest(times: dict[str, Times]) -> Times | None:
    """Return who took the shortest mean time among those that always reached the target, None if there is nobody."""
    return min((one for one in times.values() if not one.missed), key=lambda one: one.mean, default=None)


def _ranking_text(times: dict[str, Times], target: Target, how: str) -> str:
    first = fastest(times)
    if first is None:
        counts = [f"{label} in {one.reached.sum()} of {one.reached.size}" for label, one in times.items()]
        return f"No policy reached {target} in all of its runs: {_few(counts)}."
    runs = "in its only run" if len(first.seeds) == 1 else f"in the mean of {len(first.seeds)} seeds"
    verb = "was first at" if len(times) > 1 else "reached"
    text = f"{first.policy} {verb} {target} after {amount(first.mean)} s{how} {runs}."
    others = {label: one for label, one in times.items() if one is not first}
    if not others:
        return text
    if (second := fastest(others)) is None:
        counts = [f"{label} in {one.missed} of {one.reached.size} runs" for label, one in others.items()]
        return f"{text} The others missed it: {_few(counts)}."
    longer = factor(second, first)
    within = f" (95 % interval {longer.interval})" if longer.interval else ""
    return f"{text} Next was {second.policy}, which took {ratio_text(longer.value)} times as long{within}."


def _few(parts: Sequence[str]) -> str:
    """Return as many parts as can be read, and how many more the table has."""
    more = len(parts) - MOST_NAMED
    return ", ".join(parts if more <= 1 else [*parts[:MOST_NAMED], f"and {more} more below"])
