"""Runs as their records show them: curves of the training phase, and when each target was reached."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from fedtempo.checks import InputError, Vector
from fedtempo.engine.clock import Uploads, time_round
from fedtempo.engine.records import End, Header, RoundRecord, Summary, find_runs, read_records
from fedtempo.experiments.settings.config import metric_of
from fedtempo.policies.registry import traits
from fedtempo.theory.bandwidth import LinkMode
from fedtempo.theory.round_time import Duplicates


@dataclass(frozen=True, eq=False)
class Run:
    """One run; arrays have one entry for each round of training, pilots left out."""

    folder: Path
    header: Header
    records: list[RoundRecord]  # of all rounds, pilots included
    summary: Summary | None  # None: the run has not ended
    policy: str  # the header's, or what a comparison of unlike runs calls it

    @property
    def name(self) -> str:
        """The experiment that this is a run of."""
        return self.header.experiment

    @property
    def seed(self) -> int:
        """The seed of cohorts, batches and the initial model."""
        return self.header.seed

    @property
    def end(self) -> End | None:
        """Why the run ended, None if it has not."""
        return None if self.summary is None else self.summary.end

    @property
    def clock(self) -> str:
        """What measured its seconds: simulated, or real, where real clients trained."""
        return "real" if self.header.clock == "wall" else "simulated"

    @property
    def oracle(self) -> bool:
        """Whether its policy takes pilots for granted: that it has none is then no merit."""
        return traits(self.header.kind or self.header.policy).oracle

    @property
    def metric(self) -> str | None:
        """What ``accuracy`` holds where somebody's own metric stands there, None where it is the accuracy."""
        return metric_of(self.header.config)

    @property
    def time_limit(self) -> float | None:
        """The simulated seconds of training that it may take, None if it ends after a number of rounds alone."""
        limit: float | None = self.header.config.get("stop", {}).get("max_time")
        return limit

    @cached_property
    def trained(self) -> list[RoundRecord]:
        """The records of training."""
        return [record for record in self.records if record.trained]

    @property
    def note(self) -> dict[str, Any]:
        """What the policy found in its pilots, {} if it had none."""
        return self.trained[0].notes if self.trained else {}

    @cached_property
    def pilot_time(self) -> float:
        """Seconds of the pilots."""
        return 0.0 + sum(record.round_time for record in self.records if not record.trained)

    @cached_property
    def time(self) -> Vector:
        """Seconds of training at the end of each round."""
        return np.cumsum([record.round_time for record in self.trained], dtype=np.float64)

    @cached_property
    def loss(self) -> Vector:
        """The loss after each round, NaN where it was not evaluated."""
        return _numbers(record.loss for record in self.trained)

    @cached_property
    def accuracy(self) -> Vector:
        """The accuracy after each round, NaN where it was not evaluated."""
        return _numbers(record.accuracy for record in self.trained)

    @property
    def time_trained(self) -> float:
        """Seconds of training in all."""
        return float(self.time[-1]) if self.time.size else 0.0

    def round_of(self, *, loss: float | None = None, accuracy: float | None = None) -> int | None:
        """Return after how many rounds of training the targets were first reached, each for itself; None if never."""
        if loss is None and accuracy is None:
            raise InputError(name="a target", rule="be a loss, an accuracy or both", got="neither")
        reached = [
            np.flatnonzero(good)
            for wanted, good in ((loss, self.loss <= (loss or 0)), (accuracy, self.accuracy >= (accuracy or 0)))
            if wanted is not None
        ]
        return max(int(rounds[0]) + 1 for rounds in reached) if all(len(rounds) for rounds in reached) else None

    def time_to(self, *, loss: float | None = None, accuracy: float | None = None) -> float | None:
        """Return the seconds of training until the targets were first reached, None if never."""
        rounds = self.round_of(loss=loss, accuracy=accuracy)
        return None if rounds is None else float(self.time[rounds - 1])

    def round_times(self, link: LinkMode, duplicates: Duplicates) -> Vector:
        """Return what the rounds of training would have taken on another link: who trains does not depend on it.

        Clients compute and upload as recorded; downloads, which are not in the records, are refused.
        """
        if self.header.config["times"].get("download") is not None:
            raise InputError(
                name="times.download",
                rule="not be set to time rounds anew",
                got="it",
                remedy="records do not hold downloads",
            )
        times = []
        for record in self.trained:
            known = np.array([t is not None for t in record.compute_time])
            tau, t = (np.array(each, dtype=np.float64)[known] for each in (record.compute_time, record.upload_time))
            uploads = Uploads(ready_time=tau, upload_time=t, counts=np.array(record.counts)[known])
            timing = time_round(uploads, total_bandwidth=1.0, link=link, duplicates=duplicates)
            times.append(timing.round_time)
        return np.array(times)


def read_run(path: Path) -> Run:
    """Read one records file."""
    found = read_records(path)
    if found.header is None:
        raise InputError(path, "hold the records of a run", "no line", "it was killed at its start: delete its folder")
    return Run(path.parent, found.header, found.rounds, found.summary, found.header.policy)


def read_runs(folders: list[Path]) -> list[Run]:
    """Read all runs in some folders, by policy and seed."""
    return sorted(map(read_run, find_runs(folders)), key=lambda run: (run.name, run.policy, run.seed))


def by_policy(runs: Iterable[Run]) -> dict[str, list[Run]]:
    """Return runs grouped by policy, in the order of their first one."""
    grouped: dict[str, list[Run]] = {}
    for run in runs:
        grouped.setdefault(run.policy, []).append(run)
    return grouped


def _numbers(values: Iterable[float | None]) -> Vector:
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)


def code_of(runs: Sequence[Run]) -> str:
    """Say with what code runs were made, and how many where they were made with several."""
    found: Counter[str] = Counter()
    for run in runs:
        versions, commit = run.header.versions, run.header.commit
        known = "" if commit is None else f", commit {commit}"
        found[f"fedtempo {versions.get('fedtempo')}, numpy {versions.get('numpy')}{known}"] += 1
    if len(found) == 1:
        return next(iter(found))
    return "; ".join(f"{code} ({count} of {len(runs)} runs)" for code, count in found.items())
