"""What makes two runs the same: settings with defaults filled in, and the contents of the files that they name."""

import hashlib
import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, fields
from functools import cache
from pathlib import Path

from fedtempo.engine import headers
from fedtempo.engine.records import Header
from fedtempo.engine.settings import TrainingSettings
from fedtempo.experiments.settings.config import (
    RENAMED,
    DataConfig,
    Experiment,
    FileExperiment,
    ModelConfig,
    for_policy,
    make_experiment,
)
from fedtempo.experiments.settings.decode import SettingsTable, checked_table, merged
from fedtempo.experiments.settings.problem_experiment import ProblemExperiment
from fedtempo.files import read_errors
from fedtempo.own_code import is_reference, source_files
from fedtempo.policies.registry import PolicyLike, source_files_of

HASH_LENGTH = 10
STEP_SETTINGS = ("clip_norm", "local_schedule", "proximal")  # of training, which came later
SERVER_SETTINGS = (
    "upload_bits", "upload_top", "error_feedback", "server_average", "server_optimiser", "server_step_size",
    "local_direction", "local_correction",
)  # fmt: skip
LATER_SETTINGS = ("evaluate_growth", "slow_share", *STEP_SETTINGS, *SERVER_SETTINGS)
LATER_OF_MODEL = ("loss", "metric", "optimiser")
LATER_OF_DATA = ("split", "file", "label", "inputs", "client", "labels_are", "test", "name", "options")


def settings_of(experiment: Experiment, training: TrainingSettings, options: SettingsTable) -> dict[str, object]:
    """Return all that the runs of one policy depend on as a plain table: defaults filled in, names left out.

    Settings that came later stand there only if they are used, so that earlier runs are still found by this table.
    """
    if isinstance(experiment, ProblemExperiment):
        sections = {"problem": experiment.problem.description, "stop": asdict(experiment.stop)}
    else:
        sections = {name: asdict(getattr(experiment, name)) for name in ("data", "model", "times", "channel", "stop")}
        for section, later in (("data", LATER_OF_DATA), ("model", LATER_OF_MODEL)):
            settings = sections[section].items()
            sections[section] = {name: value for name, value in settings if value or name not in later}
    used = used_settings(training, LATER_SETTINGS)
    return {"name": None, "preset": None, **sections, "training": used, "policy": dict(options)}


def used_settings(training: TrainingSettings, later: Collection[str]) -> dict[str, object]:
    """Return settings of training as a plain table, without later ones that are not used."""
    unused = {field.name: field.default for field in fields(TrainingSettings) if field.name in later}
    return {name: value for name, value in asdict(training).items() if name not in unused or value != unused[name]}


def file_digests(experiment: Experiment) -> dict[str, dict[str, object]]:
    """Return, in the shape of the settings, what each file holds that they name; {} if they name none."""
    found: dict[str, dict[str, object]] = {}
    if not isinstance(experiment, FileExperiment):
        return found
    if own := data_digests(experiment.data):
        found["data"] = own
    if learning := model_digests(experiment.model):
        found["model"] = learning
    if experiment.times.compute_scores is not None:
        found["times"] = {"compute_scores": digest_of(experiment.times.compute_scores)}
    if experiment.channel.kind == "traces":
        found["channel"] = {"traces": [digest_of(name) for name in experiment.channel.traces]}
    return found


def data_digests(config: DataConfig) -> dict[str, object]:
    """Return what the data's file holds, and the module of a function that makes them; {} where there is neither."""
    found: dict[str, object] = {}
    if config.file is not None:
        found["file"] = digest_of(config.file)
    return found | _code_digests({"kind": config.kind})


def model_digests(config: ModelConfig) -> dict[str, object]:
    """Return what the modules hold that define a model of somebody's own; {} where there is none."""
    return _code_digests({name: getattr(config, name) or "" for name in ("kind", *LATER_OF_MODEL)})


def _code_digests(references: Mapping[str, str]) -> dict[str, object]:
    sources = {name: source_files(one) for name, one in references.items() if is_reference(one)}
    return {
        name: f"{_digest_of_all(files)}:{references[name].rpartition(':')[2]}"
        for name, files in sources.items()
        if files
    }


def policy_digests(policy: PolicyLike) -> dict[str, object]:
    """Return what the modules hold that define a policy of somebody's own; {} for others."""
    files = source_files_of(policy) if isinstance(policy, str) else []
    return {"code": _digest_of_all(files)} if files else {}


def data_contents(config: DataConfig) -> tuple[object, ...]:
    """Return the same without names: data that were read stay what they are only as long as these do."""
    return tuple(data_digests(config).values())


def safe_name(policy: str) -> str:
    """Return what a policy is called in the names of folders, whatever somebody calls it."""
    return re.sub(r"[^\w.+-]", "_", policy)


def folder_name(policy: str, seed: int, settings: SettingsTable, files: SettingsTable, kind: str = "") -> str:
    """Return the name of a run's folder: of other settings another, not of another policy's options.

    Files count by what they hold. So does the file of a policy that another package brings: changed, it runs anew.
    ``kind``: what the policy's name stands for, where it is not its own.
    """
    own = [str(one) for one in policy_digests(kind or policy).values()] + ([kind] if kind else [])
    identity = [_with_first_names(merged(settings, files)), policy, seed, *own]
    key = json.dumps(identity, sort_keys=True, default=str)
    return f"{safe_name(policy)}-seed{seed}-{hashlib.sha256(key.encode()).hexdigest()[:HASH_LENGTH]}"


def _with_first_names(settings: SettingsTable) -> dict[str, object]:
    """Return settings under the names that they had first: folders that were named by them are still found."""
    found = dict(settings)
    for section, names in RENAMED.items():
        first, settings = {new: old for old, new in names.items()}, checked_table(section, found.get(section, {}))
        if settings:
            found[section] = {first.get(name, name): value for name, value in settings.items()}
    return found


def canonical(header: Header) -> dict[str, object]:
    """Return a header whose configuration is that of all headers of the same run, however its file was written."""
    experiment = make_experiment(header.config)
    table = headers.as_table(header)
    table.pop("files", None)
    settings = settings_of(experiment, *for_policy(experiment, header.policy))
    return table | {"config": merged(settings, header.files)}


def _digest_of_all(files: Sequence[Path]) -> str:
    """Return what files hold, in short; of one file that file's own digest."""
    digests = [digest_of(str(path)) for path in files]
    return digests[0] if len(digests) == 1 else hashlib.sha256("".join(digests).encode()).hexdigest()


def digest_of(name: str) -> str:
    """Return what a file holds, in short."""
    path = Path(name)
    with read_errors(path):
        status = path.stat()
        return _digest_at(path.absolute(), status.st_mtime_ns, status.st_size)


@cache
def _digest_at(path: Path, changed: int, size: int) -> str:
    """Return the same, read once: a grid asks for each run, about many files."""
    return hashlib.sha256(path.read_bytes()).hexdigest()
