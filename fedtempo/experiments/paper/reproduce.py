"""The paper's tables and figures, from runs to pages beside the paper's own numbers."""

import difflib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from fedtempo.checks import InputError
from fedtempo.experiments.comparing.figures import draw_comparison
from fedtempo.experiments.paper.impacts import SETUP, reproduce_impact_of_e, reproduce_impact_of_k
from fedtempo.experiments.paper.setup import reproduce_setup
from fedtempo.experiments.paper.study import ReproducedPart, Study
from fedtempo.experiments.paper_numbers import AFTER_PILOTS, CONFIGS, PILOT_POLICIES, SCHEME_WITHOUT_PILOTS, SETUPS
from fedtempo.experiments.running.grid import Execution
from fedtempo.experiments.running.notices import warn_first
from fedtempo.experiments.running.problem import problem_of
from fedtempo.experiments.settings.assignments import Assignments, KeyPath, refuse_assigned
from fedtempo.experiments.settings.config import DEFAULT_PRESET
from fedtempo.files import whole_file
from fedtempo.tables.markdown import to_markdown

EVERYTHING = "all"
REPRODUCERS: dict[str, Callable[[Study], ReproducedPart]] = {
    **{name: partial(reproduce_setup, name) for name in SETUPS},
    "impact-of-k": reproduce_impact_of_k,
    "impact-of-e": reproduce_impact_of_e,
}
CHOSEN: dict[str, tuple[KeyPath, ...]] = {  # settings of which a part tries several values
    "impact-of-k": (("training", "cohort_size"), ("policy", SCHEME_WITHOUT_PILOTS, "training", "cohort_size")),
    "impact-of-e": (("training", "local_steps"), ("times", "compute")),
}
PARTS_OF_PAPER = (*REPRODUCERS, EVERYTHING)


@dataclass(frozen=True, kw_only=True, slots=True)
class ReproductionRequest:
    """What is to be reproduced, from which configurations, and where the runs go."""

    what: str  # one of PARTS_OF_PAPER
    seeds: Sequence[int]
    preset: str = DEFAULT_PRESET
    configs: Path = CONFIGS  # folder of setup1.toml to setup3.toml; where it has none, the package's are taken
    records: Path = Path("runs/reproduce")
    assignments: Assignments = ()  # single settings over the configurations


def reproduce(request: ReproductionRequest, execution: Execution) -> Iterator[ReproducedPart]:
    """Reproduce one part of the paper or all; yield each when it is done.

    Whatever the parts need is looked for before the first of them runs.
    """
    names = parts_of(request.what)
    study = Study(
        configs=request.configs,
        preset=request.preset,
        seeds=request.seeds,
        records=request.records,
        execution=execution,
        assignments=request.assignments,
    )
    for name in names:
        refuse_assigned(request.assignments, CHOSEN.get(name, ()), f"{name} tries values of it")
    for setup in dict.fromkeys(name if name in SETUPS else SETUP for name in names):
        experiment = study.experiment(setup)
        problem_of(experiment)
        warn_first(experiment, [*PILOT_POLICIES, *AFTER_PILOTS])
    for name in names:
        yield REPRODUCERS[name](study)


def parts_of(what: str) -> list[str]:
    """Return the names of the parts that a name stands for."""
    if what not in PARTS_OF_PAPER:
        near = difflib.get_close_matches(str(what), PARTS_OF_PAPER, n=1)
        remedy = f"did you mean {near[0]!r}?" if near else ""
        raise InputError(name="what", rule=f"be one of {', '.join(PARTS_OF_PAPER)}", got=repr(what), remedy=remedy)
    return list(REPRODUCERS) if what == EVERYTHING else [what]


def write_part(part: ReproducedPart, folder: Path) -> list[Path]:
    """Write the page of a part and its figure; return the files, the page first."""
    folder.mkdir(parents=True, exist_ok=True)
    figure = []
    if (curves := part.curves) is not None:
        path = folder / part.file_name
        figure = draw_comparison(curves.runs, curves.target, path, title=curves.title, labels=curves.label)
    page = folder / f"{part.file_name}.md"
    with whole_file(page) as stream:
        stream.write(to_markdown(part.document) + "\n")
    return [page, *figure]
