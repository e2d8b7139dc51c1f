"""Messages to clients by their number, and replies, over a Flower grid."""

import math
import queue
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import httpx
import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid

from fedtempo.checks import Booleans, InputError
from fedtempo.flower.strategy.failures import Failure, FailureKind, refused, shortened
from fedtempo.flower.strategy.messages import ARRAYS, CONFIG, DIRECTION, MessageConfig

POLL_SECONDS = 0.2
LONGEST_POLL_SECONDS = 0.5  # every look costs the SuperLink about ten milliseconds of computing
# What asking for a reply may raise; whatever else comes from making objects of the bytes that a client sent.
NETWORK_ERRORS = (OSError, httpx.HTTPError)


@dataclass(frozen=True, eq=False, slots=True)
class Reply:
    """What came back from a client: content, or what went wrong."""

    client: int
    message_id: str  # of the message that it answers
    content: RecordDict
    at: float  # when it came, on the monotonic clock
    failure: Failure | None = None

    def metrics(self) -> dict[str, float]:
        """Return all metrics that are single numbers; lists are none of ours."""
        metrics = [item for record in self.content.metric_records.values() for item in record.items()]
        return {name: value for name, value in metrics if not isinstance(value, list)}

    def numbers(self) -> dict[str, float]:
        """Return the metrics that are finite: one that cannot be counts as not reported."""
        return {name: value for name, value in self.metrics().items() if math.isfinite(value)}


class Messenger:
    """Knows which node each client is."""

    def __init__(self, grid: Grid, nodes: Mapping[int, int], size: int | None = None) -> None:
        """Take the grid, the number of the client that each node id stands for, and how many clients there are."""
        self.grid, self.size = grid, len(nodes) if size is None else size
        self.client_of = dict(nodes)  # with nodes that had a client before
        self.node_of = {client: node for node, client in nodes.items()}
        self._wanted: set[str] = set()  # messages whose replies are waited for
        self._arrived: queue.Queue[tuple[str, Message | BaseException, float]] = queue.Queue()
        if len(self.node_of) != len(nodes) or not set(self.node_of) <= set(range(self.size)):
            raise InputError(
                name="nodes",
                rule=f"stand for different clients of 0 to {self.size - 1}",
                got=f"{sorted(nodes.values())}",
            )

    def online(self) -> Booleans:
        """Return which clients have a node that is connected."""
        online = np.zeros(self.size, dtype=bool)
        nodes = set(self.grid.get_node_ids())
        online[[client for client, node in self.node_of.items() if node in nodes]] = True
        return online

    def assign(self, node: int, client: int) -> None:
        """Let a node stand for a client from now on."""
        self.client_of[node], self.node_of[client] = client, node

    def send(
        self,
        clients: Sequence[int],
        kind: str,
        arrays: ArrayRecord | None,
        configs: Sequence[MessageConfig],
        direction: ArrayRecord | None = None,
    ) -> dict[str, int]:
        """Send each client its message; return the client of each message's id.

        ``direction``: the server's last, where clients follow it.
        """
        records = {ARRAYS: arrays, DIRECTION: direction}
        messages = [
            _message(self.node_of[client], kind, records, config)
            for client, config in zip(clients, configs, strict=True)
        ]
        ids = list(self.grid.push_messages(messages)) if messages else []
        if len(ids) != len(messages):
            raise RuntimeError(f"the grid must take all {len(messages)} messages, it took {len(ids)}")
        self._wanted.update(ids)
        for message_id in ids:
            threading.Thread(target=self._wait_for, args=(message_id,), daemon=True).start()
        return dict(zip(ids, clients, strict=True))

    def arrived(self, sent: Mapping[str, int], seconds: float = 0.0) -> list[Reply]:
        """Return the replies that have arrived by now, or wait for the first, at most so long.

        Who sent an error is found by the message that it answers. Replies to messages that were not sent lately, or
        that nobody waits for any longer, are passed over.
        """
        replies: list[Reply] = []
        end = time.monotonic() + seconds
        while True:
            left = 0.0 if replies else end - time.monotonic()
            try:
                answered, found, at = self._arrived.get(block=left > 0, timeout=max(left, 0.0))
            except queue.Empty:
                return replies
            if isinstance(found, NETWORK_ERRORS):
                raise found
            if answered in sent:
                failure, content = _opened(found)
                replies.append(Reply(sent[answered], answered, content, at, failure))

    def forget(self, sent: Iterable[str]) -> None:
        """Wait for these replies no longer."""
        self._wanted.difference_update(sent)

    def forget_all(self) -> None:
        """Wait for nothing any longer."""
        self._wanted.clear()

    def collect(self, sent: Mapping[str, int], seconds: float) -> dict[int, Reply]:
        """Wait for replies, at most so long; return what came from each client."""
        waiting, end = dict(sent), time.monotonic() + seconds
        found: dict[int, Reply] = {}
        while waiting and (replies := self.arrived(waiting, end - time.monotonic())):
            for reply in replies:
                found[reply.client] = reply
                del waiting[reply.message_id]
        self.forget(waiting)
        return found

    def _wait_for(self, message_id: str) -> None:
        """Ask the grid for one reply until it has it.

        Each has a thread of its own: once an upload has begun, Flower waits for its end inside this call, and replies
        that have arrived already would wait with it.
        """
        pause = POLL_SECONDS / 2
        while message_id in self._wanted:
            try:
                for message in self.grid.pull_messages([message_id]):
                    self._arrived.put((message_id, message, time.monotonic()))
                    return
            except Exception as error:  # for the thread that waits to raise
                if message_id in self._wanted:
                    self._arrived.put((message_id, error, time.monotonic()))
                return
            time.sleep(pause)
            pause = min(1.2 * pause, LONGEST_POLL_SECONDS)


def _opened(found: Message | BaseException) -> tuple[Failure | None, RecordDict]:
    """Return what is wrong with a reply, None if nothing is, and its content."""
    if isinstance(found, BaseException):
        return refused(f"a reply must be readable, got {type(found).__name__}: {found}"), RecordDict()
    if found.has_error():
        reason = found.error.reason or f"error {found.error.code}"
        return Failure(FailureKind.ERROR, shortened(reason, keep_end=True)), RecordDict()
    return None, found.content


def _message(node: int, kind: str, records: Mapping[str, ArrayRecord | None], config: MessageConfig) -> Message:
    content = RecordDict({CONFIG: ConfigRecord(dict(config))})
    for name, record in records.items():
        if record is not None:
            content[name] = record
    return Message(content=content, dst_node_id=node, message_type=kind)
