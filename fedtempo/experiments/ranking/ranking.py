"""A ranking of policies in one contest as a value: its order, its page, its tables."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedtempo.experiments.comparing.amounts import amount, count, multiple
from fedtempo.experiments.comparing.statistics import Target, interval_of_mean
from fedtempo.experiments.ranking.candidates import Edge
from fedtempo.experiments.ranking.standings import RankedRun, Standing, Standings, ranked_runs
from fedtempo.policies.registry import traits
from fedtempo.tables.document import Document, Heading, Items, Picture
from fedtempo.tables.prose import Code, Hyperlink, Paragraph
from fedtempo.tables.table import EMPTY, Cell, Column, Table, as_cell


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class Ranking:
    """What each policy took in each draw of one contest, everything counted."""

    file_name: str  # of its page, picture and tables, without an ending
    title: str
    target: Target
    data: str  # on which, in words
    command: str  # that made it
    code: str  # that made the runs
    standings: Standings
    kept: Standings  # those of an earlier leaderboard among them
    edges: list[Edge]
    over: str = "draw"  # what policies are compared in pairs of: draws of the data, or seeds

    @property
    def order(self) -> list[str]:
        """The policies by missed runs, then by time; those that take pilots for granted stand below all others."""

        def place(policy: str) -> tuple[bool, int, float]:
            standings = self.standings[policy]
            return standings[0].times.oracle, missed(standings), mean_time(standings)

        return sorted(self.standings, key=place)

    @property
    def reference(self) -> str:
        """The policy that others are compared with: ours, or the best where ours is not ranked."""
        return next((policy for policy in self.standings if traits(policy).ours), self.order[0])

    def runs(self) -> list[RankedRun]:
        """Return every run, the best policy first."""
        return ranked_runs(self.standings, self.order, self.data, self.target)

    def document(self) -> Document:
        """Return the page: by what it was made, the chart, the table, and which settings lie at an edge."""
        edges = ("Settings at the edge of what was tried:", Items(*map(str, self.edges))) if self.edges else ()
        chart = Picture(f"{self.file_name}.png", "Ranking")
        return Document(Heading(self.title, 1), self._made_by(), chart, self._procedure(), self.table(), *edges)

    def table(self) -> Table:
        """Return one line for each policy, the best first; every draw is shown."""
        headings: list[str | Column] = [
            "policy",
            "seconds",
            f"to {self.reference}",
            "95 %",
            "range",
            f"each {self.over}",
            "missed",
            Column("settings", align="left"),
        ]
        return Table.from_rows(headings, map(self._row, self.order))

    def _row(self, policy: str) -> list[str | Cell]:
        standings, reference = self.standings[policy], self.standings[self.reference]
        lost, mean = missed(standings), mean_time(standings)
        runs = sum(one.times.seconds.size for one in standings)
        settings = ", ".join(f"{name} {value:g}" for name, value in standings[0].choice.items())
        bounds = lost > 0, missed(reference) > 0
        ratio = mean / mean_time(reference)
        over = multiple(ratio, numerator_missed=bounds[0], denominator_missed=bounds[1])
        return [
            policy,
            as_cell(f"> {amount(mean)}") if lost else Cell(amount(mean), mean),
            *(
                (Cell("1", 1.0), EMPTY, EMPTY)
                if policy == self.reference
                else (as_cell(over) if any(bounds) else Cell(over, ratio), *_spread(standings, reference))
            ),
            " ".join(f"{'>' if one.times.missed else ''}{amount(one.times.mean)}" for one in standings),
            f"{lost} of {runs}",
            settings,
        ]

    def _made_by(self) -> Paragraph:
        """Say by which command and code, on which data, and which policies were kept from before."""
        kept = ""
        if self.kept:
            codes = Counter(code for standings in self.kept.values() for one in standings for code in one.code)
            made = "; ".join(f"{code} ({count} runs)" for code, count in codes.items())
            kept = f" Kept from an earlier {self.file_name}.csv: {', '.join(self.kept)}, with {made}."
        runs = Hyperlink("Each run", f"{self.file_name}.csv")
        return Paragraph("Made by ", Code(self.command), f" with {self.code}. Data: {self.data}. ", runs, f".{kept}")

    def _procedure(self) -> str:
        many, draws = len(next(iter(self.standings.values()))), self.over == "draw"
        procedure = (
            f"Ranked by how many runs missed the target, then by time: the geometric mean over "
            f"{count(many, self.over)}{' of the data' if draws else ''}, pilots counted. Runs that missed it enter "
            f"with the time that they trained, at most the time limit, and those that diverged with the limit. Ratios "
            f"are of {self.over}s in pairs: their 95 % interval and their range. Settings were chosen on other "
            f"{'draws and seeds' if draws else 'seeds'}; of each policy's own options the defaults stand."
        )
        if granted := [policy for policy in self.order if self.standings[policy][0].times.oracle]:
            procedure += f" Outside the ranking, with pilots taken for granted: {', '.join(granted)}."
        return procedure


def runs_table(runs: Sequence[RankedRun]) -> Table:
    """Return the table of all runs, from which another leaderboard can keep them."""
    names = RankedRun.__struct_fields__
    rows = [[Cell(str(value), value) for value in (getattr(run, name) for name in names)] for run in runs]
    return Table.from_rows(names, rows)


def mean_time(standings: Sequence[Standing]) -> float:
    """Return the geometric mean over draws of the mean time over seeds."""
    return float(np.exp(np.mean([np.log(one.times.mean) for one in standings])))


def missed(standings: Sequence[Standing]) -> int:
    """Return how many runs did not reach the target."""
    return sum(one.times.missed for one in standings)


def _spread(standings: Sequence[Standing], reference: Sequence[Standing]) -> tuple[Cell, Cell]:
    """Return the 95 % interval of the mean ratio of times, in pairs of draws, and its range, where no run missed."""
    if missed(standings) or missed(reference):
        return EMPTY, EMPTY
    ratios = np.array([one.times.mean / other.times.mean for one, other in zip(standings, reference, strict=True)])
    interval = interval_of_mean(np.log(ratios))
    bounds = EMPTY if interval is None else as_cell(f"{np.exp(interval[0]):.2f}–{np.exp(interval[1]):.2f}")
    return bounds, as_cell(f"{ratios.min():.2f}–{ratios.max():.2f}")
