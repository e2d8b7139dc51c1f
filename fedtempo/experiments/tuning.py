"""Each policy at its own best step size and cohort size, chosen by one procedure on seeds that no comparison uses."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any

from fedtempo.experiments.comparison import Target, Times, times_to
from fedtempo.experiments.config import for_policy, read_experiment
from fedtempo.experiments.grid import Job
from fedtempo.experiments.records import RECORDS
from fedtempo.experiments.results import Run, read_run
from fedtempo.experiments.tables import markdown, seconds
from fedtempo.experiments.toml import merged

FIRST_SEED = 1000


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

    def times(self, target: Target) -> Times:
        """Return what its runs took, pilots counted; those that miss the target stand at all they were given."""
        (found,) = times_to(self.runs, target).values()
        return found.with_pilots()

    def score(self, target: Target) -> tuple[int, int, float]:
        """Return how bad it is: runs that missed the target, runs that diverged, then seconds."""
        times, diverged = self.times(target), sum(run.summary.get("end") == "diverged" for run in self.runs)
        return times.missed, diverged, times.mean


def candidates(
    config: Path,
    preset: str,
    policies: Sequence[str],
    *,
    choices: Mapping[str, Sequence[float]],
    seeds: Sequence[int],
    stop: dict[str, float],
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
    for candidate in found:
        other = best.get(candidate.policy)
        if other is None or candidate.score(target) < other.score(target):
            best[candidate.policy] = candidate
    return best


def tuning_table(found: Sequence[Candidate], target: Target) -> str:
    """Return what each candidate took, the best of each policy marked."""
    best = best_of(found, target)
    rows = [
        [
            candidate.policy,
            f"{candidate.training['step_size']:g}",
            f"{candidate.cohort_size}",
            seconds(candidate.times(target)),
            "best" if best[candidate.policy] is candidate else "",
        ]
        for candidate in found
    ]
    return markdown(["policy", "step size", "K", f"seconds to {target}, with pilots", ""], rows)


def as_toml(best: dict[str, Candidate], preset: str) -> str:
    """Return the lines that make the choice part of a configuration."""
    return "\n".join(
        f"[presets.{preset}.policy.{policy}.training]\n"
        f"step_size = {candidate.training['step_size']:g}\ncohort_size = {candidate.cohort_size}"
        for policy, candidate in best.items()
    )
