"""A ranking of policies in one contest as a value: its order, its page, its tables."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from fedtempo.experiments.comparing.amounts import amount, count, multiple
from fedtempo.experiments.comparing.statistics import Target
from fedtempo.experiments.ranking.candidates import Edge
from fedtempo.experiments.ranking.ratios import (
    mean_time,
    missed,
    opponents,
    order_of,
    ratio_table,
    slow_table,
    spread,
)
from fedtempo.experiments.ranking.standings import RankedRun, Standings, ranked_runs, settings_in_words
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
    plain: Standings = field(default_factory=dict)  # of the regime plain, whose baselines ours is compared with

    @property
    def order(self) -> list[str]:
        """The policies by missed runs, then by time; those that take pilots for granted stand below all others."""
        return order_of(self.standings)

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
        start = Heading(self.title, 1), self._made_by(), chart, self._procedure(), self.table()
        return Document(*start, *self._ratios(), *self._slow_clients(), *edges)

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

    def _ratios(self) -> list[str | Table]:
        """Return what ours takes of the best others' time, where ours is ranked among others."""
        others = opponents(self.standings, self.reference, self.plain)
        if self.over != "draw" or not others or not traits(self.reference).ours:
            return []
        said = f"What {self.reference} takes of others' time, by draws in pairs:"
        return [said, ratio_table(self.reference, self.standings[self.reference], others)]

    def _slow_clients(self) -> list[str | Table]:
        """Return what the final models are worth to the clients that upload slowest, where that was measured."""
        usual = next((policy for policy in ("weighted",) if policy in self.standings), self.reference)
        found = slow_table(self.standings, self.order, usual)
        if found is None:
            return []
        said = "The loss of the tenth of clients that upload slowest, by the models at the end of the runs:"
        return [said, found]

    def _row(self, policy: str) -> list[str | Cell]:
        standings, reference = self.standings[policy], self.standings[self.reference]
        lost, mean = missed(standings), mean_time(standings)
        runs = sum(one.times.seconds.size for one in standings)
        settings = settings_in_words(standings[0].choice)
        bounds = lost > 0, missed(reference) > 0
        ratio = mean / mean_time(reference)
        over = multiple(ratio, numerator_missed=bounds[0], denominator_missed=bounds[1])
        return [
            policy,
            as_cell(f"> {amount(mean)}") if lost else Cell(amount(mean), mean),
            *(
                (Cell("1", 1.0), EMPTY, EMPTY)
                if policy == self.reference
                else (as_cell(over) if any(bounds) else Cell(over, ratio), *spread(standings, reference))
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
