"""What a run of a user's own came to."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedtempo.api.result import Result
from fedtempo.checks import InputError, Vector
from fedtempo.engine.records import RoundRecord, Summary
from fedtempo.experiments.comparing.figures import comparison_figure
from fedtempo.experiments.comparing.statistics import Target
from fedtempo.experiments.report.page import write_report
from fedtempo.experiments.running.planned import PlannedRun
from fedtempo.experiments.running.results import Run
from fedtempo.experiments.running.run_summary import summary_table
from fedtempo.learning.trainer import NO_BUFFERS, Buffers, Parameters
from fedtempo.tables.table import Table

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


@dataclass(frozen=True, eq=False, repr=False)
class RunResult(Result):
    """A finished run."""

    summary: Summary
    records: list[RoundRecord]  # one for each round
    model: Parameters
    buffers: Buffers = field(default_factory=lambda: NO_BUFFERS)  # of the model, such as BatchNorm's statistics
    planned: PlannedRun | None = None  # what it was a run of

    def __repr__(self) -> str:
        """Name what the run came to, not its records."""
        known = ((name, value) for name, value in dict(self.summary).items() if value not in (None, 0))
        return f"RunResult({', '.join(f'{name}={_short(value)}' for name, value in known)})"

    def series(self, name: str) -> tuple[Vector, Vector]:
        """Return seconds and values of ``loss`` or ``accuracy``, wherever they were evaluated."""
        seen = [(record.time, record[name]) for record in self.records if record[name] is not None]
        times, values = np.array(seen, dtype=np.float64).reshape(-1, 2).T
        return times, values

    def table(self) -> Table:
        """Return what the run came to."""
        run = self._run
        return summary_table(self.summary, self._planned.settings.stop, run.header.data, metric=run.metric)

    def to_pandas(self) -> "pd.DataFrame":
        """Return one row for each round."""
        from fedtempo.tables.frame import frame_of

        return frame_of([dict(record) for record in self.records])

    def plot(self) -> "Figure":
        """Return loss and accuracy over time as a figure of matplotlib."""
        return comparison_figure([self._run], self._target, title=self._run.name)

    def report(self, path: Path | str) -> None:
        """Write a page about the run to an HTML file."""
        write_report([self._run], Path(path), target=None if self._target == Target() else self._target)

    def to_module(self) -> Any:  # noqa: ANN401 - a torch.nn.Module; torch need not be installed
        """Return the trained model as a ``torch.nn.Module``."""
        from fedtempo.experiments.running.problem import problem_of

        trainer = problem_of(self._planned.experiment).trainer
        if not hasattr(trainer, "module_with"):
            got = f"one of {type(trainer).__name__}"
            raise InputError(name="the model", rule="be one that torch can hold", got=got)
        return trainer.module_with(self.model, self.buffers)

    @property
    def _planned(self) -> PlannedRun:
        if self.planned is None:
            raise InputError(name="a result", rule="know of which run it is", got="one that was put together by hand")
        return self.planned

    @property
    def _run(self) -> Run:
        planned = self._planned
        return Run(planned.folder, planned.header, self.records, self.summary, planned.policy)

    @property
    def _target(self) -> Target:
        stop = self._planned.settings.stop
        return Target(loss=stop.target_loss, accuracy=stop.target_accuracy, metric=self._run.metric)


def _short(value: object) -> str:
    return f"{value:.5g}" if isinstance(value, float) else str(value)
