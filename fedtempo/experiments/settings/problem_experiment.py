"""Experiments on a problem that was made in Python: its settings come from keyword arguments, not from a file."""

from dataclasses import asdict, dataclass

from fedtempo.checks import InputError, near_miss
from fedtempo.engine.settings import StopSettings, TrainingSettings
from fedtempo.experiments.settings.config import Experiment
from fedtempo.experiments.settings.decode import SettingsTable, checked_table, decode
from fedtempo.fingerprint import name_of
from fedtempo.simulator.problem import Problem

SECTIONS = ("training", "stop", "policy")  # of its table that can be set
# Of training, where no cohort size is named; `fedtempo init` writes the same. Whoever names one has the paper's.
OUT_OF_THE_BOX: dict[str, object] = {
    "cohort_size": 5, "step_size": "auto", "schedule": "constant", "upload_bits": "auto",
    "server_average": "auto", "link": "shared", "duplicates": "physical", "evaluate_growth": 0.05,
}  # fmt: skip

EXCLUDES = {"evaluate_every": "evaluate_growth", "upload_top": "upload_bits"}  # settings that have one place


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class ProblemExperiment(Experiment):
    """An experiment on a problem of somebody's own."""

    problem: Problem


def problem_experiment(problem: Problem, settings: SettingsTable) -> ProblemExperiment:
    """Return the experiment with some settings: the tables training, stop and policy, as a file has them."""
    for section in settings:
        if section not in SECTIONS:
            raise InputError(section, "be a setting of a run", repr(section), near_miss(section, SECTIONS))
    asked = checked_table("training", settings.get("training", {}))
    training = decode(TrainingSettings, _usual(asked) | dict(asked), "training")
    stop = decode(StopSettings, settings.get("stop", {}), "stop")
    own = checked_table("policy", settings.get("policy", {}))
    policy = {name: checked_table(f"policy.{name}", options) for name, options in own.items()}
    sections = {"training": _given(training), "stop": _given(stop)}
    return ProblemExperiment(
        name=_short_name(problem.model),
        training=training,
        stop=stop,
        policy=policy,
        preset=None,
        table={"problem": problem.description, "times": {}, **sections, "policy": policy},
        problem=problem,
    )


def _usual(asked: SettingsTable) -> dict[str, object]:
    """Return what stands for settings that nobody names, but for what those that somebody names exclude."""
    if "cohort_size" in asked:
        return {}
    excluded = {other for name, other in EXCLUDES.items() if asked.get(name)}
    return {name: value for name, value in OUT_OF_THE_BOX.items() if name not in excluded}


def _short_name(model: object) -> str:
    """Return what pages call the experiment: its model, without where that is defined."""
    name = name_of(model).rpartition(":")[2].rpartition(".")[2]
    return "own model" if name == "<lambda>" else name


def _given(settings: TrainingSettings | StopSettings) -> dict[str, object]:
    return {name: value for name, value in asdict(settings).items() if value is not None}
