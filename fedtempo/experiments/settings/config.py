"""What an experiment is: data, model, times, channel, training, end, and what each policy needs."""

from collections.abc import Iterable, Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import msgspec

from fedtempo.checks import InputError, check_seed, near_miss
from fedtempo.data.array_types import LabelsAre
from fedtempo.data.partition import CLASSES, CONCENTRATION, SplitName
from fedtempo.engine.settings import StopSettings, TrainingSettings
from fedtempo.experiments.settings.decode import SettingsTable, checked_table, decode, merged
from fedtempo.own_code import is_reference
from fedtempo.policies.registry import available_policies
from fedtempo.simulator.times import TimesSpec

DEFAULT_PRESET = "paper"
MOST_DRAWN = 10_000_000  # clients of one round: more are a slip of the pen, and too many for the memory
RENAMED = {"channel": {"told": "times_known"}}  # settings by the names that they had until 0.1, which are still taken


SETS = ("synthetic", "mnist", "emnist", "fashion-mnist", "cifar10", "shakespeare")  # that need no file of one's own
COLUMNS = ("label", "inputs", "client")
KIND_WORDS = f"one of {', '.join(SETS)}, arrays, or a function as package.module:function"
DataKind: TypeAlias = Annotated[
    str, msgspec.Meta(pattern=f"^({'|'.join(SETS)}|arrays|.+:[A-Za-z_][A-Za-z0-9_]*)$", description=KIND_WORDS)
]
MODELS = ("softmax", "lenet5", "cnn", "lstm")
MODEL_WORDS = f"one of {', '.join(MODELS)}, or a function that makes a torch module, as package.module:function"
ModelKind: TypeAlias = Annotated[
    str, msgspec.Meta(pattern=f"^({'|'.join(MODELS)}|.+:[A-Za-z_][A-Za-z0-9_]*)$", description=MODEL_WORDS)
]


@dataclass(frozen=True, kw_only=True, slots=True)
class DataConfig:
    """Which data, and how clients share them."""

    kind: DataKind
    clients: int | None = None  # N; None: as many as the owners that a file names, or as a function makes
    samples: int | None = None  # None: all that there are
    seed: int = 0  # of the draw and of the split
    alpha: float = 1.0  # synthetic: moves all logits of a client alike, so no label depends on it (docs/data.md)
    beta: float = 1.0  # synthetic: how much client inputs differ
    partition: SplitName | None = None  # None: classes, or for arrays the owners that a file names, or dirichlet
    classes: tuple[int, int] = CLASSES  # of one client, at least and at most
    concentration: float = CONCENTRATION  # of the Dirichlet split
    letters: int = 10  # EMNIST: how many lower-case letters, from a on
    standardise: bool = False  # images: mean 0 and deviation 1 in place of 0 to 1
    split: SplitName | None = None  # another name of partition, under which it is kept
    file: str | None = None  # arrays: .npz or .parquet
    label: str | tuple[str, ...] | None = None  # columns of .parquet
    inputs: str | tuple[str, ...] | None = None
    client: str | None = None
    labels_are: LabelsAre | None = None  # arrays: None: one whole number or text for each sample is its class
    test: float | None = None  # arrays: the share that is held out; None: the file's own, or a tenth
    name: str | None = None  # arrays: said next to every figure; None: that of the file or of the function
    # Of a function: its arguments.
    options: Mapping[str, object] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        """Check what the data's own makers leave to others."""
        check_seed("seed", self.seed)
        if self.split is not None:
            if self.partition is not None:
                raise InputError("split", "not be given beside partition", "both", "they are the same setting")
            object.__setattr__(self, "partition", self.split)
            object.__setattr__(self, "split", None)
        if self.kind in SETS:
            self._check_set()
        elif self.kind == "arrays":
            self._check_left_out(("samples", "alpha", "beta", "letters", "standardise", "options"))
            if self.file is None:
                raise InputError("file", "be given for arrays", "nothing", "name an .npz or .parquet file")
        else:
            self._check_left_out(("samples", "alpha", "beta", "letters", "standardise", "file", *COLUMNS))

    def is_usual(self, name: str) -> bool:
        """Return whether a setting is what it is where nobody gives it."""
        usual = {one.name: {} if one.default is MISSING else one.default for one in fields(self)}
        return bool(getattr(self, name) == usual[name])

    def _check_set(self) -> None:
        for name in ("clients", "samples"):
            if getattr(self, name) is None:
                raise InputError(name, "be given", "nothing")
        self._check_left_out(("file", *COLUMNS, "labels_are", "test", "name", "options"))
        if self.partition is None:
            object.__setattr__(self, "partition", "classes")

    def _check_left_out(self, names: Iterable[str]) -> None:
        for name in names:
            if not self.is_usual(name):
                kind = "a function" if ":" in self.kind else self.kind
                raise InputError(name, f"be left out for {kind}", f"{getattr(self, name)!r:.60}")


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelConfig:
    """Which model, where it is trained, and how a network learns (docs/models.md)."""

    kind: ModelKind
    device: str = "cpu"  # but for softmax: any that torch has
    loss: str | None = None  # package.module:function; None: cross-entropy
    metric: str | None = None  # likewise; None: accuracy
    optimiser: str | None = None  # likewise, or a name in torch.optim; None: plain SGD

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
    present_share: float = 1.0  # of the rounds in which a client is available
    absence_rounds: float | None = None  # mean length of an absence; None: each round anew
    times_known: bool = True  # to policies before each round; false: they have nominal and measured ones
    seed: int = 0

    def __post_init__(self) -> None:
        """Check what the channels leave to others."""
        check_seed("seed", self.seed)


@dataclass(frozen=True, kw_only=True, slots=True)
class Experiment:
    """What is asked for of a problem, whatever the problem; policies and seeds are chosen when it is run."""

    name: str
    training: TrainingSettings
    stop: StopSettings
    # Options of each policy; [policy.X.training] goes over training.
    policy: Mapping[str, SettingsTable] = field(default_factory=dict)
    preset: str | None = DEFAULT_PRESET  # that made it; no setting of the file
    table: SettingsTable = field(default_factory=dict, repr=False)  # that it was made from; no setting either
    path: Path | None = None  # of its file; no setting either

    @property
    def metric(self) -> str | None:
        """What stands in place of the accuracy; None where it is the accuracy."""
        return metric_of(self.table)


@dataclass(frozen=True, kw_only=True, slots=True)
class FileExperiment(Experiment):
    """An experiment of a file, which describes the problem too, under one preset."""

    data: DataConfig
    model: ModelConfig
    times: TimesConfig
    channel: ChannelConfig = field(default_factory=ChannelConfig)

    def __post_init__(self) -> None:
        """Check that upload times come from one place."""
        sources = [name for name in ("upload", "uplink_mbps") if getattr(self.times, name) is not None]
        if self.channel.kind == "traces" and sources:
            raise InputError(
                name=f"times.{sources[0]}",
                rule="not be given where channel.kind is traces",
                got="both",
                remedy="leave it out: upload times follow from the traces",
            )
        if self.channel.kind != "traces" and len(sources) != 1:
            raise InputError(name="times: either upload or uplink_mbps", rule="be given", got="both or neither")


def make_experiment(table: SettingsTable, preset: str = DEFAULT_PRESET) -> FileExperiment:
    """Return the experiment of a plain table; files that it names are looked for where the command was given."""
    experiment = decode_experiment(table, preset)
    known = available_policies()
    for name in experiment.policy:
        if name not in known and not is_reference(name):
            raise InputError(f"policy.{name}", "be a known policy", repr(name), near_miss(name, known))
        for_policy(experiment, name)
    return experiment


def metric_of(table: Mapping[str, Any]) -> str | None:
    """Return the name of the metric that an experiment's table has of somebody's own; None where it has none."""
    found = [table.get(part, {}).get("metric") for part in ("problem", "model")]
    name = next((str(one).partition(" ")[0] for one in found if one), None)
    return None if name is None else name.rpartition(":")[2].rpartition(".")[2].replace("<lambda>", "own metric")


def check_accuracy(experiment: Experiment) -> None:
    """Refuse a target that no accuracy reaches, such as 70 where 0.7 is meant."""
    accuracy = experiment.stop.target_accuracy
    if accuracy is not None and experiment.metric is None and not 0 <= accuracy <= 1:
        raise InputError("target_accuracy", "lie between 0 and 1 without a metric of your own", f"{accuracy:g}")


def decode_experiment(table: SettingsTable, preset: str = DEFAULT_PRESET) -> FileExperiment:
    """Return the experiment of a plain table, whose policies may be ones that this machine does not have."""
    table = with_current_names(table)
    return decode(FileExperiment, table, preset=preset, table=table, path=None)


def with_current_names(table: SettingsTable) -> dict[str, object]:
    """Return a table in which settings that were renamed have their present names."""
    current = dict(table)
    for section, names in RENAMED.items():
        values = current.get(section)
        if not isinstance(values, Mapping):
            continue
        for old, new in names.items():
            if old in values and new in values:
                remedy = f"{old} is what {new} was called before"
                raise InputError(f"{section}.{old}", f"not be given beside {section}.{new}", "both", remedy)
        current[section] = {names.get(name, name): value for name, value in values.items()}
    return current


def for_policy(experiment: Experiment, policy: str) -> tuple[TrainingSettings, dict[str, object]]:
    """Return the training settings that a policy trains with, and its own options."""
    options = dict(experiment.policy.get(policy, {}))
    own = checked_table(f"policy.{policy}.training", options.pop("training", {}))
    if own.get("step_size") == "auto" and experiment.training.step_size != "auto":
        own = {"schedule": None, **own}  # what a step size that the run finds brings with it
    table = merged(asdict(experiment.training), own)
    training = decode(TrainingSettings, table, f"policy.{policy}.training")
    if training.cohort_size > MOST_DRAWN:
        raise InputError(
            name="training.cohort_size", rule=f"be at most {MOST_DRAWN:,}", got=f"{training.cohort_size:,}"
        )
    return training, options
