"""Runs that are asked for: each made once, where it is asked for, with all that whoever computes it needs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

import msgspec

from fedtempo.checks import InputError
from fedtempo.data.federation import FederatedData
from fedtempo.engine.records import FORMAT, RECORDS, Header
from fedtempo.engine.settings import TrainingSettings
from fedtempo.experiments.running.identity import file_digests, folder_name, policy_digests, settings_of
from fedtempo.experiments.running.problem import data_of, in_data_table, problem_of
from fedtempo.experiments.running.provenance import made_with
from fedtempo.experiments.settings.config import Experiment, check_accuracy, for_policy
from fedtempo.experiments.settings.decode import SettingsTable
from fedtempo.fingerprint import described
from fedtempo.policies.builtin import BUILT_IN
from fedtempo.policies.options import read_options
from fedtempo.policies.registry import PolicyLike, check_name, traits
from fedtempo.simulator.simulation import RunSettings, make_policy

# By name, or by what records are to call them.
Policies: TypeAlias = Sequence[str] | Mapping[str, PolicyLike]


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class PlannedRun:
    """One policy under one seed in an experiment, and the folder where its records are or will be."""

    experiment: Experiment  # whose problem it trains on
    settings: RunSettings
    header: Header
    folder: Path  # absolute in a grid: workers find it, wherever they were started

    @property
    def policy(self) -> str:
        """The name of its policy."""
        return self.header.policy

    @property
    def seed(self) -> int:
        """The seed of cohorts, batches and the initial model."""
        return self.header.seed

    @property
    def training(self) -> TrainingSettings:
        """How it trains."""
        return self.settings.training

    @property
    def records(self) -> Path:
        """The file of its records."""
        return self.folder / RECORDS


def plan_run(
    experiment: Experiment, name: str, seed: int, folder: Path, policy: PolicyLike | None = None
) -> PlannedRun:
    """Return one run into a folder of its own; ``policy``: what the name stands for, where it is not its own."""
    check_accuracy(experiment)
    settings = run_settings(experiment, name, seed, policy)
    header = make_header(experiment, name, seed, kind=_kind(name, settings.policy))
    return PlannedRun(experiment=experiment, settings=settings, header=header, folder=folder)


def plan_runs(experiment: Experiment, policies: Policies, seeds: Sequence[int], root: Path) -> list[PlannedRun]:
    """Return the runs of some policies over some seeds, each in a folder below ``root`` that is named by what it is.

    Their headers leave out other policies' options, which these runs do not depend on.
    """
    root, files, found = root.absolute(), file_digests(experiment), []
    for name, policy in by_name(policies).items():
        own = {other: options for other, options in experiment.policy.items() if other == name}
        table = {**experiment.table, "policy": own}
        settings = run_settings(experiment, name, 0, policy)
        identity = settings_of(experiment, settings.training, settings.options)
        kind = _kind(name, policy)
        header = make_header(experiment, name, 0, kind=kind, table=table, files=files)
        for seed in seeds:
            run = PlannedRun(
                experiment=experiment,
                settings=replace(settings, seed=seed),
                header=msgspec.structs.replace(header, seed=seed),
                folder=root / folder_name(name, seed, identity, files, kind),
            )
            found.append(run)
    return found


def until(run: PlannedRun, max_time: float) -> PlannedRun:
    """Return a run for so many simulated seconds, in the same folder: asked for with more, it goes on from there."""
    stop = {**run.header.config.get("stop", {}), "max_time": max_time}
    header = msgspec.structs.replace(run.header, config=run.header.config | {"stop": stop})
    settings = replace(run.settings, stop=replace(run.settings.stop, max_time=max_time))
    return replace(run, settings=settings, header=header)


def _kind(name: str, policy: PolicyLike) -> str:
    """Return what a policy's name stands for, "" where it is its own."""
    return "" if policy == name else described(policy)


def by_name(policies: Policies) -> Mapping[str, PolicyLike]:
    """Return policies by the names that records call them."""
    return policies if isinstance(policies, Mapping) else {name: name for name in policies}


def run_settings(experiment: Experiment, name: str, seed: int, policy: PolicyLike | None = None) -> RunSettings:
    """Return what an experiment has to say of one run; options that its policy does not take are refused.

    ``policy``: what the name stands for, where it is not a policy's own.
    """
    made_of = name if policy is None else policy
    training, options = for_policy(experiment, name)
    if isinstance(made_of, str) and (kind := traits(check_name(made_of)).options) is not None:
        try:
            read_options(kind, options)
        except InputError as error:
            raise error.within(f"policy {name}") from None
    return RunSettings(policy=made_of, training=training, stop=experiment.stop, seed=seed, options=options)


def check_policies(experiment: Experiment, policies: Policies) -> None:
    """Make the policies that are somebody's own once: what is wrong with one is said before anything runs."""
    for name, policy in by_name(policies).items():
        if policy not in BUILT_IN:
            try:
                make_policy(problem_of(experiment), run_settings(experiment, name, 0, policy))
            except InputError as error:
                raise error if isinstance(policy, str) else error.within(f"policy {name}") from error


def make_header(
    experiment: Experiment,
    policy: str,
    seed: int,
    *,
    kind: str = "",
    table: SettingsTable | None = None,
    files: SettingsTable | None = None,
) -> Header:
    """Return what a reader must know to make a run again.

    ``kind``: what the policy's name stands for, where it is not its own.
    ``table``: the configuration where it is not the experiment's; ``files``: what its files hold, where it is known.
    """
    try:
        name, checksum, samples = _facts_of(data_of(experiment))
    except InputError as error:
        raise in_data_table(error, experiment) from None
    found = file_digests(experiment) if files is None else files
    if own := policy_digests(kind or policy):
        found = {**found, "policy": own}
    return Header(
        format=FORMAT,
        experiment=experiment.name,
        preset=experiment.preset,
        policy=policy,
        seed=seed,
        kind=kind,
        config=dict(experiment.table if table is None else table),
        files=dict(found),
        data=name,
        data_checksum=checksum,
        samples=samples,
        **made_with(),
    )


def _facts_of(data: FederatedData) -> tuple[str, str, list[int]]:
    """Return what headers hold of the data: their name, their checksum, and how many samples each client has."""
    return data.name, data.checksum(), data.sizes.tolist()
