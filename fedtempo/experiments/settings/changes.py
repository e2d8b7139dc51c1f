"""Other settings over those of an experiment, whether it came from a file or from Python."""

from fedtempo.experiments.settings.assignments import Assignments, lay_over
from fedtempo.experiments.settings.config import Experiment
from fedtempo.experiments.settings.config_file import changed_file_experiment, with_changes
from fedtempo.experiments.settings.decode import SettingsTable
from fedtempo.experiments.settings.problem_experiment import SECTIONS, ProblemExperiment, problem_experiment


def changed(experiment: Experiment, over: SettingsTable, assignments: Assignments = ()) -> Experiment:
    """Return an experiment with settings over its own; new targets replace all old ones, new limits all old limits.

    ``assignments``: single settings over all else.
    """
    if not isinstance(experiment, ProblemExperiment):
        return changed_file_experiment(experiment, over, assignments)
    own = {name: experiment.table[name] for name in SECTIONS if name in experiment.table}
    return problem_experiment(experiment.problem, lay_over(with_changes(own, over), assignments))
