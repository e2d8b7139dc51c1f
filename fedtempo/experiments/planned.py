"""Runs that are asked for: each made once, where it is asked for, with all that whoever computes it needs."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from fedtempo.engine.records import FORMAT, RECORDS, Header
from fedtempo.engine.settings import TrainingSettings
from fedtempo.experiments.config import DataConfig, Experiment, for_policy
from fedtempo.experiments.decode import SettingsTable
from fedtempo.experiments.identity import file_digests, folder_name, settings_of
from fedtempo.experiments.problem import load_data
from fedtempo.experiments.provenance import made_with
from fedtempo.policies.registry import check_name
from fedtempo.simulator.simulation import RunSettings


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class PlannedRun:
    """One policy under one seed in an experiment, and the folder where its records are or will be."""

    experiment: Experiment  # whose problem it trains on
    settings: RunSettings
    header: Header
    folder: Path  # absolute: workers find it, wherever they were started

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


def plan_run(experiment: Experiment, policy: str, seed: int, folder: Path) -> PlannedRun:
    """Return one run into a folder of its own."""
    settings = run_settings(experiment, policy, seed)
    return _planned(experiment, settings, folder, experiment.table, file_digests(experiment))


def plan_runs(experiment: Experiment, policies: Sequence[str], seeds: Sequence[int], root: Path) -> list[PlannedRun]:
    """Return the runs of some policies over some seeds, each in a folder below ``root`` that is named by what it is.

    Their headers leave out other policies' options, which these runs do not depend on.
    """
    root, files, found = root.absolute(), file_digests(experiment), []
    for policy in policies:
        own = {name: table for name, table in experiment.policy.items() if name == policy}
        settings = run_settings(experiment, policy, seed=0)
        identity = settings_of(experiment, settings.training, settings.options)
        for seed in seeds:
            folder = root / folder_name(policy, seed, identity, files)
            one = replace(settings, seed=seed)
            found.append(_planned(experiment, one, folder, {**experiment.table, "policy": own}, files))
    return found


def run_settings(experiment: Experiment, policy: str, seed: int) -> RunSettings:
    """Return what an experiment has to say of one run."""
    training, options = for_policy(experiment, check_name(policy))
    return RunSettings(policy=policy, training=training, stop=experiment.stop, seed=seed, options=options)


def _planned(
    experiment: Experiment, settings: RunSettings, folder: Path, table: SettingsTable, files: SettingsTable
) -> PlannedRun:
    name, checksum, samples = _facts_of(experiment.data)
    header = Header(
        format=FORMAT,
        experiment=experiment.name,
        preset=experiment.preset,
        policy=str(settings.policy),
        seed=settings.seed,
        config=dict(table),
        files=dict(files),
        data=name,
        data_checksum=checksum,
        samples=samples,
        **made_with(),
    )
    return PlannedRun(experiment=experiment, settings=settings, header=header, folder=folder)


@cache
def _facts_of(config: DataConfig) -> tuple[str, str, list[int]]:
    """Return what headers hold of the data: their name, their checksum, and how many samples each client has."""
    data = load_data(config)
    return data.name, data.checksum(), data.sizes.tolist()
