"""Who is who: the node that each client is, kept beside the records, so that a run goes on while some are away."""

import json
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from logging import INFO, WARNING
from pathlib import Path

import numpy as np
from flwr.serverapp import Grid
from flwr.supercore import log

from fedtempo.checks import InputError
from fedtempo.engine.records import RECORDS
from fedtempo.files import whole_file
from fedtempo.fleet import Fleet
from fedtempo.flower.strategy.messenger import (
    DESCRIBE_SECONDS,
    Described,
    Messenger,
    Reply,
    ask_who,
    describe_nodes,
    described,
    wait_for_nodes,
)

ROSTER_FILE = "nodes.json"  # beside the records
WITHOUT_COUNTS = 1_000_000  # examples of all clients, where shares of the data are all that is known
SETTLE_SECONDS = 3.0  # in which no node has come: then those who are there are the clients


@dataclass(frozen=True, slots=True)
class Roster:
    """The nodes of clients by their number, and the fleet; a client without a node is away."""

    clients: dict[int, Described]
    fleet: Fleet

    @property
    def nodes(self) -> dict[int, int]:
        """The client that each node id stands for."""
        return {one.node: client for client, one in self.clients.items()}

    @property
    def samples(self) -> list[int]:
        """The number of examples of each client, as its share of the data says where not all tell it."""
        told = [(one.examples if one else None) or 0 for one in map(self.clients.get, range(len(self.fleet)))]
        if not all(told) or not np.allclose(np.array(told) / sum(told), self.fleet.data_share):
            return [max(round(share * WITHOUT_COUNTS), 1) for share in self.fleet.data_share.tolist()]
        return told

    def write(self, folder: Path) -> None:
        """Write who is who beside the records."""
        folder.mkdir(parents=True, exist_ok=True)
        with whole_file(folder / ROSTER_FILE) as stream:
            rows = [{"client": client} | asdict(one) for client, one in sorted(self.clients.items())]
            json.dump(rows, stream, indent=1)


def given_roster(grid: Grid, nodes: Mapping[int, int], fleet: Fleet | None) -> Roster:
    """Return the nodes that the user names; a wrong id is seen at once."""
    there = set(grid.get_node_ids())
    if missing := sorted(set(nodes) - there):
        log(WARNING, f"nodes {missing} of nodes= are not there yet; there are {sorted(there)}")
    clients = {client: Described(node, client, None) for node, client in nodes.items()}
    return Roster(clients, fleet or _fleet_of(clients))


def find_roster(grid: Grid, *, fleet: Fleet | None, least: int, seconds: float, folder: Path | None) -> Roster:
    """Ask nodes who they are, but for those that a run in the folder knows already.

    Without a fleet, clients are those who are there once there are enough of them and no more come; with one, all
    have the time to come, and who does not is away.
    """
    known = _read(folder)
    wanted = least if known or fleet is None else len(fleet)
    settle = 0.0 if known or fleet is not None else SETTLE_SECONDS
    there = wait_for_nodes(grid, wanted, seconds, least=min(least, wanted), settle=settle)
    ids = {one.node for one in known.values()}
    told, problem = describe_nodes(grid, [node for node in there if node not in ids])
    if not known and len(told) < min(least, wanted):
        raise InputError(
            name=f"at least {min(least, wanted)} nodes", rule="say who they are", got=f"{len(told)}", remedy=problem
        )
    clients = known | _numbered(told, known, fleet)
    roster = Roster(clients, fleet or _fleet_of(clients))
    if strangers := [one.node for one in told if one.node not in roster.nodes]:
        log(WARNING, f"nodes {strangers} are none of the {len(roster.fleet)} clients of this run: they are not drawn")
    away = sorted(set(range(len(roster.fleet))) - {roster.nodes[node] for node in there if node in roster.nodes})
    if away:
        log(WARNING, f"clients {away} are away; they are drawn once they are there")
    return roster


class Newcomers:
    """Nodes that come while a run is under way: asked who they are, though nobody waits for them.

    A node takes the place of a client that has none, or whose own is gone: a device that was restarted may have a new
    id, and one that was replaced the partition of the old.
    """

    def __init__(self, grid: Grid, roster: Roster, fleet: Fleet | None, folder: Path | None) -> None:
        """Start with the nodes that the roster knows."""
        self.roster, self.fleet, self.folder = roster, fleet, folder
        self._asking = Messenger(grid, {})
        self._sent: dict[str, int] = {}  # messages, and the nodes that they went to
        self._again: dict[int, float] = {}  # when to ask a node once more, on the monotonic clock
        self._times: Counter[int] = Counter()  # that it has been asked
        self._told: dict[int, Described] = {}  # by node: what it has said, and waits for a place

    def take(self) -> dict[int, int]:
        """Ask those who are new; return the client of each node that has taken a place since the last call."""
        there, clients = set(self._asking.grid.get_node_ids()), self.roster.clients
        for known in (self._again, self._told):
            for node in set(known) - there:
                del known[node]
        for node in sorted(there - set(self.roster.nodes) - set(self._told)):
            if self._again.get(node, 0.0) <= time.monotonic():
                self._ask(node)
        for reply in self._asking.arrived(self._sent):
            self._hear(reply)
        placed = {}
        for node, one in list(self._told.items()):
            client = next(iter(_numbered([one], clients, self.fleet)), None)
            if client is not None and (client not in clients or clients[client].node not in there):
                clients |= _numbered([self._told.pop(node)], clients, self.fleet)
                placed[node] = client
                log(INFO, f"node {node} takes the place of client {client}")
        if placed and self.folder is not None:
            self.roster.write(self.folder)
        return placed

    def forget_all(self) -> None:
        """Ask nobody any longer."""
        self._asking.forget_all()

    def _ask(self, node: int) -> None:
        """Ask a node who it is; if it does not say, it is asked again, after twice as long each time."""
        self._times[node] += 1
        self._again[node] = time.monotonic() + DESCRIBE_SECONDS * 2 ** (self._times[node] - 1)
        self._asking.assign(node, node)
        self._sent |= ask_who(self._asking, [node])

    def _hear(self, reply: Reply) -> None:
        node = reply.client
        try:
            one = described(node, reply)
        except InputError as error:
            log(WARNING, f"it is not drawn: {error}")
            return
        self._told[node] = one
        if not _numbered([one], self.roster.clients, self.fleet):
            log(WARNING, f"node {node} is none of the {len(self.roster.fleet)} clients of this run: it is not drawn")


def _numbered(told: list[Described], known: Mapping[int, Described], fleet: Fleet | None) -> dict[int, Described]:
    """Return which client each node is: of those known, the one with the same partition; or by its partition."""
    partitions = [one.partition for one in told]
    if len(set(partitions) - {None}) not in (0, len(told)):
        raise InputError(name="each node", rule="have a partition-id of its own", got=f"{partitions}")
    if known:
        client_of = {one.partition: client for client, one in known.items() if one.partition is not None}
        if fleet is not None:
            client_of = {number: number for number in range(len(fleet))} | client_of
        found = {client_of[one.partition]: one for one in told if one.partition in client_of}
        # The records say how many examples clients have, as it was known at the first start.
        return {
            client: replace(one, examples=known[client].examples if client in known else None)
            for client, one in found.items()
        }
    if None not in partitions:
        told = sorted(told, key=lambda one: one.partition or 0)
    if fleet is None or len(told) == len(fleet):
        return dict(enumerate(told))
    if len(told) > len(fleet):
        raise InputError(name="the fleet", rule=f"have a client for each of {len(told)} nodes", got=f"{len(fleet)}")
    if None in partitions or not all(0 <= (one.partition or 0) < len(fleet) for one in told):
        raise InputError(
            name=f"with {len(told)} nodes for {len(fleet)} clients each node",
            rule="have the client's number as partition-id",
            got=f"{partitions}",
            remedy="start the other nodes",
        )
    return {one.partition or 0: one for one in told}


def _fleet_of(clients: Mapping[int, Described]) -> Fleet:
    """Return clients of which no more is known than their data."""
    examples = np.array([clients[client].examples or 0 for client in sorted(clients)], dtype=np.float64)
    if not examples.all():
        log(WARNING, "not every node tells how many examples it has: all count alike; give tempo_client num_examples=")
        examples = np.ones(len(clients))
    alike = np.ones(len(clients))
    return Fleet(examples / examples.sum(), alike, alike, alike)


def _read(folder: Path | None) -> dict[int, Described]:
    if folder is None or not ((folder / RECORDS).exists() and (folder / ROSTER_FILE).exists()):
        return {}
    try:
        rows = json.loads((folder / ROSTER_FILE).read_text())
        return {row.pop("client"): Described(**row) for row in rows}
    except (ValueError, KeyError, TypeError, AttributeError):
        raise InputError(
            name=folder / ROSTER_FILE, rule="be as fedtempo wrote it", remedy="delete it to ask nodes again"
        ) from None
