"""One setup of the paper: its Tables 2 and 3, its figure, where the gain comes from, and round times."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from textwrap import wrap

import numpy as np

from fedtempo.checks import Vector
from fedtempo.experiments.comparing.statistics import Target
from fedtempo.experiments.comparing.tables import ratio_table, time_table
from fedtempo.experiments.paper.estimates import estimate, fleet_of
from fedtempo.experiments.paper.study import Curves, ReproducedPart, Study, picture_of
from fedtempo.experiments.paper.tables import gains_table, round_time_table, rounds_table
from fedtempo.experiments.paper_numbers import (
    AFTER_PILOTS,
    MODELS,
    PILOT_POLICIES,
    SCHEME_WITHOUT_PILOTS,
    SETUPS,
    PaperSetup,
)
from fedtempo.experiments.running.planned import run_settings
from fedtempo.experiments.running.problem import problem_of
from fedtempo.experiments.running.results import Run
from fedtempo.experiments.settings.config import FileExperiment, for_policy
from fedtempo.experiments.settings.decode import SettingsTable
from fedtempo.fleet import Fleet
from fedtempo.policies.fixed import FixedSampling
from fedtempo.simulator.simulation import make_policy
from fedtempo.tables.document import Block, Document, Heading
from fedtempo.tables.table import Table
from fedtempo.theory.optimum import optimal_cohort
from fedtempo.theory.sampling import statistical_sampling

LARGEST_BEST_COHORT = 30  # that the last step of the gain may choose
TITLE_WIDTH = 105  # letters that fit over a figure


@dataclass(frozen=True, eq=False, slots=True)
class SetupRuns:
    """The runs of one setup, and what those of uniform and weighted sampling led to."""

    setup: PaperSetup
    experiment: FileExperiment  # with the β/α that was found
    runs: list[Run]
    best_cohort: int  # K that the theory names, that of the setup where it names none
    with_best_cohort: list[Run]

    @property
    def title(self) -> str:
        """The setup by what its runs were made of, not by what the paper has."""
        experiment, header = self.experiment, self.runs[0].header
        preset = "" if experiment.preset == "paper" else f", preset {experiment.preset}"
        model = MODELS[experiment.model.kind]
        return f"{self.setup.name}: {model}, {header.data}, {len(header.samples)} clients{preset}"

    @property
    def cohort_size(self) -> int:
        """K of the setup."""
        return self.experiment.training.cohort_size


def reproduce_setup(name: str, study: Study) -> ReproducedPart:
    """Return Tables 2 and 3 and the figure of one setup."""
    found = _run_setup(name, study)
    file_name = name if study.is_paper else f"{name}-{study.preset}"
    setup = found.setup
    blocks: list[str | Block] = [
        Heading(found.title, 1),
        study.made_by(name, found.runs),
        picture_of(file_name),
        "How many times longer each baseline takes than the paper's scheme:",
        ratio_table(found.runs, Target(loss=setup.target_loss), setup.seconds),
        ratio_table(found.runs, Target(loss=setup.second_loss)),
        *(_pilot_blocks(found) if study.is_paper else ()),
        *_time_blocks(found),
        *(_gain_blocks(found) if study.is_paper else ()),
        Heading("Round times: Theorem 2 against the clock"),
        _round_times(found),
    ]
    both = Target(loss=setup.target_loss, accuracy=setup.target_accuracy)
    curves = Curves(found.runs, both, "\n".join(wrap(found.title, TITLE_WIDTH)))
    return ReproducedPart(file_name, Document(*blocks), curves)


def _run_setup(name: str, study: Study) -> SetupRuns:
    """Run a setup, pilots first.

    At preset ``paper``, ``proposed-oracle`` is the paper's scheme with its pilots taken for granted: gradient bounds
    known, and the β/α that the uniform and weighted runs of all seeds together lead to, or 0, the closed form, where
    they lead to none. Other presets keep the β/α of the configuration, and have no Table 2 and no steps of the gain:
    their policies differ in more than who trains.
    """
    setup, size = SETUPS[name], study.experiment(name).training.cohort_size
    runs = study.run(study.plan(name, PILOT_POLICIES))
    value = estimate(runs, setup.losses, size).value if study.is_paper else None
    known: dict[str, object] = (
        {"policy": {SCHEME_WITHOUT_PILOTS: {"beta_over_alpha": value or 0.0}}} if study.is_paper else {}
    )
    runs += study.run(study.plan(name, AFTER_PILOTS, known))
    best, with_best = size, []
    if value:  # without it a larger cohort is never worse
        best = optimal_cohort(fleet_of(runs), value, LARGEST_BEST_COHORT).cohort_size
        with_best = _run_with_cohort(name, best, known, study)
    return SetupRuns(setup, study.experiment(name, known), runs, best, with_best)


def _run_with_cohort(name: str, cohort_size: int, known: SettingsTable, study: Study) -> list[Run]:
    """Run the scheme with another K, to the target that the steps of the gain are counted by."""
    others = [one for one in study.assignments if one.path != ("training", "cohort_size")]
    study = replace(study, assignments=others)
    over = {**known, "training": {"cohort_size": cohort_size}, "stop": {"target_loss": SETUPS[name].second_loss}}
    return study.run(study.plan(name, [SCHEME_WITHOUT_PILOTS], over, folder=f"{name}-best-k"))


def _pilot_blocks(found: SetupRuns) -> Sequence[Block]:
    table = rounds_table(found.runs, found.setup, found.cohort_size)
    return Heading("Rounds of the pilots, and β/α (Table 2)"), table


def _time_blocks(found: SetupRuns) -> Sequence[Block]:
    setup = found.setup
    target, accuracy = Target(loss=setup.target_loss), Target(accuracy=setup.target_accuracy)
    second = Target(loss=setup.second_loss)
    return (
        Heading(f"Time to {target}, the paper's target (Table 3)"),
        time_table(found.runs, target, setup.seconds),
        Heading(f"Time to {accuracy}"),
        time_table(found.runs, accuracy),
        Heading(f"Time to {second}, a second target"),
        time_table(found.runs, second),
    )


def _gain_blocks(found: SetupRuns) -> Sequence[str | Block]:
    second = Target(loss=found.setup.second_loss)
    return (
        Heading("Where the gain comes from"),
        "Each step keeps those before it. The first four rows are the same runs under four clocks.",
        gains_table(found.runs, second, found.with_best_cohort, found.best_cohort),
    )


def _round_times(found: SetupRuns) -> Table:
    """Compare round times with the theory for the policies that draw from one q."""
    sampling: dict[str, list[Vector]] = {}
    fleet = fleet_of(found.runs)
    for run in found.runs:
        if (q := _sampling_prob(found.experiment, fleet, run)) is not None:
            sampling.setdefault(run.policy, []).append(q)
    training = {policy: for_policy(found.experiment, policy)[0] for policy in sampling}
    return round_time_table(found.runs, sampling, training)


def _sampling_prob(experiment: FileExperiment, fleet: Fleet, run: Run) -> Vector | None:
    """Return the q that a run drew from, as its records say or its policy; None where it had none."""
    if "sampling_prob" in run.note:
        return np.array(run.note["sampling_prob"])
    if "gradient_bound" in run.note:
        return statistical_sampling(replace(fleet, gradient_bound=np.array(run.note["gradient_bound"])))
    policy = make_policy(problem_of(experiment), run_settings(experiment, run.policy, run.seed))
    return policy.sampling_prob if isinstance(policy, FixedSampling) else None
