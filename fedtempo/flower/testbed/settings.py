"""What runs on the testbed."""

from collections.abc import Mapping
from dataclasses import dataclass

from fedtempo.checks import InputError, check_count, check_positive
from fedtempo.experiments.settings.config import FileExperiment, make_experiment


@dataclass(frozen=True, kw_only=True, slots=True)
class TestbedSettings:
    """An experiment, and the conditions under which nodes run it."""

    __test__ = False  # pytest, which goes by names

    table: Mapping[str, object]  # of the experiment; data.clients is the number of nodes
    model_bytes: int = 1_000_000  # that an upload has; what the model lacks is sent along as ballast
    deadline: float = 120.0  # s that a node has to report
    netns: bool = False  # a network namespace for each node
    tc: bool = False  # the kernel's token buckets there shape the uplink, rather than a proxy

    def __post_init__(self) -> None:
        """Check each setting."""
        check_count("model_bytes", self.model_bytes)
        check_positive("deadline", self.deadline)
        if self.tc and not self.netns:
            raise InputError(name="tc", rule="have a network namespace for each node", got="none", remedy="add {netns}")

    @property
    def experiment(self) -> FileExperiment:
        """The experiment."""
        return make_experiment(self.table)
