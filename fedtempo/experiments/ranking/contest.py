"""One contest of the leaderboard: a setup on one kind of channel under one regime, its worlds and its runs."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fedtempo.checks import InputError
from fedtempo.experiments.comparing.statistics import Target
from fedtempo.experiments.ranking.candidates import (
    FIRST_SEED,
    Candidate,
    Edge,
    SearchSpace,
    Trial,
    best_of,
    candidates,
    edges_of,
    try_out,
)
from fedtempo.experiments.ranking.setup_grids import GRIDS, Choices
from fedtempo.experiments.running.grid import Execution
from fedtempo.experiments.running.problem import load_data
from fedtempo.experiments.settings.assignments import Assignments
from fedtempo.experiments.settings.config import FileExperiment
from fedtempo.experiments.settings.decode import SettingsTable

CHANNELS = ("static", "fading", "fading-unknown", "absences", "traces")
FORMER_CHANNELS = {"fading-unknown": "fading-untold"}  # their names until 0.1
TUNING_DRAWS, TUNING_SEEDS = (FIRST_SEED, FIRST_SEED + 1), (FIRST_SEED,)
# In time, not in rounds: looked at after every few rounds, long rounds would find the target later than short ones.
LOOKS_APART = 0.01  # times the time so far
PRESENT_SHARE = 0.7  # of the rounds, where clients are absent at random


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class Contest:
    """What is contested, and where."""

    setup: str
    channel: str
    regime: str
    experiment: FileExperiment  # of the configuration, before a draw of its world
    trace_files: tuple[str, ...]  # of the channel traces
    records: Path
    assignments: Assignments = ()  # single settings over the configuration

    @property
    def title(self) -> str:
        """Setup, channel and regime, in words."""
        return f"{self.setup}, {self.channel}, {self.regime}"

    @property
    def target(self) -> Target:
        """What the runs are to reach."""
        return Target(loss=self.experiment.stop.target_loss)

    @property
    def data(self) -> str:
        """What the runs train on, in words."""
        words = load_data(self.experiment.data).name
        if self.channel == "traces":
            words += f"; links: {', '.join(Path(file).name for file in self.trace_files)}"
        if self.channel in ("fading", "traces"):
            words += "; policies know the times of a round before it"
        return words

    def file_name(self, *, former: bool = False) -> str:
        """Return the name of its files without an ending; ``former``: the name that they had before a channel's."""
        channel = FORMER_CHANNELS.get(self.channel, self.channel) if former else self.channel
        return f"{self.setup}-{channel}-{self.regime}"

    def choose_settings(self, policies: Sequence[str], execution: Execution) -> tuple[dict[str, Trial], list[Edge]]:
        """Return the best trial of each policy, and which settings lie at the edge of what was tried.

        A policy's settings have a short time at first, and longer ones only until one of them reached the target in
        each run.
        """
        chosen: dict[str, Trial] = {}
        edges: list[Edge] = []
        grid = GRIDS[self.setup]
        for number, part in enumerate(grid.tuning_limits, start=1):
            if not (left := [policy for policy in policies if policy not in chosen]):
                break
            tried = [
                candidate
                for choices in grid.choices(self.regime)
                for candidate in self.candidates(left, choices, part=part, draws=TUNING_DRAWS, seeds=TUNING_SEEDS)
            ]
            stage = f"{self.title}: settings, part {number} of at most {len(grid.tuning_limits)}"
            trials = try_out(stage, tried, execution)
            best = best_of(trials, self.target)
            done = {policy: one for policy, one in best.items() if part == 1 or not one.times(self.target).missed}
            chosen |= done
            edges += edges_of([trial for trial in trials if trial.policy in done], self.target)
        return {policy: chosen[policy] for policy in policies}, edges

    def candidates(
        self,
        policies: Sequence[str],
        choices: Choices,
        *,
        part: float = 1.0,
        draws: Sequence[int],
        seeds: Sequence[int],
    ) -> list[Candidate]:
        """Return policies under choices of settings in draws of the world, for a part of the time limit."""
        space = SearchSpace(
            experiment=self.experiment,
            choices=choices,
            seeds=seeds,
            stop={"target_loss": self.target.loss, "max_time": part * GRIDS[self.setup].time_limit},
            root=self._root(),
            worlds=[self._world(draw) for draw in draws],
            assignments=self.assignments,
        )
        return candidates(policies, space)

    def _root(self) -> Path:
        """Return the folder of the runs, which may be that of the channel's former name."""
        root, former = self.records / self.setup / self.channel, FORMER_CHANNELS.get(self.channel)
        before = None if former is None else root.with_name(former)
        return root if before is None or root.exists() or not before.exists() else before

    def _world(self, draw: int) -> SettingsTable:
        """Return a draw of data and times, and the channel, as a table to lie over a configuration."""
        channel: dict[str, object] = {"seed": draw}
        times: dict[str, object] = {"seed": draw}
        if self.channel.startswith("fading"):
            channel |= {"kind": "fading", "times_known": self.channel == "fading"}
        elif self.channel == "absences":
            channel |= {"present_share": PRESENT_SHARE}
        elif self.channel == "traces":
            channel |= {"kind": "traces", "traces": list(self.trace_files)}
            times |= {"upload": None, "uplink_mbps": None}
        training = {"evaluate_growth": LOOKS_APART}
        return {"data": {"seed": draw}, "times": times, "channel": channel, "training": training}


def trace_files(folder: Path | None) -> tuple[str, ...]:
    """Return the traces in a folder, in order of their names."""
    found = sorted(folder.iterdir()) if folder is not None and folder.is_dir() else []
    files = tuple(str(path.resolve()) for path in found if path.suffix in (".up", ".csv"))
    if not files:
        raise InputError(
            name="traces",
            rule="be a folder with .up or .csv files for the channel traces",
            got="none" if folder is None else str(folder),
        )
    return files
