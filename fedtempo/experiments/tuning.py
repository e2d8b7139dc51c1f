"""Each policy at its own best step size and cohort size, chosen by one procedure on seeds that no comparison uses."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any

from fedtempo.engine.records import RECORDS
from fedtempo.experiments.comparison import Target, Times, times_to
from fedtempo.experiments.config import DEFAULT_PRESET, for_policy, read_experiment
from fedtempo.experiments.grid import Job
from fedtempo.experiments.results import Run, read_run
from fedtempo.experiments.tables import limits, markdown, seconds
from fedtempo.experiments.toml import merged

FIRST_SEED = 1000
LARGEST_STEP = 3.0  # times beyond the edge of what was tried


@dataclass(frozen=True, eq=False)
class Candidate:
    """One policy under one choice of settings."""

    policy: str
    training: dict[str, float]  # the settings that were chosen
    cohort_size: int
    jobs: list[Job]

    @cached_property
    def runs(self) -> list[Run]:
        """Its runs, once they have ended."""
        return [read_run(job.folder / RECORDS) for job in self.jobs]

    def times(self, target: Target, among: Sequence[Run] = ()) -> Times:
        """Return what its runs took, pilots counted; ``among``: the runs that they are compared with."""
        (found,) = times_to(self.runs, target, among=among).values()
        return found.with_pilots()

    def score(self, target: Target, among: Sequence[Run] = ()) -> tuple[int, int, float, float]:
        """Return how bad it is: runs that missed the target, runs that diverged, then seconds, then last losses."""
        times, diverged = self.times(target, among), sum(run.summary.get("end") == "diverged" for run in self.runs)
        # Where everyone misses the target, all have taken the same time.
        losses = [_loss_of(run) for run in self.runs] if times.missed else []
        return times.missed, diverged, times.mean, sum(losses)


def _loss_of(run: Run) -> float:
    loss = run.summary.get("loss")
    return math.inf if loss is None or math.isnan(loss) else float(loss)


def candidates(
    config: Path,
    preset: str,
    policies: Sequence[str],
    *,
    choices: Mapping[str, Sequence[float]],
    seeds: Sequence[int],
    stop: Mapping[str, float | None],
    root: Path,
    worlds: Sequence[Mapping[str, Any]] = ({},),
) -> list[Candidate]:
    """Return the runs to compare: every policy with every choice of training settings, in every world.

    ``choices``: values for each setting of training. ``worlds``: tables that lie over the configuration, such as other
    draws of the data.
    """
    found = []
    for policy, values in product(policies, product(*choices.values())):
        training = dict(zip(choices, values, strict=True))
        jobs = []
        for world in worlds:
            own = {"policy": {policy: {"training": training}}} | ({"stop": stop} if stop else {})
            experiment, table = read_experiment(config, preset, over=merged(world, own))
            jobs += [Job(experiment, table, policy, seed, root) for seed in seeds]
        size = for_policy(jobs[0].experiment, policy)[0].cohort_size
        found.append(Candidate(policy, training, size, jobs))
    return found


def best_of(found: Sequence[Candidate], target: Target) -> dict[str, Candidate]:
    """Return the best candidate of each policy: the fewest missed runs, then the shortest mean time."""
    best: dict[str, Candidate] = {}
    everything = _runs_of(found)
    for candidate in found:
        other = best.get(candidate.policy)
        if other is None or candidate.score(target, everything) < other.score(target, everything):
            best[candidate.policy] = candidate
    return best


def _runs_of(found: Sequence[Candidate]) -> list[Run]:
    return [run for candidate in found for run in candidate.runs]


def started_from(found: Sequence[Candidate], target: Target) -> str:
    """Say what was tuned: the preset, seeds and limits, and the settings of each policy that were not tried."""
    first, seeds = found[0].jobs[0], dict.fromkeys(str(job.seed) for job in found[0].jobs)
    told = f"{first.experiment.name}, preset {first.experiment.preset}, to {target}, seeds {', '.join(seeds)}"
    settings: dict[str, list[str]] = {}  # in words, and which policies have them
    for candidate in found:
        training = for_policy(candidate.jobs[0].experiment, candidate.policy)[0]
        fixed = {name: value for name, value in asdict(training).items() if name not in candidate.training}
        policies = settings.setdefault(", ".join(f"{name} {value}" for name, value in fixed.items()), [])
        if candidate.policy not in policies:
            policies.append(candidate.policy)
    lines = [f"- {', '.join(policies)}: {said}" for said, policies in settings.items()]
    return "\n".join([f"{told}, for at most {limits(first.table['stop'])}. Settings that were not tried:\n", *lines])


def at_the_edge(found: Sequence[Candidate], target: Target) -> list[str]:
    """Say of each policy which of its best settings lie at the edge of what was tried, and what to try next.

    That is as far beyond the edge as its neighbour lies within, or a factor of three where that is further away. What
    was tried with server momentum is a grid of its own.
    """
    said, everything = [], _runs_of(found)
    for policy, best in best_of(found, target).items():
        own = [one for one in found if one.policy == policy and _has_momentum(one) == _has_momentum(best)]
        for name, value in best.training.items():
            if name == "server_momentum":  # its edges are 0 and 1
                continue
            tried = sorted({candidate.training[name] for candidate in own})
            lowest = best.score(target, everything)
            as_good = {one.training[name] for one in own if one.score(target, everything) == lowest}
            if len(as_good) > 1 or len(tried) == 1 or value not in (tried[0], tried[-1]):
                continue
            word, neighbour = ("smallest", tried[1]) if value == tried[0] else ("largest", tried[-2])
            ratio = min(max(value / neighbour, 1 / LARGEST_STEP), LARGEST_STEP)
            beyond = max(1, round(value * ratio)) if isinstance(value, int) else float(f"{value * ratio:.2g}")
            if beyond != value:
                said.append(f"{policy}: {name} {value:g} is the {word} that was tried; try {beyond:g} too")
    return said


def _has_momentum(candidate: Candidate) -> bool:
    return candidate.training.get("server_momentum", 0.0) > 0


def tuning_table(found: Sequence[Candidate], target: Target) -> str:
    """Return what each candidate took, the best of each policy marked."""
    best, everything = best_of(found, target), _runs_of(found)
    rows = [
        [
            candidate.policy,
            f"{candidate.training['step_size']:g}",
            f"{candidate.cohort_size}",
            seconds(candidate.times(target, everything)),
            "best" if best[candidate.policy] is candidate else "",
        ]
        for candidate in found
    ]
    return markdown(["policy", "step size", "K", f"seconds to {target}, with pilots", ""], rows)


def as_toml(best: dict[str, Candidate], preset: str) -> str:
    """Return the lines that make the choice part of a configuration."""
    place = "" if preset == DEFAULT_PRESET else f"presets.{preset}."
    return "\n".join(
        f"[{place}policy.{policy}.training]\n"
        f"step_size = {candidate.training['step_size']:g}\ncohort_size = {candidate.cohort_size}"
        for policy, candidate in best.items()
    )
