"""Where runs go if nobody says otherwise: folders named after the experiment, and those of earlier versions."""

from pathlib import Path

from fedtempo.experiments.running.identity import file_digests, folder_name, safe_name, settings_of
from fedtempo.experiments.settings.config import DEFAULT_PRESET, Experiment, for_policy

RUNS = Path("runs")


def experiment_folder(root: Path, name: str, preset: str | None = DEFAULT_PRESET) -> Path:
    """Return the folder of an experiment's runs below a root: its name, with that of a preset other than the file's.

    Earlier versions had a folder for the preset in it; where there is one, it is used.
    """
    preset = preset or DEFAULT_PRESET
    former = root / name / preset
    return former if former.is_dir() else root / (name if preset == DEFAULT_PRESET else f"{name}-{preset}")


def run_folder(name: str, experiment: Experiment, policy: str, seed: int, *, changed: bool = False) -> Path:
    """Return the folder of one run of an experiment; ``changed``: its settings are not those of its file.

    Such a run has a folder by what it is, as in a grid. Others go on in theirs with a later limit.
    """
    home = experiment_folder(RUNS, name, experiment.preset)
    if changed:
        settings = settings_of(experiment, *for_policy(experiment, policy))
        return home / folder_name(policy, seed, settings, file_digests(experiment))
    name = safe_name(policy)
    former = home / name / f"seed{seed}"
    return former if former.is_dir() else home / f"{name}-seed{seed}"
