"""What the parts of a reproduction share: the paper's setups under one preset, over the same seeds."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from fedtempo.experiments.comparing.amounts import limits_in_words
from fedtempo.experiments.comparing.statistics import Target
from fedtempo.experiments.paper_numbers import CONFIGS
from fedtempo.experiments.running.folders import experiment_folder
from fedtempo.experiments.running.grid import Execution, run_grid
from fedtempo.experiments.running.planned import PlannedRun, plan_runs
from fedtempo.experiments.running.results import Run, code_of
from fedtempo.experiments.settings.assignments import Assignments
from fedtempo.experiments.settings.config import DEFAULT_PRESET, FileExperiment
from fedtempo.experiments.settings.config_file import load_experiment
from fedtempo.experiments.settings.decode import SettingsTable
from fedtempo.experiments.settings.shipped import find_setup
from fedtempo.tables.commands import command_line
from fedtempo.tables.document import Document, Picture
from fedtempo.tables.prose import Code, Paragraph


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class Study:
    """Where setups come from, where their runs go, and who computes them."""

    configs: Path  # folder of setup1.toml to setup3.toml; where it has none, the package's are taken
    preset: str
    seeds: Sequence[int]
    records: Path  # folder of the runs
    execution: Execution
    assignments: Assignments = ()  # single settings over the configurations

    @property
    def is_paper(self) -> bool:
        """Whether runs are those of the paper: under other presets policies differ in more than who trains."""
        return self.preset == DEFAULT_PRESET

    def experiment(self, setup: str, over: SettingsTable | None = None) -> FileExperiment:
        """Return the experiment of a setup."""
        path = find_setup(self.configs, setup)
        return load_experiment(path, self.preset, over=over, assignments=self.assignments)

    def plan(
        self, setup: str, policies: Sequence[str], over: SettingsTable | None = None, *, folder: str | None = None
    ) -> list[PlannedRun]:
        """Return the runs of some policies over all seeds; runs beside the setup itself have other folders."""
        root = experiment_folder(self.records, folder or setup, self.preset)
        return plan_runs(self.experiment(setup, over), policies, self.seeds, root)

    def run(self, planned: Sequence[PlannedRun]) -> list[Run]:
        """Run what has not ended, and return what all came to."""
        return run_grid(planned[0].experiment.name, planned, self.execution)

    def run_groups(self, groups: dict[int, list[PlannedRun]]) -> dict[int, list[Run]]:
        """Run several groups as one grid."""
        found = iter(self.run([run for group in groups.values() for run in group]))
        return {name: list(islice(found, len(group))) for name, group in groups.items()}

    def made_by(self, part: str, runs: Sequence[Run]) -> Paragraph:
        """Say by which command and code a part was made, and what its times are."""
        command = command_line(
            "reproduce",
            part,
            seeds=len(self.seeds),
            first_seed=self.seeds[0] or None,
            preset=None if self.is_paper else self.preset,
            configs=None if self.configs == CONFIGS else str(self.configs),
            set=[one.text for one in self.assignments],
        )
        header = runs[0].header
        return Paragraph(
            "Made by ",
            Code(command),
            f" with {code_of(runs)}. Data: {header.data}. Times are simulated seconds, mean ± standard deviation over "
            f"seeds. Runs end after {limits_in_words(header.config['stop'])} of training: those that did not reach a "
            "target by then enter with all the time they took, and are counted; bounds are marked.",
        )


@dataclass(frozen=True, eq=False, slots=True)
class Curves:
    """What the figure of a part shows: loss and accuracy over time."""

    runs: list[Run]
    target: Target
    title: str
    labels: dict[Path, str] | None = None  # of each run, by its folder; None: its policy

    def label(self, run: Run) -> str:
        """Return under which name the curve of a run is drawn."""
        return run.policy if self.labels is None else self.labels[run.folder]


@dataclass(frozen=True, eq=False, slots=True)
class ReproducedPart:
    """One part of the paper: a page with tables, and the figure that it shows."""

    file_name: str  # of its page and its figure, without an ending
    document: Document
    curves: Curves | None = None


def picture_of(file_name: str) -> Picture:
    """Return the place of the figure in the page of a part."""
    return Picture(f"{file_name}.png", "Loss and accuracy over time")
