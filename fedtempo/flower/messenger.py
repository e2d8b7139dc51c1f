"""Messages to clients by their number, and replies, over a Flower grid."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid

from fedtempo.checks import InputError
from fedtempo.flower.messages import ARRAYS, ASK, CONFIG, DESCRIBE, MEASURED

POLL_SECONDS = 0.1
AT_ONCE = 4  # nodes that are asked who they are in one go: each message may start a process on a small machine
DESCRIBE_SECONDS = 120.0  # that they have to answer


@dataclass(frozen=True, eq=False, slots=True)
class Reply:
    """What came back from a client: content, or what went wrong."""

    client: int
    message_id: str  # of the message that it answers
    content: RecordDict
    error: str | None = None

    def numbers(self) -> dict[str, Any]:
        """Return all metrics that it holds."""
        return {name: value for record in self.content.metric_records.values() for name, value in record.items()}


@dataclass(frozen=True, slots=True)
class Described:
    """What a node says of itself."""

    node: int
    partition: int | None
    examples: int | None


class Messenger:
    """Knows which node each client is."""

    def __init__(self, grid: Grid, nodes: Mapping[int, int]) -> None:
        """Take the grid, and the number of the client that each node id stands for."""
        self.grid = grid
        self.client_of = dict(nodes)
        self.node_of = {client: node for node, client in nodes.items()}
        if sorted(self.node_of) != list(range(len(nodes))):
            raise InputError(f"nodes must stand for the clients 0 to {len(nodes) - 1}, got {sorted(nodes.values())}")

    def online(self) -> npt.NDArray[np.bool_]:
        """Return which clients have a node that is there."""
        there = np.zeros(len(self.node_of), dtype=bool)
        there[[self.client_of[node] for node in self.grid.get_node_ids() if node in self.client_of]] = True
        return there

    def send(
        self, clients: Sequence[int], kind: str, arrays: ArrayRecord | None, configs: Sequence[Mapping[str, Any]]
    ) -> dict[str, int]:
        """Send each client its message; return the client of each message's id."""
        messages = [
            _message(self.node_of[client], kind, arrays, config)
            for client, config in zip(clients, configs, strict=True)
        ]
        ids = list(self.grid.push_messages(messages)) if messages else []
        if len(ids) != len(messages):
            raise RuntimeError(f"the grid must take all {len(messages)} messages, it took {len(ids)}")
        return dict(zip(ids, clients, strict=True))

    def arrived(self, sent: Mapping[str, int]) -> list[Reply]:
        """Return the replies that are there by now; who sent an error is found by the message that it answers."""
        if not sent:
            return []
        replies = []
        for message in self.grid.pull_messages(list(sent)):
            answered = message.metadata.reply_to_message_id
            if answered not in sent:
                continue
            error = (message.error.reason or f"error {message.error.code}") if message.has_error() else None
            replies.append(Reply(sent[answered], answered, RecordDict() if error else message.content, error))
        return replies

    def collect(self, sent: Mapping[str, int], seconds: float) -> dict[int, Reply]:
        """Wait for replies, at most so long; return what came from each client."""
        waiting, found, end = dict(sent), {}, time.monotonic() + seconds
        while waiting:
            for reply in self.arrived(waiting):
                found[reply.client] = reply
                del waiting[reply.message_id]
            if not waiting or time.monotonic() >= end:
                break
            time.sleep(POLL_SECONDS)
        return found


def wait_for_nodes(grid: Grid, count: int, seconds: float) -> list[int]:
    """Return the ids of the nodes that are there once there are enough."""
    end = time.monotonic() + seconds
    while len(nodes := sorted(grid.get_node_ids())) < count:
        if time.monotonic() >= end:
            raise InputError(
                f"at least {count} nodes must be connected, got {len(nodes)} after {seconds:g} s; start more "
                f"SuperNodes, or lower min_available_nodes"
            )
        time.sleep(POLL_SECONDS)
    return nodes


def describe_nodes(grid: Grid, nodes: Sequence[int]) -> Iterator[Described]:
    """Ask nodes who they are, a few at a time."""
    for first in range(0, len(nodes), AT_ONCE):
        some = nodes[first : first + AT_ONCE]
        asking = Messenger(grid, {node: number for number, node in enumerate(some)})
        sent = asking.send(range(len(some)), "train", None, [{ASK: DESCRIBE}] * len(some))
        found = asking.collect(sent, DESCRIBE_SECONDS)
        for number, node in enumerate(some):
            reply = found.get(number)
            if reply is None or reply.error is not None or MEASURED not in reply.content:
                said = "no answer" if reply is None else reply.error or "a reply without it"
                raise InputError(
                    f"node {node} must say who it is, got {said[:300]}; give its ClientApp mods=[tempo_client()], "
                    f"or the strategy nodes="
                )
            told = reply.numbers()
            yield Described(node, told.get("partition-id"), told.get("num-examples"))


def _message(node: int, kind: str, arrays: ArrayRecord | None, config: Mapping[str, Any]) -> Message:
    content = RecordDict({CONFIG: ConfigRecord(dict(config))})
    if arrays is not None:
        content[ARRAYS] = arrays
    return Message(content=content, dst_node_id=node, message_type=kind)
