"""Runs that are asked for: each made once, where it is asked for, with all that whoever computes it needs."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from fedtempo.checks import InputError
from fedtempo.engine.records import FORMAT, RECORDS, Header
from fedtempo.engine.settings import TrainingSettings
from fedtempo.experiments.running.identity import file_digests, folder_name, settings_of
from fedtempo.experiments.running.problem import in_data_table, load_data
from fedtempo.experiments.running.provenance import made_with
from fedtempo.experiments.settings.config import DataConfig, Experiment, for_policy
from fedtempo.experiments.settings.decode import SettingsTable
from fedtempo.policies.options import read_options
from fedtempo.policies.registry import check_name, traits
from fedtempo.simulator.simulation import RunSettings


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


def plan_run(experiment: Experiment, policy: str, seed: int, folder: Path) -> PlannedRun:
    """Return one run into a folder of its own."""
    settings, header = run_settings(experiment, policy, seed), make_header(experiment, policy, seed)
    return PlannedRun(experiment=experiment, settings=settings, header=header, folder=folder)


def plan_runs(experiment: Experiment, policies: Sequence[str], seeds: Sequence[int], root: Path) -> list[PlannedRun]:
    """Return the runs of some policies over some seeds, each in a folder below ``root`` that is named by what it is.

    Their headers leave out other policies' options, which these runs do not depend on.
    """
    root, files, found = root.absolute(), file_digests(experiment), []
    for policy in policies:
        own = {name: options for name, options in experiment.policy.items() if name == policy}
        table = {**experiment.table, "policy": own}
        settings = run_settings(experiment, policy, seed=0)
        identity = settings_of(experiment, settings.training, settings.options)
        for seed in seeds:
            run = PlannedRun(
                experiment=experiment,
                settings=replace(settings, seed=seed),
                header=make_header(experiment, policy, seed, table=table, files=files),
                folder=root / folder_name(policy, seed, identity, files),
            )
            found.append(run)
    return found


def run_settings(experiment: Experiment, policy: str, seed: int) -> RunSettings:
    """Return what an experiment has to say of one run; options that its policy does not take are refused."""
    training, options = for_policy(experiment, check_name(policy))
    if (kind := traits(policy).options) is not None:
        try:
            read_options(kind, options)
        except InputError as error:
            raise error.within(f"policy {policy}") from None
    return RunSettings(policy=policy, training=training, stop=experiment.stop, seed=seed, options=options)


def make_header(
    experiment: Experiment,
    policy: str,
    seed: int,
    *,
    table: SettingsTable | None = None,
    files: SettingsTable | None = None,
) -> Header:
    """Return what a reader must know to make a run again.

    ``table``: the configuration where it is not the experiment's; ``files``: what its files hold, where it is known.
    """
    try:
        name, checksum, samples = _facts_of(experiment.data)
    except InputError as error:
        raise in_data_table(error, experiment) from None
    return Header(
        format=FORMAT,
        experiment=experiment.name,
        preset=experiment.preset,
        policy=policy,
        seed=seed,
        config=dict(experiment.table if table is None else table),
        files=dict(file_digests(experiment) if files is None else files),
        data=name,
        data_checksum=checksum,
        samples=samples,
        **made_with(),
    )


@cache
def _facts_of(config: DataConfig) -> tuple[str, str, list[int]]:
    """Return what headers hold of the data: their name, their checksum, and how many samples each client has."""
    data = load_data(config)
    return data.name, data.checksum(), data.sizes.tolist()
