"""The paper's tables and figures from Python."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fedtempo.api.asked import computing, seeds_of
from fedtempo.api.result import Result
from fedtempo.checks import InputError
from fedtempo.experiments.comparing.figures import comparison_figure
from fedtempo.experiments.paper import reproduce as verb
from fedtempo.experiments.paper.study import ReproducedPart
from fedtempo.tables.document import Document
from fedtempo.tables.table import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, eq=False, repr=False)
class Reproduction(Result):
    """One part of the paper: tables, and a figure."""

    part: ReproducedPart

    def __repr__(self) -> str:
        """Name the part."""
        return f"Reproduction({self.part.file_name})"

    def table(self) -> Table:
        """Return its first table."""
        return next(block for block in self.part.document.blocks if isinstance(block, Table))

    def document(self) -> Document:
        """Return its page."""
        return self.part.document

    def plot(self) -> "Figure":
        """Return its curves as a figure of matplotlib."""
        curves = self.part.curves
        if curves is None:
            raise InputError(name=self.part.file_name, rule="have curves to plot", got="none")
        return comparison_figure(curves.runs, curves.target, title=curves.title, labels=curves.label)

    def write(self, folder: Path | str) -> list[Path]:
        """Write the page and the figure into a folder, as ``fedtempo reproduce`` does; return the files."""
        return verb.write_part(self.part, Path(folder))


def reproduce(
    part: str,
    *,
    seeds: int | Sequence[int] = 20,
    first_seed: int = 0,
    preset: str = "paper",
    out: Path | str | None = None,
    jobs: int | None = None,
    progress: bool | None = None,
) -> list[Reproduction]:
    """Reproduce a part of the paper, or all of it, beside its own numbers.

    - ``part``: setup1, setup2, setup3, impact-of-k, impact-of-e or all.
    - ``seeds``: how many, the paper has 20; ``first_seed``: the first; ``preset``: which settings of the setups.
    - ``out``, ``jobs``, ``progress``: as for ``compare``.
    """
    verb.parts_of(part)
    with computing(out, jobs, progress) as (folder, execution):
        every = seeds_of(seeds, first_seed)
        request = verb.ReproductionRequest(what=part, seeds=every, preset=preset, records=folder)
        return [Reproduction(one) for one in verb.reproduce(request, execution)]
