"""Setup 2 with other cohort sizes, the paper's Figure 6, and with other numbers of local steps, its footnote."""

from collections.abc import Mapping

import msgspec

from fedtempo.checks import InputError
from fedtempo.experiments.comparing import cells
from fedtempo.experiments.comparing.cells import factor
from fedtempo.experiments.comparing.statistics import Target, times_to
from fedtempo.experiments.paper.study import Curves, ReproducedPart, Study, picture_of
from fedtempo.experiments.paper_numbers import (
    IMPACT_ACCURACY,
    IMPACT_LOSS,
    IMPACT_OF_K,
    PILOT_POLICIES,
    SCHEME_WITHOUT_PILOTS,
    SETUPS,
)
from fedtempo.experiments.running.results import Run
from fedtempo.experiments.settings.config import for_policy
from fedtempo.experiments.settings.decode import SettingsTable
from fedtempo.tables.document import Document, Heading
from fedtempo.tables.prose import Code, Paragraph
from fedtempo.tables.table import Cell, Column, Table, number_cell

SETUP = "setup2"
IMPACT_OF_E = (10, 25, 50, 100)


def reproduce_impact_of_k(study: Study) -> ReproducedPart:
    """Return Figure 6: the paper's scheme in Setup 2 with several cohort sizes."""
    name, stop = "impact-of-k", {"target_loss": IMPACT_LOSS, "target_accuracy": IMPACT_ACCURACY}
    groups = study.run_groups({
        size: study.plan(
            SETUP, [SCHEME_WITHOUT_PILOTS], {"stop": stop, "training": {"cohort_size": size}}, folder=name
        )
        for size in IMPACT_OF_K
    })  # fmt: skip
    runs = [run for group in groups.values() for run in group]
    labels = {run.folder: f"K = {size}" for size, group in groups.items() for run in group}
    both = Target(loss=IMPACT_LOSS, accuracy=IMPACT_ACCURACY)
    document = Document(
        Heading("Impact of K on Setup 2 (Figure 6)", 1),
        study.made_by(name, runs),
        _beta_over_alpha(study),
        picture_of(name),
        _cohort_table(groups),
    )
    return ReproducedPart(name, document, Curves(runs, both, "Setup 2: impact of the cohort size K", labels))


def _cohort_table(groups: Mapping[int, list[Run]]) -> Table:
    target, accuracy = Target(loss=IMPACT_LOSS), Target(accuracy=IMPACT_ACCURACY)
    rows: list[list[str | Cell]] = []
    for size, runs in groups.items():
        (to_loss,), (to_accuracy,) = (times_to(runs, wanted).values() for wanted in (target, accuracy))
        took = [cells.seconds(to_loss), cells.interval(to_loss), cells.rounds(to_loss), cells.seconds(to_accuracy)]
        rows.append([number_cell(size, "d"), *took, number_cell(IMPACT_OF_K[size], ",.0f")])
    headings = ["K", f"seconds to {target}", "95 % interval", "rounds", f"seconds to {accuracy}"]
    return Table.from_rows([*headings, "paper (s to the loss)"], rows)


def reproduce_impact_of_e(study: Study) -> ReproducedPart:
    """Check the paper's footnote that other numbers of local steps behave alike. Computing time grows with them."""
    name, target = "impact-of-e", Target(loss=SETUPS[SETUP].second_loss)
    policies = [*PILOT_POLICIES, SCHEME_WITHOUT_PILOTS]
    groups = study.run_groups({
        steps: study.plan(SETUP, policies, _with_local_steps(study, steps, target), folder=name)
        for steps in IMPACT_OF_E
    })  # fmt: skip
    document = Document(
        Heading(f"Impact of E on Setup 2, to {target}", 1),
        study.made_by(name, [run for group in groups.values() for run in group]),
        _beta_over_alpha(study),
        _steps_table(groups, target),
    )
    return ReproducedPart(name, document)


def _with_local_steps(study: Study, steps: int, target: Target) -> SettingsTable:
    """Return a table to lie over the setup, with so many local steps and the time that they take."""
    experiment = study.experiment(SETUP)
    usual, compute = experiment.training.local_steps, experiment.times.compute
    if compute is None or compute.mean is None:
        raise InputError(name=f"{SETUP}.toml", rule="draw computing times about a mean", got="another kind")
    return {
        "training": {"local_steps": steps},
        "times": {"compute": {"mean": compute.mean * steps / usual}},
        "stop": {"target_loss": target.loss},
    }


def _steps_table(groups: Mapping[int, list[Run]], target: Target) -> Table:
    rows: list[list[str | Cell]] = []
    for steps, runs in groups.items():
        found = times_to(runs, target)
        over = [factor(found[policy], found[SCHEME_WITHOUT_PILOTS]).cell for policy in PILOT_POLICIES]
        rows.append([number_cell(steps, "d"), *map(cells.seconds, found.values()), *over])
    seconds = [Column(policy, "s") for policy in (*PILOT_POLICIES, SCHEME_WITHOUT_PILOTS)]
    return Table.from_rows(["E", *seconds, *(f"{policy} over ours" for policy in PILOT_POLICIES)], rows)


def _beta_over_alpha(study: Study) -> Paragraph:
    value = for_policy(study.experiment(SETUP), SCHEME_WITHOUT_PILOTS)[1]["beta_over_alpha"]
    number = msgspec.convert(value, float)
    return Paragraph(Code(SCHEME_WITHOUT_PILOTS), f" has the β/α of the configuration, {number}.")
