"""Nodes that connect while a run is under way."""

import time
from collections import Counter
from logging import INFO, WARNING
from pathlib import Path

from flwr.serverapp import Grid

from fedtempo.checks import InputError
from fedtempo.fleet import Fleet
from fedtempo.flower.log import log
from fedtempo.flower.strategy import describing
from fedtempo.flower.strategy.describing import NodeDescription, ask_to_describe, read_description
from fedtempo.flower.strategy.messenger import Messenger, Reply
from fedtempo.flower.strategy.roster import Roster, client_numbers


class Newcomers:
    """Asks new nodes to describe themselves, though nobody waits for them, and finds a client for each.

    A node takes the place of a client that has none, or whose own is no longer connected: a device that was restarted
    may have a new id, and one that was replaced the partition of the old.
    """

    def __init__(self, grid: Grid, roster: Roster, fleet: Fleet | None, folder: Path | None) -> None:
        """Start with the nodes that the roster knows; ``folder``: where the roster is written."""
        self.roster, self.fleet, self.folder = roster, fleet, folder
        self._asking = Messenger(grid, {})
        self._sent: dict[str, int] = {}  # messages, and the nodes that they went to
        self._again: dict[int, float] = {}  # when to ask a node once more, on the monotonic clock
        self._times: Counter[int] = Counter()  # that it has been asked
        self._described: dict[int, NodeDescription] = {}  # by node: those that wait for a place

    def admit(self, messenger: Messenger) -> None:
        """Ask nodes that are new, and let those that have described themselves stand for their clients."""
        connected = set(self._asking.grid.get_node_ids())
        for waiting in (self._again, self._described):
            for node in set(waiting) - connected:
                del waiting[node]
        for node in sorted(connected - set(self.roster.nodes) - set(self._described)):
            if self._again.get(node, 0.0) <= time.monotonic():
                self._ask(node)
        for reply in self._asking.arrived(self._sent):
            self._hear(reply)
        placed = [node for node in list(self._described) if self._place(node, connected, messenger)]
        if placed and self.folder is not None:
            self.roster.write(self.folder)

    def forget_all(self) -> None:
        """Wait for no description any longer."""
        self._asking.forget_all()

    def _ask(self, node: int) -> None:
        """Ask a node to describe itself; if it does not, it is asked again, after twice as long each time."""
        self._times[node] += 1
        self._again[node] = time.monotonic() + describing.DESCRIBE_SECONDS * 2 ** (self._times[node] - 1)
        self._asking.assign(node, node)
        self._sent |= ask_to_describe(self._asking, [node])

    def _hear(self, reply: Reply) -> None:
        node = reply.client
        try:
            one = read_description(node, reply)
        except InputError as error:
            log(WARNING, f"it is not drawn: {error}")
            return
        self._described[node] = one
        if not client_numbers([one], self.roster.clients, self.fleet):
            log(WARNING, f"node {node} is none of the {len(self.roster.fleet)} clients of this run: it is not drawn")

    def _place(self, node: int, connected: set[int], messenger: Messenger) -> bool:
        """Let a node take the place of its client, if that is free."""
        clients = self.roster.clients
        for client, one in client_numbers([self._described[node]], clients, self.fleet).items():
            if client not in clients or clients[client].node not in connected:
                del self._described[node]
                clients[client] = one
                messenger.assign(node, client)
                log(INFO, f"node {node} takes the place of client {client}")
                return True
        return False
