"""Which node each client is, kept beside the records, so that a run goes on while some nodes are not connected."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from logging import WARNING
from pathlib import Path

import msgspec
import numpy as np
from flwr.serverapp import Grid

from fedtempo.checks import InputError
from fedtempo.engine.records import RECORDS
from fedtempo.files import whole_file
from fedtempo.fleet import Fleet
from fedtempo.flower.log import log
from fedtempo.flower.strategy.describing import NodeDescription, describe_nodes, wait_for_nodes

ROSTER_FILE = "nodes.json"  # beside the records
WITHOUT_COUNTS = 1_000_000  # examples of all clients, where shares of the data are all that is known
SETTLE_SECONDS = 3.0  # in which no node has connected: then those that are connected are the clients


class RosterRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One client in the roster's file."""

    client: int
    node: int
    partition: int | None
    examples: int | None


@dataclass(slots=True)
class Roster:
    """The nodes of clients by their number, and the fleet; a client without a node is not available."""

    clients: dict[int, NodeDescription]  # changes as nodes take the places of others
    fleet: Fleet

    @property
    def nodes(self) -> dict[int, int]:
        """The client that each node id stands for."""
        return {one.node: client for client, one in self.clients.items()}

    @property
    def samples(self) -> list[int]:
        """The number of examples of each client, from its share of the data where not all report it."""
        counts = [(one.examples if one else None) or 0 for one in map(self.clients.get, range(len(self.fleet)))]
        if not all(counts) or not np.allclose(np.array(counts) / sum(counts), self.fleet.data_share):
            return [max(round(share * WITHOUT_COUNTS), 1) for share in self.fleet.data_share.tolist()]
        return counts

    def write(self, folder: Path) -> None:
        """Write which node is which client beside the records."""
        folder.mkdir(parents=True, exist_ok=True)
        rows = [
            RosterRow(client, one.node, one.partition, one.examples) for client, one in sorted(self.clients.items())
        ]
        with whole_file(folder / ROSTER_FILE, "wb") as stream:
            stream.write(msgspec.json.format(msgspec.json.encode(rows), indent=1))


def named_roster(grid: Grid, nodes: Mapping[int, int], fleet: Fleet | None) -> Roster:
    """Return the nodes that the user names; a wrong id is seen at once."""
    connected = set(grid.get_node_ids())
    if missing := sorted(set(nodes) - connected):
        log(WARNING, f"nodes {missing} of nodes= are not connected yet; connected are {sorted(connected)}")
    clients = {client: NodeDescription(node, client, None) for node, client in nodes.items()}
    return Roster(clients, fleet or _fleet_of(clients))


def find_roster(grid: Grid, *, fleet: Fleet | None, least: int, seconds: float, folder: Path | None) -> Roster:
    """Ask nodes to describe themselves, but for those that a run in the folder knows already.

    Without a fleet, clients are the nodes that are connected once there are enough and no more connect; with one, all
    have the time to connect, and those that do not are not available.
    """
    known = _read(folder)
    wanted = least if known or fleet is None else len(fleet)
    settle = 0.0 if known or fleet is not None else SETTLE_SECONDS
    connected = wait_for_nodes(grid, wanted, seconds, least=min(least, wanted), settle=settle)
    ids = {one.node for one in known.values()}
    described, problem = describe_nodes(grid, [node for node in connected if node not in ids])
    if not known and len(described) < min(least, wanted):
        raise InputError(
            name=f"at least {min(least, wanted)} nodes", rule="describe themselves", got=len(described), remedy=problem
        )
    clients = known | client_numbers(described, known, fleet)
    roster = Roster(clients, fleet or _fleet_of(clients))
    if strangers := [one.node for one in described if one.node not in roster.nodes]:
        log(WARNING, f"nodes {strangers} are none of the {len(roster.fleet)} clients of this run: they are not drawn")
    online = {roster.nodes[node] for node in connected if node in roster.nodes}
    if offline := sorted(set(range(len(roster.fleet))) - online):
        log(WARNING, f"clients {offline} are not connected; they are drawn once they are")
    return roster


def client_numbers(
    described: list[NodeDescription], known: Mapping[int, NodeDescription], fleet: Fleet | None
) -> dict[int, NodeDescription]:
    """Return which client each node is: of those known, the one with the same partition; or by its partition."""
    partitions = [one.partition for one in described]
    if len(set(partitions) - {None}) not in (0, len(described)):
        raise InputError(name="each node", rule="have a partition-id of its own", got=f"{partitions}")
    if known:
        return _among(described, known, fleet)
    if None not in partitions:
        described = sorted(described, key=lambda one: one.partition or 0)
    if fleet is None or len(described) == len(fleet):
        return dict(enumerate(described))
    if len(described) > len(fleet):
        raise InputError(name="the fleet", rule=f"have a client for each of {len(described)} nodes", got=len(fleet))
    if None in partitions or not all(0 <= (one.partition or 0) < len(fleet) for one in described):
        raise InputError(
            name=f"with {len(described)} nodes for {len(fleet)} clients each node",
            rule="have the client's number as partition-id",
            got=f"{partitions}",
            remedy="start the other nodes",
        )
    return {one.partition or 0: one for one in described}


def _among(
    described: list[NodeDescription], known: Mapping[int, NodeDescription], fleet: Fleet | None
) -> dict[int, NodeDescription]:
    """Return which of the known clients, or of the fleet's, each node is by its partition."""
    client_of = {one.partition: client for client, one in known.items() if one.partition is not None}
    if fleet is not None:
        client_of = {number: number for number in range(len(fleet))} | client_of
    found = {client_of[one.partition]: one for one in described if one.partition in client_of}
    # The records say how many examples clients have, as it was known at the first start.
    return {
        client: replace(one, examples=known[client].examples if client in known else None)
        for client, one in found.items()
    }


def _fleet_of(clients: Mapping[int, NodeDescription]) -> Fleet:
    """Return clients of which no more is known than their data."""
    examples = np.array([clients[client].examples or 0 for client in sorted(clients)], dtype=np.float64)
    if not examples.all():
        log(WARNING, "not every node reports its number of examples: all count alike; give tempo_client num_examples=")
        examples = np.ones(len(clients))
    alike = np.ones(len(clients))
    return Fleet(examples / examples.sum(), alike, alike, alike)


def _read(folder: Path | None) -> dict[int, NodeDescription]:
    if folder is None or not ((folder / RECORDS).exists() and (folder / ROSTER_FILE).exists()):
        return {}
    try:
        rows = msgspec.json.decode((folder / ROSTER_FILE).read_bytes(), type=list[RosterRow])
    except msgspec.DecodeError:
        raise InputError(
            name=folder / ROSTER_FILE, rule="be as fedtempo wrote it", remedy="delete it to ask nodes again"
        ) from None
    return {row.client: NodeDescription(row.node, row.partition, row.examples) for row in rows}
