"""Each policy at its own best step size and cohort size, chosen by one procedure on seeds that no comparison uses."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from fedtempo.experiments.comparing import cells
from fedtempo.experiments.comparing.amounts import limits_in_words
from fedtempo.experiments.comparing.compare import target_of
from fedtempo.experiments.comparing.statistics import Target, outcomes
from fedtempo.experiments.ranking.candidates import Edge, SearchSpace, Trial, best_of, candidates, edges_of, try_out
from fedtempo.experiments.running.grid import Execution
from fedtempo.experiments.running.notices import warn_first
from fedtempo.experiments.running.planned import Policies, check_policies
from fedtempo.experiments.settings.config import DEFAULT_PRESET, Experiment
from fedtempo.experiments.settings.decode import to_toml
from fedtempo.tables.document import Document, Items
from fedtempo.tables.table import Cell, Column, Table, number_cell


@dataclass(frozen=True, eq=False, slots=True)
class Tuning:
    """What was tried of each policy, and what was best."""

    experiment: Experiment  # that tuning started from
    target: Target
    trials: list[Trial]
    best: dict[str, Trial]  # of each policy
    edges: list[Edge]

    def document(self) -> Document:
        """Return a page: what was tuned, what each candidate took, and which best settings lie at an edge."""
        edges = ("At the edge of what was tried:", Items(*map(str, self.edges))) if self.edges else ()
        return Document(self._start(), Items(*self._fixed_settings()), self.table(), *edges)

    def table(self) -> Table:
        """Return what each candidate took, the best of each policy marked."""
        everything = [run for trial in self.trials for run in trial.runs]
        columns: dict[str | Column, Sequence[str | Cell]] = {
            "policy": [trial.policy for trial in self.trials],
            "step size": [number_cell(trial.candidate.training.step_size_of(0), "g") for trial in self.trials],
            "K": [number_cell(trial.candidate.training.cohort_size, "d") for trial in self.trials],
            f"seconds to {self.target}, with pilots": [
                cells.seconds(trial.times(self.target, everything)) for trial in self.trials
            ],
            Column("chosen", align="left"): [
                "best" if self.best[trial.policy] is trial else "" for trial in self.trials
            ],
        }
        return Table.from_columns(columns)

    def outcomes(self) -> list[dict[str, object]]:
        """Return what each run took, with the settings that were tried."""
        return [
            {**asdict(outcome), **trial.choice, "best": self.best[trial.policy] is trial}
            for trial in self.trials
            for outcome in outcomes(trial.runs, self.target, trial.candidate.runs[0].experiment.stop.max_time)
        ]

    def settings(self) -> str:
        """Return the lines that make the choice part of a configuration."""
        chosen = {
            policy: {"training": {"step_size": used.step_size, "cohort_size": used.cohort_size}}
            for policy, used in ((policy, trial.candidate.training) for policy, trial in self.best.items())
        }
        preset, table = self.experiment.preset, {"policy": chosen}
        return to_toml(table if preset in (None, DEFAULT_PRESET) else {"presets": {str(preset): table}})

    def _start(self) -> str:
        """Say what was tuned: the preset, seeds and limits."""
        first = self.trials[0].runs
        seeds = ", ".join(dict.fromkeys(str(run.seed) for run in first))
        preset = "" if self.experiment.preset is None else f", preset {self.experiment.preset}"
        return (
            f"{self.experiment.name}{preset}, to {self.target}, seeds {seeds}, for at most "
            f"{limits_in_words(first[0].header.config['stop'])}. Settings that were not tried:"
        )

    def _fixed_settings(self) -> list[str]:
        """Say the settings that were not tried, and which policies have them."""
        policies_with: dict[str, list[str]] = {}
        for trial in self.trials:
            training = asdict(trial.candidate.training)
            fixed = ", ".join(f"{name} {value}" for name, value in training.items() if name not in trial.choice)
            policies = policies_with.setdefault(fixed, [])
            if trial.policy not in policies:
                policies.append(trial.policy)
        return [f"{', '.join(policies)}: {fixed}" for fixed, policies in policies_with.items()]


def tune(policies: Policies, space: SearchSpace, execution: Execution) -> Tuning:
    """Try every choice of settings for every policy: fewest runs that miss the target, then the shortest mean time."""
    tried = candidates(policies, space)
    experiment = tried[0].runs[0].experiment
    target = target_of(experiment)
    check_policies(experiment, policies)
    warn_first(experiment, policies)
    trials = try_out(experiment.name, tried, execution)
    return Tuning(experiment, target, trials, best_of(trials, target), edges_of(trials, target))
