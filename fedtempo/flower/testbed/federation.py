"""A federation on this machine: a SuperLink, SuperNodes behind a shaped uplink, TLS and keys, and nothing left behind.

Client i trains on its part of an experiment's data. Its computing time is padded to the nominal τ_i, its upload goes
through the shared link at the rate that t_i and its share of the bandwidth stand for; the rest is as it is. Flower
takes seconds to bring a message to a ClientApp, to some longer than to others: members of a round begin when the last
of them is there, all at once as in the model, and what they wait for that is overhead of the engine.
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from fedtempo.checks import InputError, check_count
from fedtempo.engine.records import RECORDS, read_lines
from fedtempo.experiments.config import Experiment, for_policy, make_experiment
from fedtempo.experiments.runner import BITS_OF_A_PARAMETER, load_data, load_trainer, make_fleet
from fedtempo.experiments.toml import merged
from fedtempo.fleet import Fleet
from fedtempo.flower.credentials import make_credentials, write_secret
from fedtempo.flower.link.control import LinkServer
from fedtempo.flower.link.shaped import ShapedLink
from fedtempo.flower.link.tc import TcLink
from fedtempo.flower.testbed import warm_executor
from fedtempo.flower.testbed.namespaces import Namespaces
from fedtempo.flower.testbed.processes import SuperLink, SuperNode
from fedtempo.flower.testbed.watched import ProcessError, stop_all
from fedtempo.policies.policy import PolicySetting
from fedtempo.policies.registry import make
from fedtempo.simulator.kernels import load_kernels

APP = Path(__file__).parents[1] / "app"
STARTED_AT_ONCE = 4  # SuperNodes: each takes a core for a few seconds
READY_SECONDS = 120.0
POLL_SECONDS = 0.5
POLL_SECONDS_OF_A_NODE = 0.025  # times the number of nodes: how often each looks for work, within its own machine
DONE = ("completed", "failed", "stopped")
NOTHING: Mapping[str, Any] = {}

Show = Callable[[dict[str, Any]], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class TestbedSettings:
    """What runs on the testbed."""

    __test__ = False  # pytest, which goes by names

    table: Mapping[str, Any]  # of the experiment; data.clients is the number of nodes
    model_bytes: int = 1_000_000  # that an upload has; what the model lacks is sent along as ballast
    deadline: float = 120.0  # s for a node to answer
    namespaces: bool = False  # a network namespace for each node
    kernel_link: bool = False  # the kernel's token buckets there shape the uplink, rather than a proxy

    @property
    def experiment(self) -> Experiment:
        """The experiment."""
        return make_experiment(self.table)


class Testbed:
    """A federation that runs while the block does."""

    __test__ = False  # pytest, which goes by names

    def __init__(self, settings: TestbedSettings, folder: Path) -> None:
        """Take what is to run, and the folder of keys, logs and records."""
        self.settings, self.folder = settings, folder
        self.experiment = settings.experiment
        self.num_nodes = check_count("nodes", self.experiment.data.clients)
        trainer = load_trainer(self.experiment.model, self.experiment.data)
        own = trainer.num_parameters * BITS_OF_A_PARAMETER // 8
        if settings.model_bytes < own:
            raise InputError(
                name="the model", rule=f"have at least its own {own:,} bytes", got=f"{settings.model_bytes:,}"
            )
        if settings.kernel_link and not settings.namespaces:
            raise InputError(name="tc", rule="have a network namespace for each node", got="none", remedy="add {netns}")
        self.ballast = settings.model_bytes - own
        self.model_bits = 8.0 * settings.model_bytes
        self.fleet: Fleet = make_fleet(self.experiment, load_data(self.experiment.data), self.model_bits)[0]
        self.nodes: list[SuperNode] = []
        self.node_ids: list[int] = []
        self.namespaces: Namespaces | None = None
        self._running = ExitStack()

    def __enter__(self) -> Self:
        """Start everything; whatever goes wrong, nothing stays."""
        try:
            self._start()
        except BaseException:
            self._running.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End everything."""
        self._running.close()

    def _start(self) -> None:
        host = self.host = "127.0.0.1"
        if self.settings.namespaces:
            self.namespaces = self._running.enter_context(Namespaces(self.num_nodes))
            host = self.host = self.namespaces.server
        self.credentials = make_credentials(self.folder / "keys", self.num_nodes, hosts=(host, "localhost"))
        self.superlink = self._running.enter_context(SuperLink(self.folder / "superlink", host, self.credentials))
        self.superlink.wait_until_ready(READY_SECONDS)
        self.link = self._make_link()
        self._running.enter_context(self.link)
        self.control = self._running.enter_context(LinkServer(self.link))
        write_secret(self.folder / "link-token", self.control.token.encode())
        load_kernels()  # compiled once where this machine has none, not by all nodes at once
        self.programs = warm_executor.write_program(self.folder / "programs")
        self.node_ids = [self.superlink.register(key.public) for key in self.credentials.node_keys]
        self.nodes = [self._node(number) for number in range(self.num_nodes)]
        self._running.callback(lambda: stop_all(self.nodes))
        for first in range(0, self.num_nodes, STARTED_AT_ONCE):
            some = self.nodes[first : first + STARTED_AT_ONCE]
            for node in some:
                node.start()
            for node in some:
                node.wait_until_ready(READY_SECONDS)

    def _make_link(self) -> ShapedLink | TcLink:
        rates = (self.model_bits / self.fleet.upload_time).tolist()
        if self.namespaces is not None and self.settings.kernel_link:
            places = [self.namespaces.place(number) for number in range(self.num_nodes)]
            return TcLink(places, rates, total_bandwidth=self.fleet.total_bandwidth)
        return ShapedLink(
            (self.host, self.superlink.port), rates, total_bandwidth=self.fleet.total_bandwidth, host=self.host
        )

    def _node(self, number: int) -> SuperNode:
        port = self.link.ports[number] if isinstance(self.link, ShapedLink) else self.superlink.port
        return SuperNode(
            number,
            self.credentials.node_keys[number].private,
            f"{self.host}:{port}",
            {"partition-id": number},
            folder=self.folder / f"node-{number}",
            ca_certificate=self.credentials.ca_certificate,
            prefix=() if self.namespaces is None else self.namespaces.prefix(number),
            environment={"FLWR_SUPEREXEC_TASK_POLL_INTERVAL": f"{min(POLL_SECONDS_OF_A_NODE * self.num_nodes, 1):g}"},
            programs=[self.programs],
        )

    def check_policy(self, policy: str) -> None:
        """Refuse a policy that lacks something, before nodes are started for it."""
        training, options = for_policy(self.experiment, policy)
        if self.settings.kernel_link and training.link == "shared":
            raise InputError(name="tc", rule="go with the links paper or equal", got="shared", remedy="leave it out")
        make(policy, PolicySetting(fleet=self.fleet, cohort_size=training.cohort_size, options=options))

    def start_run(
        self, policy: str, *, rounds: int, seed: int, records: Path, over: Mapping[str, Any] = NOTHING
    ) -> int:
        """Start a run of the ready app, or go on with one whose records are there; return its id.

        ``over``: settings of training or of the end, to lie over the experiment.
        """
        table = merged(self.settings.table, over)
        for_policy(make_experiment(table), policy)
        return self.superlink.start_run(
            APP,
            {
                "experiment": json.dumps(table),
                "policy": policy,
                "seed": seed,
                "rounds": rounds,
                "records": str(records.absolute()),
                "deadline": self.settings.deadline,
                "nodes": json.dumps({str(node): number for number, node in enumerate(self.node_ids)}),
                "link": ":".join(map(str, self.control.address)),
                "link-token": str((self.folder / "link-token").absolute()),
                "ballast": self.ballast,
                "emulate": str((self.folder / "together").absolute()),
            },
        )

    def run(
        self,
        policy: str,
        *,
        rounds: int,
        seed: int,
        records: Path,
        timeout: float,
        show: Show = lambda record: None,
        over: Mapping[str, Any] = NOTHING,
    ) -> list[dict[str, Any]]:
        """Run one policy to the end; show each record as it comes, and return all of them."""
        end, lines = time.monotonic() + timeout, _Tail(records / RECORDS)
        run_id = self.start_run(policy, rounds=rounds, seed=seed, records=records, over=over)
        try:
            while True:
                status, details = self.superlink.run_status(run_id)
                for record in lines:
                    show(record)
                if status in DONE:
                    break
                if time.monotonic() > end:
                    raise ProcessError(f"the run must end within {timeout:g} s, got {len(lines.seen)} lines until then")
                time.sleep(POLL_SECONDS)
        except BaseException:
            self._stop_run(run_id)
            raise
        if status != "completed":
            said = details or " / ".join(self.superlink.run_log(run_id).strip().splitlines()[-5:])
            raise ProcessError(f"the run must complete, got {status}: {said}")
        return list(read_lines(records / RECORDS))

    def _stop_run(self, run_id: int) -> None:
        with suppress(ProcessError):  # otherwise it ends with the SuperLink
            self.superlink.stop_run(run_id)


class _Tail:
    """The lines of a records file as they come; all of them again where a run that goes on has cut some off."""

    def __init__(self, path: Path) -> None:
        self.path, self.seen = path, list[dict[str, Any]]()

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield what is new."""
        lines = list(read_lines(self.path)) if self.path.exists() else []
        same = lines[: len(self.seen)] == self.seen
        first, self.seen = len(self.seen) if same else 0, lines
        yield from lines[first:]
