"""What an experiment trains and by whom: made here alone, for the ready app and for the testbed."""

from collections.abc import Mapping
from dataclasses import dataclass

from flwr.app import UserConfigValue

from fedtempo.data.federation import FederatedData
from fedtempo.engine.headers import as_table
from fedtempo.engine.settings import TrainingSettings
from fedtempo.experiments.running.planned import make_header
from fedtempo.experiments.running.problem import load_data, load_trainer, problem_of
from fedtempo.experiments.settings.config import FileExperiment, for_policy
from fedtempo.experiments.settings.decode import merged
from fedtempo.flower.app.run_config import RunConfig
from fedtempo.simulator.problem import Problem, model_bits


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class AppSetup:
    """A run of the ready app, on the server or on a node."""

    config: RunConfig
    experiment: FileExperiment
    training: TrainingSettings  # that the policy trains with
    options: Mapping[str, object]  # of the policy
    problem: Problem


def read_setup(run_config: Mapping[str, UserConfigValue]) -> AppSetup:
    """Return what a run config names."""
    config = RunConfig.read(run_config)
    experiment = config.read_experiment()
    training, options = for_policy(experiment, config.policy)
    problem = assemble(experiment, config.ballast)
    return AppSetup(config=config, experiment=experiment, training=training, options=options, problem=problem)


def data_of(run_config: Mapping[str, UserConfigValue]) -> FederatedData:
    """Return the data alone: a node describes itself without the libraries that train its model."""
    return load_data(RunConfig.read(run_config).read_experiment().data)


def assemble(experiment: FileExperiment, ballast: int = 0) -> Problem:
    """Return data, trainer and fleet of an experiment whose uploads carry so many bytes beside the model.

    Where upload times follow from rates, they are those of the whole upload.
    """
    return problem_of(experiment, model_bits=model_bits(load_trainer(experiment.model, experiment.data)) + 8 * ballast)


def header_of(setup: AppSetup) -> dict[str, object]:
    """Return the header of the records: the experiment with the end that the run config sets.

    On real nodes, who is drawn twice uploads once.
    """
    config = setup.config
    changes: dict[str, object] = {"stop": {"max_rounds": config.rounds}}
    if config.clock == "wall":
        changes["training"] = {"duplicates": "physical"}
    table = merged(setup.experiment.table, changes)
    return as_table(make_header(setup.experiment, config.policy, config.seed, table=table))
