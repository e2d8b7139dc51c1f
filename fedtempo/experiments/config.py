"""Experiments as TOML: data, model, times, channel, training, end, and what each policy needs."""

import hashlib
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal

from fedtempo.checks import InputError, check_seed
from fedtempo.engine.settings import StopSettings, TrainingSettings
from fedtempo.experiments.toml import as_table, from_table, merged, nearest
from fedtempo.policies.registry import available_policies
from fedtempo.simulator.times import TimesSpec
from fedtempo.simulator.traces import naming

DEFAULT_PRESET = "paper"
LATER_SETTINGS = ("evaluate_growth",)  # of training
MOST_DRAWS = 10_000_000  # clients of one round: more are a slip of the pen, and too many for the memory


@dataclass(frozen=True, kw_only=True, slots=True)
class DataConfig:
    """Which data, and how clients share them."""

    kind: Literal["synthetic", "mnist", "emnist"]
    clients: int  # N
    samples: int
    seed: int = 0  # of the draw and of the split
    alpha: float = 1.0  # synthetic: moves all logits of a client alike, so no label depends on it (docs/data.md)
    beta: float = 1.0  # synthetic: how much client inputs differ
    partition: Literal["classes", "dirichlet", "iid"] = "classes"
    classes: tuple[int, int] = (1, 10)  # of one client, at least and at most
    concentration: float = 0.5  # of the Dirichlet split
    letters: int = 10  # EMNIST: how many lower-case letters, from a on
    standardise: bool = False  # images: mean 0 and deviation 1 in place of 0 to 1

    def __post_init__(self) -> None:
        """Check what the data's own makers leave to others."""
        check_seed("seed", self.seed)


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelConfig:
    """Which model, and where it is trained."""

    kind: Literal["softmax", "lenet5"]
    device: str = "cpu"  # lenet5: any that torch has

    def __post_init__(self) -> None:
        """Check that the model can be trained there."""
        if self.kind == "softmax" and self.device != "cpu":
            raise InputError(name="device", rule="be cpu for softmax", got=repr(self.device), remedy="leave it out")


@dataclass(frozen=True, kw_only=True, slots=True)
class TimesConfig:
    """Nominal times of the clients, in seconds; bandwidth in units of the whole link."""

    compute: TimesSpec | None = None  # τ
    compute_scores: str | None = None  # or from a JSON file of phones' benchmark scores ...
    compute_mean: float = 1.0  # ... with this mean over the phones
    upload: TimesSpec | None = None  # t/f_tot; neither this nor the next where the channel follows traces
    uplink_mbps: TimesSpec | None = None  # or rates, with which the model's bits are uploaded
    download: TimesSpec | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        """Check that compute times come from one place."""
        if (self.compute is None) == (self.compute_scores is None):
            raise InputError(name="either compute or compute_scores", rule="be given", got="both or neither")
        check_seed("seed", self.seed)


@dataclass(frozen=True, kw_only=True, slots=True)
class ChannelConfig:
    """How times change from round to round."""

    kind: Literal["static", "traces", "fading"] = "static"
    traces: tuple[str, ...] = ()  # files: Mahimahi .up, or .csv with time and mbps; upload times follow from them
    correlation: float = 0.9  # of the fading, from one round to the next
    snr_db: float = 10.0
    present_share: float = 1.0  # of the rounds in which a client is there
    absence_rounds: float | None = None  # mean length of an absence; None: each round anew
    told: bool = True  # policies hear the times of a round before it; false: they have nominal and measured ones
    seed: int = 0

    def __post_init__(self) -> None:
        """Check what the channels leave to others."""
        check_seed("seed", self.seed)


@dataclass(frozen=True, kw_only=True, slots=True)
class Experiment:
    """One experiment under one preset; policies and seeds are chosen when it is run."""

    name: str
    data: DataConfig
    model: ModelConfig
    times: TimesConfig
    training: TrainingSettings
    stop: StopSettings
    channel: ChannelConfig = field(default_factory=ChannelConfig)
    # Options of each policy; [policy.X.training] goes over training.
    policy: Mapping[str, Any] = field(default_factory=dict)
    preset: str = DEFAULT_PRESET  # that made it; no setting of the file

    def __post_init__(self) -> None:
        """Check that upload times come from one place."""
        given = [name for name in ("upload", "uplink_mbps") if getattr(self.times, name) is not None]
        if self.channel.kind == "traces" and given:
            raise InputError(
                name=f"times.{given[0]}",
                rule="not be given where channel.kind is traces",
                got="both",
                remedy="leave it out: upload times follow from the traces",
            )
        if self.channel.kind != "traces" and len(given) != 1:
            raise InputError(name="times: either upload or uplink_mbps", rule="be given", got="both or neither")


def read_experiment(
    path: Path | str, preset: str = DEFAULT_PRESET, *, over: Mapping[str, Any] | None = None
) -> tuple[Experiment, dict[str, Any]]:
    """Return the experiment of a file under a preset, and the plain table that it was made from.

    The file itself is the preset ``paper``; each table [presets.X] lies over it. ``over`` lies over both, except that
    new targets replace all old ones, and new limits all old limits. Files that the experiment names are looked for
    beside its own file first, then where the command was given; the table keeps them as they were written.
    """
    table = _read_table(path)
    try:
        table = _under_preset(table, preset)
        if over:
            stop = as_table("stop", table.get("stop", {}))
            for kind in ("target_", "max_"):
                if any(name.startswith(kind) for name in over.get("stop", {})):
                    stop = {name: value for name, value in stop.items() if not name.startswith(kind)}
            table = merged(table | {"stop": stop}, over)
        experiment = make_experiment(table, preset)
    except InputError as error:
        raise error.within(path) from None
    return _with_paths(experiment, Path(path).parent), table


def has_preset(path: Path | str, preset: str) -> bool:
    """Return whether a file has a preset."""
    return preset in as_table("presets", _read_table(path).get("presets", {}))


def make_experiment(table: Mapping[str, Any], preset: str = DEFAULT_PRESET) -> Experiment:
    """Return the experiment of a plain table, as ``read_experiment`` returns it."""
    experiment = from_table(Experiment, table, preset=preset)
    known = available_policies()
    for name in experiment.policy:
        if name not in known:
            raise InputError(name=f"policy.{name}", rule="be a known policy", got=f"{name!r}{nearest(name, known)}")
        for_policy(experiment, name)
    return experiment


def for_policy(experiment: Experiment, policy: str) -> tuple[TrainingSettings, dict[str, Any]]:
    """Return the training settings that a policy trains with, and its own options."""
    options = dict(as_table(f"policy.{policy}", experiment.policy.get(policy, {})))
    over = as_table(f"policy.{policy}.training", options.pop("training", {}))
    current = {name: getattr(experiment.training, name) for name in TrainingSettings.__dataclass_fields__}
    training = from_table(TrainingSettings, merged(current, over), f"policy.{policy}.training")
    if training.cohort_size > MOST_DRAWS:
        raise InputError(
            name="training.cohort_size", rule=f"be at most {MOST_DRAWS:,}", got=f"{training.cohort_size:,}"
        )
    return training, options


def settings_of(experiment: Experiment, policy: str) -> dict[str, Any]:
    """Return all that the runs of a policy depend on as a plain table: defaults filled in, names left out.

    Settings that came later stand there only if they are used, so that earlier runs are still found by this table.
    """
    training, options = for_policy(experiment, policy)
    settings = {name: value for name, value in asdict(training).items() if value or name not in LATER_SETTINGS}
    return asdict(experiment) | {"training": settings, "policy": options, "name": None, "preset": None}


def files_of(experiment: Experiment) -> dict[str, Any]:
    """Return a table to lie over the settings, in which what a file holds stands for its name; {} if it names none."""
    found: dict[str, Any] = {}
    if experiment.times.compute_scores is not None:
        found["times"] = {"compute_scores": digest_of(experiment.times.compute_scores)}
    if experiment.channel.kind == "traces":
        found["channel"] = {"traces": [digest_of(name) for name in experiment.channel.traces]}
    return found


def _read_table(path: Path | str) -> dict[str, Any]:
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(
            name=path, rule="be a configuration file", got="no such file", remedy="fedtempo init writes one"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(name=path, rule="be a readable text file", got=f"{error}") from None
    except tomllib.TOMLDecodeError as error:
        raise InputError(name=path, rule="be TOML", got=f"{error}") from None


def _under_preset(table: dict[str, Any], preset: str) -> dict[str, Any]:
    presets = {DEFAULT_PRESET: {}} | dict(as_table("presets", table.pop("presets", {})))
    if preset not in presets:
        raise InputError(name="preset", rule="be a known preset", got=f"{preset!r}{nearest(preset, presets)}")
    return merged(table, as_table(f"presets.{preset}", presets[preset]))


def _with_paths(experiment: Experiment, folder: Path) -> Experiment:
    def beside(name: str) -> str:
        path = folder / name if (folder / name).exists() else Path(name)
        return str(path.absolute()) if path.exists() else name  # found from other folders too, where workers may be

    times, channel = experiment.times, experiment.channel
    if times.compute_scores is not None:
        times = replace(times, compute_scores=beside(times.compute_scores))
    return replace(experiment, times=times, channel=replace(channel, traces=tuple(map(beside, channel.traces))))


def digest_of(name: str) -> str:
    """Return what a file holds, in short."""
    path = Path(name)
    with naming(path):
        status = path.stat()
        return _digest_at(path.absolute(), status.st_mtime_ns, status.st_size)


@cache
def _digest_at(path: Path, changed: int, size: int) -> str:
    """Return the same, read once: a grid asks for each run, about many files."""
    return hashlib.sha256(path.read_bytes()).hexdigest()
