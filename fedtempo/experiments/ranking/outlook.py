"""What a leaderboard will take: how many runs at most, and once some have run, for how long."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from fedtempo.engine.records import read_records
from fedtempo.experiments.ranking.contest import TUNING_SEEDS, Contest
from fedtempo.experiments.running.grid import Execution, Grid, Watch
from fedtempo.experiments.running.planned import PlannedRun
from fedtempo.experiments.running.progress import duration_in_words

Say = Callable[[str], object]


@dataclass(frozen=True, slots=True)
class Amount:
    """What one contest takes at most."""

    settings: int  # that are tried of each policy
    tuning: int  # runs that choose settings
    ranking: int  # runs that count
    tuning_seconds: float  # simulated
    ranking_seconds: float


def amount_of(contest: Contest, policies: int, seeds: int) -> Amount:
    """Return what a contest takes at most: nobody reaches the target before the limit, and nothing has run before."""
    grid = contest.grid
    settings = sum(_product(len(values) for values in one.values()) for one in grid.choices(contest.regime))
    levers = sum(map(len, grid.stages(contest.regime)))
    whole, going, before = float(levers), settings, 0.0
    for part in grid.parts:
        whole += going * (part - before)
        going, before = (going + 1) // 2, part
    runs, ranking, limit = policies * grid.tuning_draws * len(TUNING_SEEDS), policies * seeds, contest.time_limit
    return Amount(settings + levers, runs * (settings + levers), ranking, runs * whole * limit, ranking * limit)


def _product(numbers: Iterator[int]) -> int:
    found = 1
    for number in numbers:
        found *= number
    return found


class Outlook:
    """Follows how long runs take, and says how long those to come will."""

    def __init__(self, amounts: Sequence[tuple[str, Amount]], say: Say) -> None:
        """Take what each contest takes at most, by its title, and how to say something."""
        self.amounts, self.say = amounts, say
        self.left = self._after(-1)  # simulated seconds at most
        self.asked = self.trained = self.waited = 0.0
        self.share: float | None = None  # of their limits that runs to come will take, once it is known
        self.said = False

    def begin(self) -> None:
        """Say how many runs there are."""
        for title, one in self.amounts:
            self.say(
                f"{title}: at most {one.tuning + one.ranking:,} runs, {one.tuning:,} of them for settings "
                f"({one.settings} for each policy)"
            )

    def execution(self, execution: Execution) -> Execution:
        """Return the same execution, whose grids are followed."""
        return Execution(jobs=execution.jobs, ray=execution.ray, watch=self._following(execution.watch))

    def tuned(self, number: int, share: float) -> None:
        """Count as left the ranking of this contest and later ones: its settings may have needed less than all.

        ``share``: of the time limit that the best settings took to the target, on the mean.
        """
        self.share = share
        self.left = self.amounts[number][1].ranking_seconds + self._after(number)
        self._say_how_long(f"{self.amounts[number][0]}: settings are chosen")

    def ranked(self, number: int) -> None:
        """Count as left what later contests take."""
        self.left = self._after(number)
        self._say_how_long(f"{self.amounts[number][0]}: ranked")

    def _after(self, number: int) -> float:
        return sum(one.tuning_seconds + one.ranking_seconds for _, one in self.amounts[number + 1 :])

    def _following(self, watch: Watch) -> Watch:
        @contextmanager
        def followed(grid: Grid) -> Iterator[Callable[[PlannedRun], object]]:
            before, began = {run.folder: _trained(run) for run in grid.unfinished}, time.monotonic()
            with watch(grid) as show_end:
                yield show_end
            self.waited += time.monotonic() - began
            for run in grid.unfinished:
                limit = run.settings.stop.max_time or 0.0
                self.asked += max(0.0, limit - before[run.folder])
                self.trained += max(0.0, _trained(run) - before[run.folder])
            for run in grid.runs:
                self.left -= max(0.0, (run.settings.stop.max_time or 0.0) - before.get(run.folder, 0.0))
            if grid.unfinished and not self.said:
                self._say_how_long(f"{grid.title}: ended")

        return followed

    def _say_how_long(self, stage: str) -> None:
        if not (self.trained and self.left > 0):
            return
        longest = self.waited / self.trained * self.left
        usual = longest * min(1.0, self.trained / self.asked if self.share is None else self.share)
        self.say(
            f"{stage} after {duration_in_words(self.waited)} of computing; about {duration_in_words(usual)} to go, "
            f"at most {duration_in_words(longest)}"
        )
        self.said = True


def _trained(run: PlannedRun) -> float:
    """Return the simulated seconds of training that a run has behind it."""
    if not run.records.exists():
        return 0.0
    return float(sum(record.round_time for record in read_records(run.records).rounds if record.trained))
