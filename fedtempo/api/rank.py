"""Policies ranked on a problem of one's own, each at its own best settings, all time counted."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedtempo.api.asked import PolicyChoices, asked_for, computing, seeds_of
from fedtempo.api.result import Result
from fedtempo.api.tune import check_choices, search_choices
from fedtempo.checks import InputError
from fedtempo.experiments.ranking import tuning as tuning_verb
from fedtempo.experiments.ranking.candidates import FIRST_SEED, SearchSpace, Trial, candidates, try_out
from fedtempo.experiments.ranking.chart import ranking_figure
from fedtempo.experiments.ranking.ranking import Ranking
from fedtempo.experiments.ranking.standings import standing_of
from fedtempo.experiments.running.grid import Execution
from fedtempo.experiments.running.results import code_of
from fedtempo.policies.registry import PolicyLike
from fedtempo.simulator.problem import Problem
from fedtempo.tables.document import Document, Picture
from fedtempo.tables.frame import frame_of
from fedtempo.tables.table import Table

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


@dataclass(frozen=True, eq=False, repr=False)
class Ranked(Result):
    """What each policy took at its best settings, the best first."""

    ranking: Ranking

    def __repr__(self) -> str:
        """Name the order."""
        return f"Ranked({' < '.join(self.order)})"

    @property
    def order(self) -> list[str]:
        """The policies, the best first."""
        return self.ranking.order

    def table(self) -> Table:
        """Return one line for each policy, the best first."""
        return self.ranking.table()

    def to_pandas(self) -> "pd.DataFrame":
        """Return one row for each run at its policy's best settings."""
        rows = []
        for policy in self.order:
            for standing in self.ranking.standings[policy]:
                times = standing.times
                columns = {"seed": times.seeds, "reached": times.reached.tolist()}
                columns |= {"seconds": times.seconds.tolist(), "of_them_pilots": times.pilots.tolist()}
                runs = zip(*columns.values(), strict=True)
                rows += [{"policy": policy, **dict(zip(columns, run, strict=True)), **standing.choice} for run in runs]
        return frame_of(rows)

    def document(self) -> Document:
        """Return a page: how it was made, the table, and which settings lie at an edge."""
        return Document(*(block for block in self.ranking.document().blocks if not isinstance(block, Picture)))

    def plot(self) -> "Figure":
        """Return each policy's mean and its seeds as a figure of matplotlib."""
        return ranking_figure(self.ranking)


def rank(
    problem: Problem | Path | str,
    policies: PolicyChoices,
    *,
    step_sizes: Sequence[float],
    cohort_sizes: Sequence[int] = (),
    preset: str = "paper",
    seeds: int | Sequence[int] = 5,
    first_seed: int = 0,
    tuning_seeds: int = 2,
    target_loss: float | None = None,
    target_accuracy: float | None = None,
    time_limit: float | None = None,
    max_rounds: int | None = None,
    out: Path | str | None = None,
    jobs: int | None = None,
    progress: bool | None = None,
    **training: object,
) -> Ranked:
    """Tune each policy on seeds of its own, then rank all by missed runs and by time, pilots counted.

    - ``step_sizes``, ``cohort_sizes``: what to try for every policy.
    - ``tuning_seeds``: how many seeds tuning has, from 1000 on.

    All other arguments are those of ``compare``.
    """
    choices = search_choices(step_sizes, cohort_sizes)
    check_choices("rank", problem, training, choices)
    ends = {"target_loss": target_loss, "target_accuracy": target_accuracy}
    ends |= {"max_time": time_limit, "max_rounds": max_rounds}
    first = {name: values[0] for name, values in choices.items()}
    experiment, names = asked_for(problem, policies, preset, first | training, ends)
    tuned_on, ranked_on = seeds_of(tuning_seeds, FIRST_SEED), seeds_of(seeds, first_seed)
    if both := set(tuned_on) & set(ranked_on):
        got = f"seed {min(both)} for both"
        raise InputError("seeds", "be others than those of tuning", got, f"tuning has {FIRST_SEED} and on")
    with computing(out, jobs, progress) as (folder, execution):
        space = SearchSpace(experiment=experiment, choices=choices, seeds=tuned_on, stop={}, root=folder)
        tuned = tuning_verb.tune(names, space, execution)
        return Ranked(_ranking(tuned, space, names, ranked_on, execution))


def _ranking(
    tuned: tuning_verb.Tuning,
    space: SearchSpace,
    policies: Mapping[str, PolicyLike],
    seeds: Sequence[int],
    execution: Execution,
) -> Ranking:
    tried = []
    for name, policy in policies.items():
        choices = {setting: [value] for setting, value in tuned.best[name].choice.items()}
        for seed in seeds:
            own = SearchSpace(experiment=space.experiment, choices=choices, seeds=[seed], stop={}, root=space.root)
            tried += candidates({name: policy}, own)
    trials: list[Trial] = try_out(f"{space.experiment.name}: ranking", tried, execution)
    standings: dict[str, list[Any]] = {}
    for trial in trials:
        standings.setdefault(trial.policy, []).append(standing_of(trial, tuned.target))
    runs = [run for trial in trials for run in trial.runs]
    return Ranking(
        file_name="ranking",
        title=f"{space.experiment.name}: seconds to {tuned.target}",
        target=tuned.target,
        data=runs[0].header.data,
        command="fedtempo.rank",
        code=code_of(runs),
        standings=standings,
        kept={},
        edges=tuned.edges,
        over="seed",
    )
