"""What a call asks for: an experiment, policies by name, seeds, who computes, and where records go."""

import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

from fedtempo.checks import InputError, check_count, check_seed
from fedtempo.experiments.running.display import somebody_looks
from fedtempo.experiments.running.grid import Execution, GridInterrupted, unwatched
from fedtempo.experiments.running.progress import grid_progress
from fedtempo.experiments.settings.assignments import Assignment
from fedtempo.experiments.settings.changes import changed
from fedtempo.experiments.settings.config import DEFAULT_PRESET, Experiment
from fedtempo.experiments.settings.config_file import load_experiment
from fedtempo.experiments.settings.decode import SettingsTable
from fedtempo.experiments.settings.problem_experiment import problem_experiment
from fedtempo.fingerprint import name_of
from fedtempo.policies.builtin import BUILT_IN
from fedtempo.policies.foreign import UserPolicy
from fedtempo.policies.registry import PolicyLike
from fedtempo.simulator.problem import Problem

# Names, functions and classes in a list, or by the names that results call them, also in pairs with options.
PolicyChoice: TypeAlias = PolicyLike | tuple[PolicyLike, Mapping[str, object]]
PolicyChoices: TypeAlias = str | Sequence[PolicyChoice] | Mapping[str, PolicyChoice]

MAX_ROUNDS = 2000  # where a call names no limit


def asked_for(
    problem: Problem | Path | str,
    policies: PolicyChoices,
    preset: str,
    training: SettingsTable,
    ends: Mapping[str, float | None],
) -> tuple[Experiment, dict[str, PolicyLike]]:
    """Return the experiment that a call asks for, and its policies by name."""
    names, options = chosen(policies)
    experiment = experiment_of(problem, preset, training, stop_table(problem, ends), options)
    return experiment, names


def experiment_of(
    problem: Problem | Path | str, preset: str, training: SettingsTable, stop: SettingsTable, options: SettingsTable
) -> Experiment:
    """Return what is asked for: of a problem, or of a file under a preset, with settings and options over it.

    Settings of training go over those that policies have in the file too, as they do on the command line.
    """
    if isinstance(problem, Problem):
        if preset != DEFAULT_PRESET:
            raise InputError("preset", "be that of a configuration", repr(preset), "a Problem has none")
        experiment: Experiment = problem_experiment(problem, {"training": training, "stop": stop})
    elif isinstance(problem, (str, Path)):
        given = [Assignment(("training", name), value) for name, value in training.items()]
        experiment = load_experiment(problem, preset, over={"stop": stop}, assignments=given)
    else:
        rule = "be a fedtempo.Problem or the path of a configuration"
        raise InputError(name="problem", rule=rule, got=type(problem).__name__)
    return changed(experiment, {"policy": options}) if options else experiment


def stop_table(problem: object, ends: Mapping[str, float | None]) -> dict[str, float]:
    """Return the ends that a call names; a problem of Python's own has a limit in any case."""
    found = {name: value for name, value in ends.items() if value is not None}
    if isinstance(problem, Problem) and not {"max_rounds", "max_time"} & set(found):
        found["max_rounds"] = MAX_ROUNDS
    return found


def chosen(policies: PolicyChoices) -> tuple[dict[str, PolicyLike], dict[str, dict[str, object]]]:
    """Return policies by name, and the options of those that were given some."""
    found: dict[str, PolicyLike] = {}
    options: dict[str, dict[str, object]] = {}
    for name, choice in _pairs(policies):
        policy, own = choice if isinstance(choice, tuple) else (choice, {})
        if not isinstance(name, str) or not name.strip():
            raise InputError("policies", "have text as names", repr(name))
        if name in found:
            remedy = "give a dict from names to policies"
            raise InputError("policies", "have different names", repr(name), remedy)
        _check_policy(name, policy)
        found[name] = policy
        if own:
            options[name] = dict(own)
    if not found:
        raise InputError(name="policies", rule="name at least one", got="none")
    return found, options


def _pairs(policies: PolicyChoices) -> list[tuple[str, PolicyChoice]]:
    if isinstance(policies, Mapping):
        pairs = list(policies.items())
    else:
        listed = [policies] if isinstance(policies, str) or callable(policies) else policies
        if not isinstance(listed, Sequence):
            raise InputError("policies", "be a list, or a dict from names to policies", repr(policies))
        pairs = [(_own_name(one[0] if isinstance(one, tuple) and one else one), one) for one in listed]
    for name, choice in pairs:
        if isinstance(choice, tuple) and not (len(choice) == 2 and isinstance(choice[1], Mapping)):
            raise InputError(f"policies: {name}", "be a policy, or a pair of one and its options", repr(choice))
    return pairs


def _own_name(policy: PolicyLike) -> str:
    return policy if isinstance(policy, str) else name_of(policy).rpartition(":")[2]


def _check_policy(name: str, policy: PolicyLike) -> None:
    """Refuse what can be no policy of several runs."""
    if name in BUILT_IN and policy != name:
        got = f"{name!r} for {name_of(policy)}"
        raise InputError("policies", "not give a built-in policy's name to another", got, "choose another name")
    if isinstance(policy, UserPolicy) and not isinstance(policy, type):
        got = f"a {type(policy).__name__} that is there already"
        raise InputError(f"policies: {name}", "be made anew for each run", got, "give its class")
    if not isinstance(policy, str) and not callable(policy):
        raise InputError(f"policies: {name}", "be a name, a class or a function from fleet to q", repr(policy))


def seeds_of(seeds: int | Sequence[int], first_seed: int) -> Sequence[int]:
    """Return so many seeds from the first on, or those that are given."""
    if not isinstance(seeds, Iterable):
        return range(check_seed("first_seed", first_seed), first_seed + check_count("seeds", seeds))
    found = [check_seed("seeds", seed) for seed in seeds]
    if not found or len(set(found)) < len(found):
        raise InputError(name="seeds", rule="be a number of seeds, or different seeds", got=repr(seeds))
    return found


@contextmanager
def computing(out: Path | str | None, jobs: int | None, progress: bool | None) -> Iterator[tuple[Path, Execution]]:
    """Yield the folder of the records, for as long as the call lasts where none is named, and who computes runs.

    ``progress``: whether to show how runs get on; None: where somebody is likely to look, in a terminal or a notebook.
    """
    if jobs is not None and (isinstance(jobs, bool) or not isinstance(jobs, int)):
        raise InputError(name="jobs", rule="be a number of processes, or -1 for one to each core", got=repr(jobs))
    if out is not None and not isinstance(out, (str, Path)):
        raise InputError(name="out", rule="be the path of a folder", got=repr(out))
    shown = somebody_looks() if progress is None else progress
    execution = Execution(jobs=-1 if jobs is None else jobs, watch=grid_progress if shown else unwatched)
    if out is not None:
        if Path(out).exists() and not Path(out).is_dir():
            raise InputError(name="out", rule="be a folder", got=f"{out}, a file")
        try:
            yield Path(out), execution
        except GridInterrupted as stop:
            print(f"fedtempo: interrupted; {stop}; the same call goes on with the others", file=sys.stderr)
            raise stop from None
        return
    with tempfile.TemporaryDirectory(prefix="fedtempo-") as folder:
        try:
            yield Path(folder), execution
        except GridInterrupted as stop:
            print("fedtempo: nothing of it was kept; with out= the same call goes on", file=sys.stderr)
            raise stop from None
