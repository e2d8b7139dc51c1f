"""A plan for a fleet, from Python: who to draw how often, how many a round, and how long training takes."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fedtempo.api.result import Result
from fedtempo.checks import InputError, Integers, Vector
from fedtempo.experiments.settings.decode import decode
from fedtempo.fleet import Fleet
from fedtempo.fleet_csv import read_fleet
from fedtempo.planning.files import PlanFiles, write_plan
from fedtempo.planning.plan import plan_fleet
from fedtempo.planning.plot import plan_figure
from fedtempo.planning.settings import PlanSettings
from fedtempo.planning.values import Plan
from fedtempo.tables.document import Document
from fedtempo.tables.frame import frame_of
from fedtempo.tables.table import Table
from fedtempo.theory.bits import WHOLE

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


@dataclass(frozen=True, eq=False, repr=False)
class PlannedFleet(Result):
    """Who to draw how often, and what to expect of it."""

    plan: Plan

    def __repr__(self) -> str:
        """Name the size."""
        return f"PlannedFleet({len(self.plan.fleet)} clients, K = {self.cohort_size})"

    @property
    def sampling_prob(self) -> Vector:
        """The probability q_i of each client in one draw."""
        return self.plan.sampling_prob

    @property
    def upload_bits(self) -> Integers:
        """The bits of a number in each client's uploads."""
        bits = self.plan.upload_bits
        return np.full(len(self.plan.fleet), WHOLE) if bits is None else bits

    @property
    def cohort_size(self) -> int:
        """How many clients to draw in each round."""
        return self.plan.cohort_size

    @property
    def notes(self) -> list[str]:
        """What to think about before trusting the plan."""
        return list(self.plan.notes())

    def table(self) -> Table:
        """Return what each policy costs, the plan itself first."""
        return self.plan.table()

    def document(self) -> Document:
        """Return a page: what policies cost, the clients drawn most, what a wrong β/α costs, and notes."""
        tables = self.plan.table(), self.plan.client_table(), self.plan.sensitivity_table()
        return Document(*tables, *self.notes)

    def to_pandas(self) -> "pd.DataFrame":
        """Return one row for each client."""
        fleet, columns = self.plan.fleet, self.plan.columns()
        names = {"name": [fleet.name(i) for i in range(len(fleet))]}
        rows = zip(*names.values(), *columns.values(), strict=True)
        return frame_of([dict(zip([*names, *columns], row, strict=True)) for row in rows])

    def plot(self) -> "Figure":
        """Return who is drawn how often and what the cohort size does, as a figure of matplotlib."""
        return plan_figure(self.plan)

    def write(self, path: Path | str) -> None:
        """Write the fleet with q and more of each client as CSV, as ``fedtempo plan -o`` does."""
        write_plan(self.plan, PlanFiles(csv=Path(path)))


def plan(fleet: Fleet | Path | str, **settings: object) -> PlannedFleet:
    """Choose who to draw how often, and forecast how long training takes.

    - ``fleet``: a ``Fleet``, or the path of its CSV file.
    - ``settings``: ``cohort_size`` (K; left out, it is chosen too), ``max_cohort``, ``beta_over_alpha``, ``floor``,
      ``link``, ``duplicates``, ``rounds_weighted``, ``weighted_cohort``, ``draws``, ``seed``: as for ``fedtempo plan``.
      ``bits``: of a number in an upload, ``"auto"`` for each client its own. ``noise``: ω of sizes, as ``{8: 0.001}``;
      ``largest_noise``: the largest ω to choose. ``model_megabytes``: the size of an upload with 32 bits, for the
      column uplink_mbps of a file, and so that headers count.
    """
    if not isinstance(fleet, (Fleet, str, Path)):
        rule = "be a Fleet, or the path of its CSV file"
        raise InputError(name="fleet", rule=rule, got=type(fleet).__name__)
    asked = decode(PlanSettings, settings)
    read = fleet if isinstance(fleet, Fleet) else read_fleet(fleet, model_megabytes=asked.model_megabytes)
    return PlannedFleet(plan_fleet(read, asked))
