"""A federation on this machine: a SuperLink, SuperNodes behind a shaped uplink, TLS and keys, and nothing left behind.

Client i trains on its part of an experiment's data. Its computing time is padded to the nominal τ_i, its upload goes
through the shared link at the rate that t_i and its share of the bandwidth stand for; the rest is as it is. Flower
takes seconds to bring a message to a ClientApp, to some longer than to others: members of a round begin when the last
of them has come, all at once as in the model, and what they wait for that is overhead of the engine.
"""

import json
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path

from fedtempo.checks import InputError, check_count
from fedtempo.engine.records import RECORDS, Records, read_records
from fedtempo.engine.settings import policy_setting
from fedtempo.experiments.settings.config import for_policy, make_experiment
from fedtempo.experiments.settings.decode import merged
from fedtempo.fleet import Fleet
from fedtempo.flower.app.assembly import assemble
from fedtempo.flower.app.run_config import RunConfig
from fedtempo.flower.credentials import make_credentials, write_secret
from fedtempo.flower.link.control import LinkServer
from fedtempo.flower.link.shaped import ShapedLink
from fedtempo.flower.link.tc import TcLink
from fedtempo.flower.startable import Startable
from fedtempo.flower.testbed import warm_executor
from fedtempo.flower.testbed.namespaces import Namespaces
from fedtempo.flower.testbed.records_tail import RecordLine, RecordsTail
from fedtempo.flower.testbed.settings import TestbedSettings
from fedtempo.flower.testbed.superlink import ENDED, SuperLink
from fedtempo.flower.testbed.supernode import SuperNode
from fedtempo.flower.testbed.watched import Launch, ProcessError, stop_all
from fedtempo.policies.policy import Policy
from fedtempo.policies.registry import make
from fedtempo.simulator.kernels import load_kernels
from fedtempo.simulator.problem import Problem, model_bits

APP = Path(__file__).parents[1] / "app"
STARTED_AT_ONCE = 4  # SuperNodes: each takes a core for a few seconds
READY_SECONDS = 120.0
POLL_SECONDS = 0.5
POLL_SECONDS_OF_A_NODE = 0.025  # times the number of nodes: how often each looks for work, within its own machine
NO_CHANGES: Mapping[str, object] = {}

ShowLine = Callable[[RecordLine], None]


class Testbed(Startable):
    """A federation that runs while the block does."""

    __test__ = False  # pytest, which goes by names

    def __init__(self, settings: TestbedSettings, folder: Path) -> None:
        """Take what is to run, and the folder of keys, logs and records."""
        self.settings, self.folder = settings, folder
        self.experiment = settings.experiment
        self.num_nodes = check_count("nodes", self.experiment.data.clients or 0)
        self.nodes: list[SuperNode] = []
        self.node_ids: list[int] = []
        self.host = "127.0.0.1"
        self.namespaces: Namespaces | None = None
        self._running = ExitStack()

    @cached_property
    def problem(self) -> Problem:
        """What the experiment trains, and the fleet with the times of whole uploads."""
        return assemble(self.experiment, self.ballast)

    @cached_property
    def ballast(self) -> int:
        """The bytes that the model lacks."""
        own = int(model_bits(assemble(self.experiment).trainer)) // 8
        if self.settings.model_bytes < own:
            got = f"{self.settings.model_bytes:,}"
            raise InputError(name="the model", rule=f"have at least its own {own:,} bytes", got=got)
        return self.settings.model_bytes - own

    @property
    def fleet(self) -> Fleet:
        """The nodes, with their nominal times."""
        return self.problem.fleet

    @property
    def model_bits(self) -> float:
        """The size of an upload of 32 bits a number."""
        return 8.0 * self.settings.model_bytes

    def make_policy(self, policy: str) -> Policy:
        """Return a policy as a run makes it: one that lacks something is refused before nodes are started for it."""
        training, options = for_policy(self.experiment, policy)
        if self.settings.tc and training.link == "shared":
            raise InputError(name="tc", rule="go with the links paper or equal", got="shared", remedy="leave it out")
        return make(policy, policy_setting(self.fleet, training, options))

    def start(self) -> None:
        """Start everything; whatever goes wrong, nothing stays."""
        with ExitStack() as running:
            self._start(running)
            self._running = running.pop_all()

    def stop(self) -> None:
        """End everything."""
        self._running.close()

    def _start(self, running: ExitStack) -> None:
        if self.settings.netns:
            self.namespaces = running.enter_context(Namespaces(self.num_nodes))
            self.host = self.namespaces.server
        self.credentials = make_credentials(self.folder / "keys", self.num_nodes, hosts=(self.host, "localhost"))
        self.superlink = running.enter_context(SuperLink(self.folder / "superlink", self.host, self.credentials))
        self.superlink.wait_until_ready(READY_SECONDS)
        self.link = self._make_link()
        running.enter_context(self.link)
        self.control = running.enter_context(LinkServer(self.link))
        write_secret(self.folder / "link-token", self.control.token.encode())
        load_kernels()  # compiled once where this machine has none, not by all nodes at once
        self.programs = warm_executor.write_program(self.folder / "programs")
        self.node_ids = [self.superlink.register(key.public) for key in self.credentials.node_keys]
        self.nodes = [self._node(number) for number in range(self.num_nodes)]
        running.callback(lambda: stop_all(self.nodes))
        for first in range(0, self.num_nodes, STARTED_AT_ONCE):
            some = self.nodes[first : first + STARTED_AT_ONCE]
            for node in some:
                node.start()
            for node in some:
                node.wait_until_ready(READY_SECONDS)

    def _make_link(self) -> ShapedLink | TcLink:
        rates = (self.model_bits / self.fleet.upload_time).tolist()
        if self.namespaces is not None and self.settings.tc:
            places = [self.namespaces.place(number) for number in range(self.num_nodes)]
            return TcLink(places, rates, total_bandwidth=self.fleet.total_bandwidth)
        return ShapedLink(
            (self.host, self.superlink.port), rates, total_bandwidth=self.fleet.total_bandwidth, host=self.host
        )

    def _node(self, number: int) -> SuperNode:
        port = self.link.ports[number] if isinstance(self.link, ShapedLink) else self.superlink.port
        launch = Launch(
            prefix=() if self.namespaces is None else self.namespaces.prefix(number),
            environment={"FLWR_SUPEREXEC_TASK_POLL_INTERVAL": f"{min(POLL_SECONDS_OF_A_NODE * self.num_nodes, 1):g}"},
            programs=[self.programs],
        )
        return SuperNode(
            number,
            self.credentials.node_keys[number].private,
            f"{self.host}:{port}",
            {"partition-id": number},
            folder=self.folder / f"node-{number}",
            ca_certificate=self.credentials.ca_certificate,
            launch=launch,
        )

    def start_run(
        self, policy: str, *, rounds: int, seed: int, records: Path, over: Mapping[str, object] = NO_CHANGES
    ) -> int:
        """Start a run of the ready app, or go on with one whose records exist; return its id.

        ``over``: settings of training or of the end, to lie over the experiment.
        """
        table = merged(self.settings.table, over)
        for_policy(make_experiment(table), policy)
        config = RunConfig(
            experiment=json.dumps(table),
            policy=policy,
            seed=seed,
            rounds=rounds,
            records=str(records.absolute()),
            deadline=self.settings.deadline,
            nodes=json.dumps({str(node): number for number, node in enumerate(self.node_ids)}),
            link=":".join(map(str, self.control.address)),
            link_token=str((self.folder / "link-token").absolute()),
            ballast=self.ballast,
            emulate=str((self.folder / "together").absolute()),
        )
        return self.superlink.start_run(APP, config.as_flower())

    def run(
        self,
        policy: str,
        *,
        rounds: int,
        seed: int,
        records: Path,
        timeout: float,
        show: ShowLine = lambda line: None,
        over: Mapping[str, object] = NO_CHANGES,
    ) -> Records:
        """Run one policy to the end, for at most so many seconds; show each line as it comes, return all records."""
        end, lines = time.monotonic() + timeout, RecordsTail(records / RECORDS)
        run_id = self.start_run(policy, rounds=rounds, seed=seed, records=records, over=over)
        with self.superlink.stopped_on_error(run_id):
            while True:
                status, details = self.superlink.run_status(run_id)
                for line in lines:
                    show(line)
                if status in ENDED:
                    break
                if time.monotonic() > end:
                    raise ProcessError(f"the run must end within {timeout:g} s, got {len(lines.seen)} lines until then")
                time.sleep(POLL_SECONDS)
        if status != "completed":
            reason = details or " / ".join(self.superlink.run_log(run_id).strip().splitlines()[-5:])
            raise ProcessError(f"the run must complete, got {status}: {reason}")
        return read_records(records / RECORDS)
