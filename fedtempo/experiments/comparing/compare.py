"""Policies over the same seeds, side by side: run, and compared by what each takes to the target."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fedtempo.checks import InputError
from fedtempo.experiments.comparing.figures import comparison_figure
from fedtempo.experiments.comparing.statistics import RunOutcome, Target, outcomes
from fedtempo.experiments.comparing.tables import time_table
from fedtempo.experiments.running.grid import Execution, run_grid
from fedtempo.experiments.running.notices import warn_first
from fedtempo.experiments.running.planned import Policies, check_policies, plan_runs
from fedtempo.experiments.running.results import Run
from fedtempo.experiments.settings.config import Experiment, check_accuracy
from fedtempo.tables.table import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, eq=False, slots=True)
class ComparedRuns:
    """Runs of several policies over the same seeds, and the target that they are compared by."""

    name: str  # of the experiment
    runs: list[Run]
    target: Target
    time_limit: float | None  # seconds of training after which the target counts as missed

    @property
    def title(self) -> str:
        """What is compared, on which data."""
        data = self.runs[0].header.data
        return f"{self.name}{'' if data == self.name else f', {data}'}: seconds to {self.target}"

    def table(self) -> Table:
        """Return what each policy took, mean and interval over the seeds."""
        return time_table(self.runs, self.target, time_limit=self.time_limit, title=self.title)

    def figure(self) -> "Figure":
        """Return loss and accuracy over time as a figure of matplotlib."""
        return comparison_figure(self.runs, self.target, title=self.title)

    def outcomes(self) -> list[RunOutcome]:
        """Return what each run took, by policy and seed."""
        return outcomes(self.runs, self.target, self.time_limit)


def compare(
    experiment: Experiment, policies: Policies, seeds: Sequence[int], *, folder: Path, execution: Execution
) -> ComparedRuns:
    """Run policies over seeds, each run into a folder of its own below ``folder``, unless it has ended there."""
    target = target_of(experiment)
    runs = plan_runs(experiment, policies, seeds, folder)
    check_policies(experiment, policies)
    warn_first(experiment, policies)
    return ComparedRuns(experiment.name, run_grid(experiment.name, runs, execution), target, experiment.stop.max_time)


def target_of(experiment: Experiment) -> Target:
    """Return what the runs of an experiment are to reach; without a target there is nothing to compare."""
    check_accuracy(experiment)
    accuracy = experiment.stop.target_accuracy
    metric = None if accuracy is None else experiment.metric
    target = Target(loss=experiment.stop.target_loss, accuracy=accuracy, metric=metric)
    if target == Target():
        raise InputError(
            name=experiment.path or "a comparison",
            rule="have a target" if experiment.path is None else "have a target under [stop]",
            got="none",
            remedy=f"{'' if experiment.path is None else 'or '}give {{target_loss}}",
        )
    return target
