"""Experiments as TOML: data, model, times, channel, training, end, and what each policy needs."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from fedtempo.checks import InputError
from fedtempo.experiments.toml import from_table, merged, nearest
from fedtempo.simulator.settings import StopSettings, TrainingSettings
from fedtempo.simulator.times import TimesSpec

DEFAULT_PRESET = "paper"


@dataclass(frozen=True, kw_only=True, slots=True)
class DataConfig:
    """Which data, and how clients share them."""

    kind: Literal["synthetic", "mnist", "emnist"]
    clients: int  # N
    samples: int
    seed: int = 0  # of the draw and of the split
    alpha: float = 1.0  # synthetic: how much client models differ
    beta: float = 1.0  # synthetic: how much client inputs differ
    partition: Literal["classes", "dirichlet", "iid"] = "classes"
    classes: tuple[int, int] = (1, 10)  # of one client, at least and at most
    concentration: float = 0.5  # of the Dirichlet split


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelConfig:
    """Which model, and where it is trained."""

    kind: Literal["softmax", "lenet5"]
    device: str = "cpu"


@dataclass(frozen=True, kw_only=True, slots=True)
class TimesConfig:
    """Nominal times of the clients, in seconds; bandwidth in units of the whole link."""

    compute: TimesSpec | None = None  # τ
    compute_scores: str | None = None  # or from a JSON file of phones' benchmark scores ...
    compute_mean: float = 1.0  # ... with this mean over the phones
    upload: TimesSpec | None = None  # t/f_tot
    uplink_mbps: TimesSpec | None = None  # or rates, with which the model's bits are uploaded
    download: TimesSpec | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        """Check that each time comes from one place."""
        for one, other in (("compute", "compute_scores"), ("upload", "uplink_mbps")):
            if (getattr(self, one) is None) == (getattr(self, other) is None):
                raise InputError(f"either {one} or {other} must be given, got both or neither")


@dataclass(frozen=True, kw_only=True, slots=True)
class ChannelConfig:
    """How times change from round to round."""

    kind: Literal["static", "traces", "fading"] = "static"
    traces: tuple[str, ...] = ()  # files: Mahimahi .up, or .csv with time and mbps
    correlation: float = 0.9  # of the fading, from one round to the next
    snr_db: float = 10.0
    present_share: float = 1.0  # of the rounds in which a client is there
    absence_rounds: float | None = None  # mean length of an absence; None: each round anew
    seed: int = 0


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
    policy: Mapping[str, Any] = field(
        default_factory=dict
    )  # options of each policy; [policy.X.training] goes over training


def read_experiment(
    path: Path | str, preset: str = DEFAULT_PRESET, *, over: Mapping[str, Any] | None = None
) -> tuple[Experiment, dict[str, Any]]:
    """Return the experiment of a file under a preset, and the plain table that it was made from.

    The file itself is the preset ``paper``; each table [presets.X] lies over it. ``over`` lies over both, except that
    new targets replace the old ones.
    """
    try:
        table = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{path} must be a configuration file, got no such file; fedtempo init writes one") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} must be a readable text file, got: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{path} must be TOML, got: {error}") from None
    presets = {DEFAULT_PRESET: {}} | table.pop("presets", {})
    if preset not in presets:
        raise InputError(
            f"{path}: preset must be one of {', '.join(presets)}, got {preset!r}{nearest(preset, presets)}"
        )
    table = merged(table, presets[preset])
    if over:
        if {"target_loss", "target_accuracy"} & set(over.get("stop", {})):
            table["stop"] = {k: v for k, v in table["stop"].items() if not k.startswith("target_")}
        table = merged(table, over)
    try:
        return from_table(Experiment, table), table
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def for_policy(experiment: Experiment, policy: str) -> tuple[TrainingSettings, dict[str, Any]]:
    """Return the training settings that a policy trains with, and its own options."""
    options = dict(experiment.policy.get(policy, {}))
    over = options.pop("training", {})
    current = {name: getattr(experiment.training, name) for name in TrainingSettings.__dataclass_fields__}
    return from_table(TrainingSettings, merged(current, over), f"policy.{policy}.training"), options
