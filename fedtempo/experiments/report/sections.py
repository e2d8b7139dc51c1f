"""Which runs stand together on a page, under which labels and to which target."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedtempo.checks import InputError
from fedtempo.experiments.comparing.groups import grouped
from fedtempo.experiments.comparing.statistics import Target
from fedtempo.experiments.report.labels import labelled
from fedtempo.experiments.running.results import Run


@dataclass(frozen=True, eq=False, slots=True)
class SectionRuns:
    """The runs of one experiment under one preset; the policy of each is the label that it is shown under."""

    title: str
    runs: list[Run]
    target: Target
    duplicates: int  # runs that were named twice
    other_ends: int = 0  # runs passed over for a longer one that differs in its end alone

    @property
    def groups(self) -> dict[str, list[Run]]:
        """The runs by label."""
        return grouped(self.runs)

    @property
    def policies(self) -> dict[str, str]:
        """The policy that each label stands for."""
        return {label: group[0].header.policy for label, group in self.groups.items()}

    @property
    def targets(self) -> list[Target]:
        """The target for loss and the one for accuracy, where there are both."""
        each = [Target(loss=self.target.loss), replace(self.target, loss=None)]
        return [target for target in each if target != Target()]


def sections(runs: Iterable[Run], target: Target | None = None) -> list[SectionRuns]:
    """Return runs by experiment and preset, each group under a label that says how it differs from the others.

    Without a target, each experiment's is one that all of its runs were to reach, or the lowest loss that all reached.
    """
    by_name = grouped(runs, lambda run: run.name)
    if not by_name:
        raise InputError(name="a report", rule="have at least one run", got="none")
    found = []
    for name, group in by_name.items():
        by_preset = grouped(group, lambda run: str(run.header.preset))
        for preset, members in by_preset.items():
            shown, duplicates, other_ends = _once_each(labelled(members))
            title = name if len(by_preset) == 1 else f"{name}, preset {preset}"
            found.append(SectionRuns(title, shown, target or choose_target(shown), duplicates, other_ends))
    return found


def choose_target(runs: Sequence[Run]) -> Target:
    """Return the easiest of the targets that the runs were to stop at: whoever reached its own has reached it too.

    Where they have no loss or accuracy in common, it is the lowest loss that all have reached.
    """
    stops = [run.header.config.get("stop", {}) for run in runs]
    losses, accuracies = ([stop.get(name) for stop in stops] for name in ("target_loss", "target_accuracy"))
    easiest = Target(
        loss=None if None in losses else max(losses),
        accuracy=None if None in accuracies else min(accuracies),
        metric=next((run.metric for run in runs if run.metric is not None), None),
    )
    return _lowest_loss(runs) if easiest == Target() else easiest


def _lowest_loss(runs: Sequence[Run]) -> Target:
    ended = [run for run in runs if run.end not in (None, "diverged")] or runs
    losses = [run.loss[np.isfinite(run.loss)] for run in ended]
    if not all(one.size for one in losses):
        return Target()
    worst = max(float(one.min()) for one in losses)
    step = 10.0 ** (math.floor(math.log10(worst)) - 2) if worst > 0 else 1.0
    return Target(loss=round(math.ceil(worst / step) * step, 12))


def _once_each(runs: Iterable[Run]) -> tuple[list[Run], int, int]:
    """Return one run for each label and seed, the longest, and how many were passed over: as equal, for their end."""
    alike: dict[tuple[str, int], list[Run]] = {}
    for run in runs:
        alike.setdefault((run.policy, run.seed), []).append(run)
    shown = [max(group, key=lambda run: len(run.records)) for group in alike.values()]
    ends = [len({repr(run.header.config.get("stop")) for run in group}) for group in alike.values()]
    return shown, sum(map(len, alike.values())) - sum(ends), sum(ends) - len(ends)
