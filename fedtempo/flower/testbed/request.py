"""A run on the testbed as somebody asks for it, and the experiment that it stands for."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from fedtempo.checks import InputError, check_count, check_nonnegative, check_positive, check_seed
from fedtempo.experiments.settings.assignments import Assignments, lay_over, refuse_assigned
from fedtempo.experiments.settings.config import DEFAULT_PRESET, FileExperiment, make_experiment
from fedtempo.experiments.settings.config_file import load_experiment
from fedtempo.experiments.settings.decode import merged
from fedtempo.fleet_csv import read_fleet
from fedtempo.flower.app.assembly import assemble
from fedtempo.flower.testbed.settings import TestbedSettings
from fedtempo.policies.registry import check_name

LEAST_NODES = 2  # that hold all classes of the small experiment
SAMPLES_OF_A_NODE, LEAST_SAMPLES, DRAWS_TRIED = 100, 2000, 20
OPTIONS_OF_ITS_OWN = {"nodes": ("data", "clients"), "rounds": ("stop", "max_rounds")}  # and what they set
SMALL_EXPERIMENT: Mapping[str, object] = {
    "name": "testbed",
    "data": {"kind": "synthetic"},
    "model": {"kind": "softmax"},
    "times": {
        "compute": {"kind": "uniform", "low": 0.5, "high": 2.0},
        "upload": {"kind": "uniform", "low": 0.5, "high": 2.0},
    },
    "training": {"local_steps": 20, "schedule": "constant", "step_size": 0.02, "duplicates": "physical"},
    "policy": {name: {"losses": [2.1, 1.8, 1.5], "max_rounds": 20} for name in ("proposed", "statistical")},
}


@dataclass(frozen=True, kw_only=True, slots=True)
class TestbedRequest:
    """One policy on so many nodes."""

    __test__ = False  # pytest, which goes by names

    nodes: int = 10
    rounds: int = 20
    policy: str = "uniform"
    cohort_size: int = 4
    config: Path | None = None  # an experiment's file; None: a small synthetic one
    preset: str = DEFAULT_PRESET
    link: str | None = None  # None: the experiment's
    model_megabytes: float = 1.0
    target_loss: float | None = None
    clients: Path | None = None  # CSV with gradient bounds, for policies that know them beforehand
    beta_over_alpha: float | None = None  # for the same policies
    seed: int = 0
    deadline: float = 120.0  # s that a node has to report
    netns: bool = False
    tc: bool = False
    records: Path | None = None  # None: none are kept
    assignments: Assignments = ()  # single settings over the experiment

    def __post_init__(self) -> None:
        """Check each setting by itself."""
        check_name(self.policy)
        for name in ("nodes", "rounds", "cohort_size"):
            check_count(name, getattr(self, name))
        for name in ("model_megabytes", "deadline"):
            check_positive(name, getattr(self, name))
        if self.target_loss is not None:
            check_positive("target_loss", self.target_loss)
        if self.beta_over_alpha is not None:
            check_nonnegative("beta_over_alpha", self.beta_over_alpha)
        check_seed("seed", self.seed)
        for option, path in OPTIONS_OF_ITS_OWN.items():
            refuse_assigned(self.assignments, [path], f"give {{{option}}}")

    def settings(self) -> TestbedSettings:
        """Return the experiment, and the conditions under which nodes run it."""
        return TestbedSettings(
            table=self._table(),
            model_bytes=round(self.model_megabytes * 1e6),
            deadline=self.deadline,
            netns=self.netns,
            tc=self.tc,
        )

    def _table(self) -> dict[str, object]:
        """Return the experiment as a plain table."""
        over = self._over()
        if self.config is not None:
            return _with_places(load_experiment(self.config, self.preset, over=over, assignments=self.assignments))
        if self.nodes < LEAST_NODES:
            remedy = "or give an experiment with {config}"
            raise InputError(name="nodes", rule=f"be at least {LEAST_NODES}", got=self.nodes, remedy=remedy)
        samples = max(SAMPLES_OF_A_NODE * self.nodes, LEAST_SAMPLES)
        table: dict[str, object] = merged(SMALL_EXPERIMENT, over)
        for seed in range(DRAWS_TRIED):  # few clients may lack a class
            table = lay_over(merged(table, {"data": {"samples": samples, "seed": seed}}), self.assignments)
            with suppress(InputError):
                assemble(make_experiment(table))
                break
        return table

    def _over(self) -> dict[str, object]:
        """Return what is asked for, as a table to lie over an experiment."""
        training = {"cohort_size": self.cohort_size} | ({} if self.link is None else {"link": self.link})
        stop = {"max_rounds": self.rounds} | ({} if self.target_loss is None else {"target_loss": self.target_loss})
        known = self._known()
        options = {"policy": {self.policy: known}} if known else {}
        return {"data": {"clients": self.nodes}, "training": training, "stop": stop, **options}

    def _known(self) -> dict[str, object]:
        """Return what is known of the clients beforehand, as options of the policy."""
        known: dict[str, object] = {}
        if self.clients is not None:
            fleet = read_fleet(self.clients)
            if len(fleet) != self.nodes:
                raise InputError(name="clients", rule=f"have a line for each of {self.nodes} nodes", got=len(fleet))
            known["gradient_bound"] = fleet.gradient_bound.tolist()
        if self.beta_over_alpha is not None:
            known["beta_over_alpha"] = self.beta_over_alpha
        return known


def _with_places(experiment: FileExperiment) -> dict[str, object]:
    """Return the table of an experiment with the places of the data's own files, which nodes find from anywhere."""
    own = {"data": ("kind", "file"), "model": ("kind", "loss", "metric", "optimiser")}
    places = {
        section: {name: place for name in names if (place := getattr(getattr(experiment, section), name)) is not None}
        for section, names in own.items()
    }
    return merged(experiment.table, places)
