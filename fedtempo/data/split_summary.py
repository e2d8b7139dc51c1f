"""What a split looks like: sizes of the clients, their classes, and how unlike they are."""

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedtempo.checks import Integers, Vector
from fedtempo.data.federation import FederatedData
from fedtempo.tables.table import Cell, Column, Table, number_cell

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAMES_SHOWN = 5  # of classes, in a note


@dataclass(frozen=True, eq=False, slots=True)
class SplitSummary:
    """Who holds how much of what.

    The mix of a client is the shares of the classes among its samples. Two mixes are as unlike as their total variation
    distance, half the sum of the differences: 0 where they are the same, 1 where they have no class in common.
    """

    name: str  # of the data
    sizes: Integers  # (N,), samples of each client
    test_samples: int
    counts: Integers | None  # (N, C), samples of each class; None where labels are no classes
    class_names: tuple[str, ...]  # (C,)

    @property
    def mixes(self) -> Vector | None:
        """The shares of the classes among each client's samples."""
        return None if self.counts is None else self.counts / self.sizes[:, np.newaxis]

    @property
    def classes_held(self) -> Integers | None:
        """How many classes each client has."""
        return None if self.counts is None else (self.counts > 0).sum(axis=1)

    @property
    def distance_to_all(self) -> float | None:
        """The mean distance, over clients, between a client's mix and that of all samples."""
        if self.counts is None or self.mixes is None:
            return None
        overall = self.counts.sum(axis=0) / self.sizes.sum()
        return float(0.5 * np.abs(self.mixes - overall).sum(axis=1).mean())

    @property
    def distance_of_pairs(self) -> float | None:
        """The mean distance between the mixes of two clients, over all pairs; None where there is one client."""
        if self.mixes is None or self.sizes.size < 2:
            return None
        # Of sorted values, Σ |x_i - x_j| over pairs counts each by how many lie below it, less how many above.
        size = self.sizes.size
        ranks = 2 * np.arange(size) - size + 1
        differences = (np.sort(self.mixes, axis=0) * ranks[:, np.newaxis]).sum()
        return max(0.0, float(0.5 * differences / (size * (size - 1) / 2)))

    def facts(self) -> dict[str, object]:
        """Return everything as plain values, for JSON."""
        return {
            "name": self.name,
            "clients": self.sizes.size,
            "samples": int(self.sizes.sum()),
            "test_samples": self.test_samples,
            "sizes": asdict(_spread(self.sizes)),
            "classes": None if self.classes_held is None else asdict(_spread(self.classes_held)),
            "distance_to_all": self.distance_to_all,
            "distance_of_pairs": self.distance_of_pairs,
            "class_names": list(self.class_names),
            "samples_of_clients": self.sizes.tolist(),
            "classes_of_clients": None if self.counts is None else self.counts.tolist(),
        }

    def table(self) -> Table:
        """Return sizes and classes of the clients, and how unlike these are."""
        rows = [_row("samples of a client", _spread(self.sizes))]
        if self.classes_held is not None:
            rows.append(_row("classes of a client", _spread(self.classes_held)))
        columns = [Column("", align="left"), *(Column(name) for name in ("smallest", "median", "mean", "largest"))]
        return Table.from_rows(columns, rows, title=self.title, notes=self._notes())

    @property
    def title(self) -> str:
        """What was split among how many."""
        samples, clients = int(self.sizes.sum()), self.sizes.size
        return f"{self.name}: {samples:,} samples of {clients:,} {'client' if clients == 1 else 'clients'}"

    def _notes(self) -> list[str]:
        notes = [f"{self.test_samples:,} test samples."]
        if self.distance_to_all is None:
            return [*notes, "Labels are no classes: how unlike clients are is not known."]
        names = self.class_names
        if names != tuple(map(str, range(len(names)))):
            shown = names if len(names) <= NAMES_SHOWN else (*names[: NAMES_SHOWN - 2], "…", names[-1])
            notes.append(f"Classes 0 to {len(names) - 1} stand for the labels {', '.join(shown)}.")
        unlike = (
            f"How unlike clients are, 0 (alike) to 1 (no class in common): {self.distance_to_all:.2f} from all data"
        )
        pairs = "" if self.distance_of_pairs is None else f", {self.distance_of_pairs:.2f} between two clients"
        return [*notes, f"{unlike}{pairs}."]

    def plot(self) -> "Figure":
        """Return a picture: sizes of the clients, and which classes each holds."""
        from fedtempo.data.split_picture import draw_split

        return draw_split(self)

    def __str__(self) -> str:
        """Return the table as Markdown."""
        return str(self.table())

    def _repr_html_(self) -> str | None:
        """Return what a notebook shows."""
        return self.table()._repr_html_()


@dataclass(frozen=True, slots=True)
class Spread:
    """Some numbers in short."""

    smallest: int
    median: float
    mean: float
    largest: int


def summarise(data: FederatedData) -> SplitSummary:
    """Return what the split of some data looks like."""
    counts, names = None, data.class_names
    if data.num_classes:
        owner = np.repeat(np.arange(data.num_clients), data.sizes)
        flat = np.bincount(owner * data.num_classes + data.labels, minlength=data.num_clients * data.num_classes)
        counts = flat.reshape(data.num_clients, data.num_classes)
        names = names or tuple(map(str, range(data.num_classes)))
    return SplitSummary(data.name, data.sizes, len(data.test_inputs), counts, names)


def _spread(values: Integers) -> Spread:
    return Spread(int(values.min()), float(np.median(values)), float(values.mean()), int(values.max()))


def _row(name: str, spread: Spread) -> list[str | Cell]:
    digits = 0 if spread.mean >= 100 else 1
    return [
        name,
        number_cell(spread.smallest, ",d"),
        Cell(f"{spread.median:,.1f}".removesuffix(".0"), spread.median),
        number_cell(spread.mean, f",.{digits}f"),
        number_cell(spread.largest, ",d"),
    ]
