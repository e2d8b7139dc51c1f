"""One contest of the leaderboard: a setup on one kind of channel under one regime, its worlds and its runs."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fedtempo.checks import InputError
from fedtempo.experiments.comparing.statistics import Target
from fedtempo.experiments.ranking.candidates import FIRST_SEED, Candidate, SearchSpace, candidates
from fedtempo.experiments.ranking.halving import Chosen, Search
from fedtempo.experiments.ranking.setup_grids import GRIDS, IN_WORDS, Choice, Choices, Lever, SetupGrid
from fedtempo.experiments.running.grid import Execution
from fedtempo.experiments.running.problem import load_data
from fedtempo.experiments.settings.assignments import Assignments
from fedtempo.experiments.settings.config import FileExperiment
from fedtempo.experiments.settings.decode import SettingsTable

CHANNELS = ("static", "fading", "fading-unknown", "absences", "traces")
FORMER_CHANNELS = {"fading-unknown": "fading-untold"}  # their names until 0.1
TUNING_SEEDS = (FIRST_SEED,)
SLOW_SHARE = 0.1  # of the clients, those that upload slowest: their loss at the target is ranked too
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
        return f"{self.setup}, {self.channel}, {IN_WORDS.get(self.regime, self.regime)}"

    @property
    def grid(self) -> SetupGrid:
        """What is tried in this setup, and for how long."""
        return GRIDS[self.setup]

    @property
    def time_limit(self) -> float:
        """Simulated seconds that a run may take, as the grid or who asked for the ranking has it."""
        own = [one.value for one in self.assignments if one.path == ("stop", "max_time")]
        return float(own[-1]) if own and isinstance(own[-1], int | float) else self.grid.time_limit

    @property
    def place(self) -> tuple[str, str]:
        """Where it is contested, whatever the regime."""
        return self.setup, self.channel

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

    def choose_settings(self, policies: Sequence[str], execution: Execution) -> dict[str, Chosen]:
        """Return the best settings of each policy, and what was tried for it: by halving, then by races of levers."""
        search = Search(self.title, self.target, execution)
        first: dict[str, list[Candidate]] = {policy: [] for policy in policies}
        for choices in self.grid.choices(self.regime):
            for one in self._tuned(policies, choices):
                first[one.policy].append(one)
        chosen = search.halved(first, self.grid.parts)
        for number, stage in enumerate(self.grid.stages(self.regime), start=1):
            levers = {
                policy: [one for lever in stage for one in self._with_lever(policy, own.best.candidate.choice, lever)]
                for policy, own in chosen.items()
            }
            chosen = search.raced(number, chosen, levers)
        return chosen

    def ranked(self, policy: str, choice: Choice, *, seeds: int, draws: int) -> list[Candidate]:
        """Return a policy under its best settings, for each draw of the ranking."""
        return [
            candidate
            for draw in range(draws)
            for candidate in self._candidates([policy], _one(choice), [draw], range(draw, seeds, draws), SLOW_SHARE)
        ]

    def _with_lever(self, policy: str, choice: Choice, lever: Lever) -> list[Candidate]:
        return self._tuned([policy], _one(self.grid.with_lever(choice, lever)))

    def _tuned(self, policies: Sequence[str], choices: Choices) -> list[Candidate]:
        draws = range(FIRST_SEED, FIRST_SEED + self.grid.tuning_draws)
        return self._candidates(policies, choices, draws, TUNING_SEEDS)

    def _candidates(
        self,
        policies: Sequence[str],
        choices: Choices,
        draws: Sequence[int],
        seeds: Sequence[int],
        slow_share: float = 0.0,
    ) -> list[Candidate]:
        """Return policies under choices of settings in draws of the world, for the whole time limit."""
        space = SearchSpace(
            experiment=self.experiment,
            choices=choices,
            seeds=seeds,
            stop={"target_loss": self.target.loss, "max_time": self.grid.time_limit},
            root=self._root(),
            worlds=[self._world(draw, slow_share) for draw in draws],
            assignments=self.assignments,
        )
        return candidates(policies, space)

    def _root(self) -> Path:
        """Return the folder of the runs, which may be that of the channel's former name."""
        root, former = self.records / self.setup / self.channel, FORMER_CHANNELS.get(self.channel)
        before = None if former is None else root.with_name(former)
        return root if before is None or root.exists() or not before.exists() else before

    def _world(self, draw: int, slow_share: float) -> SettingsTable:
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
        # In time, not in rounds: looked at after every few rounds, long rounds would find the target later than short.
        training = {"evaluate_growth": self.grid.looks_apart, "slow_share": slow_share}
        return {"data": {"seed": draw}, "times": times, "channel": channel, "training": training}


def _one(choice: Choice) -> Choices:
    """Return one choice as a grid of its own."""
    return {name: [value] for name, value in choice.items()}


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
