"""A plan as files: a table of clients, the whole of it as JSON, a picture."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fedtempo.figures import picture_format, save_figure
from fedtempo.files import whole_files
from fedtempo.fleet_csv import dump_fleet
from fedtempo.planning.plot import plan_figure
from fedtempo.planning.values import Plan


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanFiles:
    """Where the parts of a plan go; None: nowhere."""

    csv: Path | None = None  # the fleet, and what the plan says of each client
    json: Path | None = None
    plot: Path | None = None

    @property
    def paths(self) -> list[Path]:
        """The files that are wanted."""
        return [path for path in (self.csv, self.json, self.plot) if path is not None]


def write_plan(plan: Plan, wanted: PlanFiles, spell: Callable[[str], str] = str) -> None:
    """Write all files of a plan, or none where one of them fails; ``spell`` as for the notes of a plan."""
    ending = "" if wanted.plot is None else picture_format(wanted.plot)
    targets = [(path, "wb" if path == wanted.plot else "w") for path in wanted.paths]
    with whole_files(*targets) as opened:
        streams = iter(opened)
        if wanted.csv is not None:
            dump_fleet(next(streams), plan.fleet, plan.columns())
        if wanted.json is not None:
            json.dump(plan.as_json(spell), next(streams), indent=1, allow_nan=False)
        if wanted.plot is not None:
            save_figure(plan_figure(plan), next(streams), ending)
