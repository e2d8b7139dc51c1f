"""Messages to clients by their number, and replies, over a Flower grid."""

import math
import queue
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from logging import INFO, WARNING
from typing import Any

import httpx
import numpy as np
import numpy.typing as npt
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, RecordDict
from flwr.serverapp import Grid
from flwr.supercore import log
from flwr.supercore.inflatable.inflatable_utils import pull_objects
from flwr.superlink.grid import http_grid

from fedtempo.checks import InputError
from fedtempo.flower.strategy.messages import ARRAYS, ASK, CONFIG, DESCRIBE, MEASURED
from fedtempo.flower.testbed.watched import COLOURS

POLL_SECONDS = 0.2
LONGEST_POLL_SECONDS = 0.5  # every look costs the SuperLink about ten milliseconds of computing
AT_ONCE = 4  # nodes that are asked who they are in one go: each message may start a process on a small machine
DESCRIBE_SECONDS = 120.0  # that they have to answer
LONGEST_REASON = 300  # characters of what a client says went wrong
# What asking for a reply may raise; whatever else comes from making objects of the bytes that a client sent.
NETWORK_ERRORS = (OSError, httpx.HTTPError)


@dataclass(frozen=True, eq=False, slots=True)
class Reply:
    """What came back from a client: content, or what went wrong."""

    client: int
    message_id: str  # of the message that it answers
    content: RecordDict
    at: float  # when it came, on the monotonic clock
    error: str | None = None

    def metrics(self) -> dict[str, float]:
        """Return all metrics that are single numbers; lists are none of ours."""
        metrics = [item for record in self.content.metric_records.values() for item in record.items()]
        return {name: value for name, value in metrics if not isinstance(value, list)}

    def numbers(self) -> dict[str, float]:
        """Return those that are finite: what cannot be counts as not told."""
        return {name: value for name, value in self.metrics().items() if math.isfinite(value)}


@dataclass(frozen=True, slots=True)
class Described:
    """What a node says of itself."""

    node: int
    partition: int | None
    examples: int | None


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

    def online(self) -> npt.NDArray[np.bool_]:
        """Return which clients have a node that is there."""
        there = np.zeros(self.size, dtype=bool)
        nodes = set(self.grid.get_node_ids())
        there[[client for client, node in self.node_of.items() if node in nodes]] = True
        return there

    def assign(self, node: int, client: int) -> None:
        """Let a node stand for a client from now on."""
        self.client_of[node], self.node_of[client] = client, node

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
        self._wanted.update(ids)
        for message_id in ids:
            threading.Thread(target=self._wait_for, args=(message_id,), daemon=True).start()
        return dict(zip(ids, clients, strict=True))

    def arrived(self, sent: Mapping[str, int], seconds: float = 0.0) -> list[Reply]:
        """Return the replies that are there by now, or wait for the first, at most so long.

        Who sent an error is found by the message that it answers. Replies to messages that were not sent lately, or
        that nobody asks for any longer, are passed over.
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
                error, content = _opened(found)
                replies.append(Reply(sent[answered], answered, content, at, error))

    def forget(self, sent: Iterable[str]) -> None:
        """Ask for these replies no longer."""
        self._wanted.difference_update(sent)

    def forget_all(self) -> None:
        """Ask for nothing any longer."""
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
        """Ask for one reply until it is there.

        Each has a thread of its own: once an upload has begun, Flower waits for its end inside this call, and replies
        that are there already would wait with it.
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


def notice_ends_of_uploads() -> None:
    """Let Flower's grid look twice a second whether an upload is complete; by itself it pauses for up to ten seconds.

    Its pauses double from one second on, so that uploads of eight seconds are noticed after fifteen. They are defaults
    of a function and no setting of Flower's; nothing else of it changes. It gives up after two hours, as before.
    """
    http_grid.pull_objects = partial(  # type: ignore[attr-defined]  # where it looks the function up
        pull_objects,
        initial_backoff=POLL_SECONDS,
        backoff_cap=LONGEST_POLL_SECONDS,
        max_tries_per_object=None,
    )


def wait_for_nodes(grid: Grid, count: int, seconds: float, *, least: int, settle: float = 0.0) -> list[int]:
    """Return the ids of the nodes that are there once there are so many, or at least some when time is over.

    With ``settle``, more may come: all are there when none has come for so long.
    """
    now = time.monotonic()
    end, seen, changed = now + seconds, -1, now
    while len(nodes := sorted(grid.get_node_ids())) < count or time.monotonic() < changed + settle:
        if len(nodes) != seen:
            seen, changed = len(nodes), time.monotonic()
            log(INFO, f"waiting for nodes: {seen} of {count}" if seen < count else f"{seen} nodes are there")
        if time.monotonic() >= end:
            if len(nodes) >= least:
                break
            raise InputError(
                name=f"at least {least} nodes",
                rule="be connected",
                got=f"{len(nodes)} after {seconds:g} s",
                remedy="start more SuperNodes, or lower min_available_nodes",
            )
        time.sleep(POLL_SECONDS)
    return nodes


def describe_nodes(grid: Grid, nodes: Sequence[int]) -> tuple[list[Described], str]:
    """Ask nodes who they are, a few at a time; return what they say, and what the last one said who did not."""
    found, problem = list[Described](), ""
    for first in range(0, len(nodes), AT_ONCE):
        some = nodes[first : first + AT_ONCE]
        asking = Messenger(grid, {node: number for number, node in enumerate(some)})
        replies = asking.collect(ask_who(asking, range(len(some))), DESCRIBE_SECONDS)
        for number, node in enumerate(some):
            try:
                found.append(described(node, replies.get(number)))
            except InputError as error:
                problem = str(error)
                log(WARNING, f"{problem}; it is left out")
    return found, problem


def ask_who(asking: Messenger, numbers: Sequence[int]) -> dict[str, int]:
    """Ask nodes who they are, without waiting; return the number of each message's node."""
    return asking.send(numbers, MessageType.TRAIN, None, [{ASK: DESCRIBE}] * len(numbers))


def described(node: int, reply: Reply | None) -> Described:
    """Return what a node says of itself."""
    if reply is None:
        raise InputError(name=f"node {node}", rule=f"say who it is within {DESCRIBE_SECONDS:g} s", got="no answer")
    if reply.error is not None or MEASURED not in reply.content:
        raise InputError(
            name=f"node {node}",
            rule="say who it is",
            got=f"{reply.error or 'a reply without it'}",
            remedy="if its ClientApp lacks mods=[tempo_client()], add them, or give the strategy nodes=",
        )
    told = reply.numbers()
    if told.get("num-examples", 1) < 1:
        raise InputError(name=f"node {node}", rule="have at least 1 example", got=f"{told['num-examples']:g}")
    return Described(node, _whole(told.get("partition-id")), _whole(told.get("num-examples")))


def _whole(number: float | None) -> int | None:
    return None if number is None else int(number)


def _opened(found: Message | BaseException) -> tuple[str | None, RecordDict]:
    """Return what is wrong with a reply, None if nothing is, and its content."""
    if isinstance(found, BaseException):
        return said_in_short(f"refused: a reply must be readable, got {type(found).__name__}: {found}"), RecordDict()
    if found.has_error():
        return said_in_short(found.error.reason or f"error {found.error.code}", keep_end=True), RecordDict()
    return None, found.content


def said_in_short(text: str, *, keep_end: bool = False) -> str:
    """Return what a client says, whatever that is, as text for logs and records: of a traceback, its end."""
    text = COLOURS.sub("", text).strip().encode(errors="backslashreplace").decode()
    if len(text) <= LONGEST_REASON:
        return text
    return "… " + text[-LONGEST_REASON:] if keep_end else text[:LONGEST_REASON]


def _message(node: int, kind: str, arrays: ArrayRecord | None, config: Mapping[str, Any]) -> Message:
    content = RecordDict({CONFIG: ConfigRecord(dict(config))})
    if arrays is not None:
        content[ARRAYS] = arrays
    return Message(content=content, dst_node_id=node, message_type=kind)
