"""Each policy at its own best settings on a problem of one's own."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fedtempo.api.asked import PolicyChoices, asked_for, computing, seeds_of
from fedtempo.api.result import Result
from fedtempo.checks import InputError, check_count, check_positive
from fedtempo.engine.settings import check_training_names
from fedtempo.experiments.ranking import tuning as verb
from fedtempo.experiments.ranking.candidates import FIRST_SEED, SearchSpace, Trial
from fedtempo.experiments.ranking.tuning_figure import tuning_figure
from fedtempo.simulator.problem import Problem
from fedtempo.tables.document import Document
from fedtempo.tables.frame import frame_of
from fedtempo.tables.table import Table

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


@dataclass(frozen=True, eq=False, repr=False)
class Tuned(Result):
    """What was tried of each policy, and what was best."""

    tuning: verb.Tuning

    def __repr__(self) -> str:
        """Name the best settings."""
        return f"Tuned({self.best})"

    @property
    def best(self) -> dict[str, dict[str, float | str]]:
        """The best settings of each policy, among those that were tried."""
        return {policy: dict(trial.choice) for policy, trial in self.tuning.best.items()}

    @property
    def trials(self) -> list[Trial]:
        """What was tried, with all runs."""
        return self.tuning.trials

    def table(self) -> Table:
        """Return what each choice of settings took, the best of each policy marked."""
        return self.tuning.table()

    def to_pandas(self) -> "pd.DataFrame":
        """Return one row for each run, with the settings that were tried."""
        return frame_of(self.tuning.outcomes())

    def document(self) -> Document:
        """Return a page: what was tuned, what each choice took, and which best settings lie at an edge."""
        return self.tuning.document()

    def plot(self) -> "Figure":
        """Return the time to the target against the step size as a figure of matplotlib."""
        return tuning_figure(self.tuning)

    def settings(self) -> str:
        """Return the lines that make the choice part of a configuration."""
        return self.tuning.settings()


def tune(
    problem: Problem | Path | str,
    policies: PolicyChoices,
    *,
    step_sizes: Sequence[float],
    cohort_sizes: Sequence[int] = (),
    preset: str = "paper",
    seeds: int | Sequence[int] = 3,
    first_seed: int = FIRST_SEED,
    target_loss: float | None = None,
    target_accuracy: float | None = None,
    time_limit: float | None = None,
    max_rounds: int | None = None,
    out: Path | str | None = None,
    jobs: int | None = None,
    progress: bool | None = None,
    **training: object,
) -> Tuned:
    """Find each policy's best step size and cohort size: fewest runs that miss the target, then least mean time.

    - ``step_sizes``, ``cohort_sizes``: what to try, every pair of them; without cohort sizes the one of ``training``
      or of the file.
    - ``first_seed``: 1000 if left out, so that a comparison has other seeds.

    All other arguments are those of ``compare``.
    """
    choices = search_choices(step_sizes, cohort_sizes)
    check_choices("tune", problem, training, choices)
    ends = {"target_loss": target_loss, "target_accuracy": target_accuracy}
    ends |= {"max_time": time_limit, "max_rounds": max_rounds}
    first = {name: values[0] for name, values in choices.items()}
    experiment, names = asked_for(problem, policies, preset, first | training, ends)
    with computing(out, jobs, progress) as (folder, execution):
        space = SearchSpace(
            experiment=experiment, choices=choices, seeds=seeds_of(seeds, first_seed), stop={}, root=folder
        )
        return Tuned(verb.tune(names, space, execution))


def check_choices(
    where: str, problem: object, training: Mapping[str, object], choices: Mapping[str, Sequence[float]]
) -> None:
    """Refuse settings that there are not, and such as are tried."""
    check_training_names(where, {**training, **choices})
    for name in training:
        if name in choices:
            raise InputError(name=name, rule=f"not be given beside {name}s, which are tried", got="both")


def search_choices(step_sizes: Sequence[float], cohort_sizes: Sequence[int]) -> dict[str, list[float]]:
    """Return the values to try for each setting."""
    for name, values in (("step_sizes", step_sizes), ("cohort_sizes", cohort_sizes)):
        if isinstance(values, str) or not isinstance(values, Iterable):
            raise InputError(name=name, rule="be a list of numbers", got=repr(values))
    sizes = [check_positive("step_sizes", size) for size in step_sizes]
    cohorts = [check_count("cohort_sizes", size) for size in cohort_sizes]
    for name, values in (("step_sizes", sizes), ("cohort_sizes", cohorts)):
        if len(set(values)) < len(values):
            raise InputError(name=name, rule="be different from each other", got=repr(values))
    if not sizes:
        raise InputError(name="step_sizes", rule="hold at least one step size", got="none")
    return {"step_size": [*sizes]} | ({"cohort_size": [*cohorts]} if cohorts else {})
