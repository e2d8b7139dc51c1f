"""Runs under the labels that they are shown by."""

import re
from collections.abc import Callable, Iterable

from fedtempo.experiments.running.results import Run


def policy_label(run: Run) -> str:
    """Return the label that runs are grouped by unless another is asked for."""
    return run.policy


def grouped(runs: Iterable[Run], label: Callable[[Run], str] = policy_label) -> dict[str, list[Run]]:
    """Return runs by policy, in the given order, or by another label in the order of their names, K = 5 before 10."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(label(run), []).append(run)
    return groups if label is policy_label else {name: groups[name] for name in sorted(groups, key=_by_numbers)}


def _by_numbers(label: str) -> list[tuple[float, str]]:
    parts = re.split(r"(\d+(?:\.\d+)?)", label)
    return [(float(part), "") if place % 2 else (-1.0, part) for place, part in enumerate(parts)]
