"""Policies side by side on a problem of one's own, over the same seeds."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fedtempo.api.asked import PolicyChoices, asked_for, computing, seeds_of
from fedtempo.api.result import Result
from fedtempo.engine.settings import check_training_names
from fedtempo.experiments.comparing import compare as verb
from fedtempo.experiments.comparing.compare import ComparedRuns
from fedtempo.experiments.comparing.statistics import Target
from fedtempo.experiments.report.page import write_report
from fedtempo.experiments.running.results import Run
from fedtempo.simulator.problem import Problem
from fedtempo.tables.frame import frame_of
from fedtempo.tables.table import Table

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


@dataclass(frozen=True, eq=False, repr=False)
class Comparison(Result):
    """What each policy took to the target, over the same seeds."""

    compared: ComparedRuns

    def __repr__(self) -> str:
        """Name what was compared."""
        policies = dict.fromkeys(run.policy for run in self.runs)
        return f"Comparison({', '.join(policies)}: {len(self.runs)} runs to {self.target})"

    @property
    def runs(self) -> list[Run]:
        """The runs with all their records, by policy and seed."""
        return self.compared.runs

    @property
    def target(self) -> Target:
        """What the runs were to reach."""
        return self.compared.target

    def table(self) -> Table:
        """Return what each policy took, mean and interval over the seeds."""
        return self.compared.table()

    def to_pandas(self) -> "pd.DataFrame":
        """Return one row for each run."""
        return frame_of([asdict(outcome) for outcome in self.compared.outcomes()])

    def plot(self) -> "Figure":
        """Return loss and accuracy over time as a figure of matplotlib."""
        return self.compared.figure()

    def report(self, path: Path | str) -> None:
        """Write a page with tables and curves to an HTML file."""
        write_report(self.runs, Path(path), target=self.target)


def compare(
    problem: Problem | Path | str,
    policies: PolicyChoices,
    *,
    preset: str = "paper",
    seeds: int | Sequence[int] = 3,
    first_seed: int = 0,
    target_loss: float | None = None,
    target_accuracy: float | None = None,
    time_limit: float | None = None,
    max_rounds: int | None = None,
    out: Path | str | None = None,
    jobs: int | None = None,
    progress: bool | None = None,
    **training: object,
) -> Comparison:
    """Run policies over the same seeds, several runs at a time, and compare what each takes to a target.

    - ``problem``: a ``Problem``, or the path of a configuration; ``preset``: which settings of the file.
    - ``policies``: names, functions from fleet to q or classes; or a dict from the names that results shall have to any
      of them, or to pairs of one and its options.
    - ``seeds``: how many, from ``first_seed`` on, or the seeds themselves.
    - ``target_loss``, ``target_accuracy``: what runs are to reach; one of them, or a target of the file, is needed.
    - ``time_limit`` (simulated seconds), ``max_rounds``: when a run ends at the latest; without either the file's
      limits hold, or 2,000 rounds.
    - ``out``: a folder for the records. The same call then goes on with what has not ended. Runs of other data, other
      settings or other code are refused, or made anew beside them.
    - ``jobs``: runs side by side, one for each core if left out. ``progress``: whether to show how they get on; left
      out, in terminals and notebooks.
    - ``training``: settings such as ``cohort_size`` and ``step_size``, as for ``simulate``; none need be named.
    """
    check_training_names("compare", training)
    ends = {"target_loss": target_loss, "target_accuracy": target_accuracy}
    ends |= {"max_time": time_limit, "max_rounds": max_rounds}
    experiment, names = asked_for(problem, policies, preset, training, ends)
    with computing(out, jobs, progress) as (folder, execution):
        every = seeds_of(seeds, first_seed)
        return Comparison(verb.compare(experiment, names, every, folder=folder, execution=execution))
