"""Who is who: the node that each client is, kept beside the records, so that a run goes on while some are away."""

import json
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
from fedtempo.flower.messenger import Described, Messenger, Reply, ask_who, describe_nodes, described, wait_for_nodes

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
        raise InputError(f"at least {min(least, wanted)} nodes must say who they are, got {len(told)}; {problem}")
    clients = known | _numbered(told, known, fleet)
    roster = Roster(clients, fleet or _fleet_of(clients))
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
        self._asked: set[int] = set()  # of those who are there
        self._sent: dict[str, int] = {}
        self._told: dict[int, Described] = {}  # of clients whose place may still be taken

    def take(self) -> dict[int, int]:
        """Ask those who are new; return the client of each node that has taken a place since the last call."""
        there, clients = set(self._asking.grid.get_node_ids()), self.roster.clients
        new = there - self._asked - set(self.roster.nodes)
        for node in sorted(new):
            self._asking.assign(node, node)
            self._sent |= ask_who(self._asking, [node])
        self._asked = (self._asked & there) | new
        for reply in self._asking.arrived(self._sent):
            self._hear(reply)
        free = {client for client in self._told if client not in clients or clients[client].node not in there}
        placed = {one.node: client for client, one in self._told.items() if client in free and one.node in there}
        for node, client in placed.items():
            clients[client] = self._told.pop(client)
            log(INFO, f"node {node} takes the place of client {client}")
        if placed and self.folder is not None:
            self.roster.write(self.folder)
        return placed

    def forget_all(self) -> None:
        """Ask nobody any longer."""
        self._asking.forget_all()

    def _hear(self, reply: Reply) -> None:
        try:
            self._told |= _numbered([described(reply.client, reply)], self.roster.clients, self.fleet)
        except InputError as error:
            log(WARNING, f"it is not drawn: {error}")


def _numbered(told: list[Described], known: Mapping[int, Described], fleet: Fleet | None) -> dict[int, Described]:
    """Return which client each node is: of those known, the one with the same partition; or by its partition."""
    partitions = [one.partition for one in told]
    if len(set(partitions) - {None}) not in (0, len(told)):
        raise InputError(f"each node must have a partition-id of its own, got {partitions}")
    if known:
        client_of = {one.partition: client for client, one in known.items() if one.partition is not None}
        if fleet is not None:
            client_of = {number: number for number in range(len(fleet))} | client_of
        for one in told:
            if one.partition not in client_of:
                log(WARNING, f"node {one.node} is none of the {len(client_of)} clients of this run: it is not drawn")
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
        raise InputError(f"the fleet must have a client for each of {len(told)} nodes, got {len(fleet)}")
    if None in partitions or not all(0 <= (one.partition or 0) < len(fleet) for one in told):
        raise InputError(
            f"with {len(told)} nodes for {len(fleet)} clients each node must have the client's number as partition-id, "
            f"got {partitions}; start the other nodes"
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
        raise InputError(f"{folder / ROSTER_FILE} must be as fedtempo wrote it; delete it to ask nodes again") from None
