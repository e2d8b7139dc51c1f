"""The best settings of each policy without a full run of each: successive halving, then races against the best so far.

**Halving.** All settings of a policy get a first part of the time limit. If some reached the target in each of their
runs, the fastest of these is best. If none did, the better half goes on from where it stopped, for twice as long: by
missed runs, then diverged ones, then mean time, then loss. At the whole limit the first in this order is best.

**Races.** A lever is tried over the best so far, for no longer than the best took to the target, and replaces it if it
reached the target in each run in a shorter mean time. Where the best has missed the target, the lever has the whole
limit, and the same order decides.

Judged is what happened before the limit of the stage alone. So whoever stops it and asks again gets the same choice,
though some runs have gone further since.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedtempo.experiments.comparing.statistics import Target
from fedtempo.experiments.ranking.candidates import Candidate, Score, Trial, try_out
from fedtempo.experiments.ranking.setup_grids import Choice
from fedtempo.experiments.running.grid import Execution
from fedtempo.experiments.running.planned import until
from fedtempo.experiments.running.results import Run

Plan = Callable[[str, Choice], Candidate]  # a policy under a choice of settings, for the whole time limit


@dataclass(frozen=True, eq=False, slots=True)
class Judged:
    """A candidate, and what its runs came to before a limit."""

    candidate: Candidate  # for the whole limit
    trial: Trial
    score: Score
    slowest: float  # seconds of its slowest run

    @property
    def reached(self) -> bool:
        """Whether each run reached the target."""
        return self.score.missed == 0


@dataclass(frozen=True, eq=False, slots=True)
class Chosen:
    """The best settings of a policy, and all that were tried: each with what it came to in the last part it got."""

    best: Judged
    tried: tuple[Judged, ...]

    @property
    def as_good(self) -> list[Choice]:
        """The settings that came to the same as the best."""
        score = self.best.score
        return [one.candidate.choice for one in self.tried if one is self.best or one.score == score]


@dataclass(frozen=True, eq=False, slots=True)
class Search:
    """How the settings of policies are judged."""

    title: str
    target: Target
    execution: Execution

    def halved(self, candidates: Mapping[str, Sequence[Candidate]], parts: Sequence[float]) -> dict[str, Chosen]:
        """Return the best of some candidates of each policy; ``parts`` of the time limit rise to 1."""
        left, chosen = dict(candidates), {}
        tried: dict[str, dict[int, Judged]] = {policy: {} for policy in candidates}
        for number, part in enumerate(parts, start=1):
            stage = f"{self.title}: settings, part {number} of at most {len(parts)}"
            limits = [[(one, part * _limit(one)) for one in own] for own in left.values()]
            judged = iter(self._judge(stage, [pair for own in limits for pair in own]))
            for policy, own in list(left.items()):
                found = sorted((next(judged) for _ in own), key=lambda one: one.score)
                tried[policy] |= {id(one.candidate): one for one in found}
                if found[0].reached or part == parts[-1]:
                    chosen[policy] = Chosen(found[0], tuple(tried[policy].values()))
                    del left[policy]
                else:
                    left[policy] = [one.candidate for one in found[: math.ceil(len(found) / 2)]]
            if not left:
                break
        return {policy: chosen[policy] for policy in candidates}

    def raced(
        self, number: int, chosen: Mapping[str, Chosen], levers: Mapping[str, Sequence[Candidate]]
    ) -> dict[str, Chosen]:
        """Return the best of each policy after one more stage, whose candidates race against the best so far."""
        pairs = [
            (one, chosen[policy].best.slowest if chosen[policy].best.reached else _limit(one))
            for policy, own in levers.items()
            for one in own
        ]
        judged, found = iter(self._judge(f"{self.title}: levers, stage {number}", pairs)), {}
        for policy, own in levers.items():
            new, before = [next(judged) for _ in own], chosen[policy]
            best = min([before.best, *new], key=lambda one: one.score)  # the earlier one of equals
            found[policy] = Chosen(best, (*before.tried, *new))
        return found

    def _judge(self, stage: str, pairs: Sequence[tuple[Candidate, float]]) -> list[Judged]:
        """Let the runs of candidates go on until a limit, and judge what happened before it."""
        limited = [replace(one, runs=[until(run, limit) for run in one.runs]) for one, limit in pairs]
        trials = try_out(stage, limited, self.execution)
        found = []
        for (one, limit), trial in zip(pairs, trials, strict=True):
            score = score_until(trial.runs, self.target, limit)
            slowest = max(_seconds(run, self.target, limit) for run in trial.runs)
            found.append(Judged(one, trial, score, slowest))
        return found


def score_until(runs: Sequence[Run], target: Target, limit: float) -> Score:
    """Return how bad some runs are by what happened in so many seconds of training, pilots counted."""
    took = [_took(run, target, limit) for run in runs]
    seconds = [_seconds(run, target, limit) + run.pilot_time for run in runs]
    return Score(
        missed=sum(one is None for one in took),
        diverged=sum(one is None and _diverged(run, limit) for run, one in zip(runs, took, strict=True)),
        seconds=float(np.mean(seconds)),
        losses=sum(_last_loss(run, limit) for run in runs) if None in took else 0.0,
    )


def _limit(candidate: Candidate) -> float:
    """Return the seconds for which a candidate may train."""
    limit = candidate.runs[0].settings.stop.max_time
    return math.inf if limit is None else limit


def _took(run: Run, target: Target, limit: float) -> float | None:
    took = run.time_to(loss=target.loss, accuracy=target.accuracy)
    return None if took is None or took > limit else took


def _seconds(run: Run, target: Target, limit: float) -> float:
    took = _took(run, target, limit)
    return limit if took is None else took


def _diverged(run: Run, limit: float) -> bool:
    return run.end == "diverged" and run.time_trained < limit


def _last_loss(run: Run, limit: float) -> float:
    """Return the last loss before a limit: the look that a run has for ending at it is none of one that goes on."""
    losses = run.loss[(run.time < limit) & ~np.isnan(run.loss)]
    return math.inf if _diverged(run, limit) or not losses.size else float(losses[-1])
