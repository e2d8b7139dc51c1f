"""Nodes that are connected, and what they say of themselves."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from logging import INFO, WARNING

from flwr.app import MessageType
from flwr.serverapp import Grid

from fedtempo.checks import InputError
from fedtempo.flower.log import log
from fedtempo.flower.strategy.messages import ASK, DESCRIBE, MEASUREMENTS, NUM_EXAMPLES, PARTITION
from fedtempo.flower.strategy.messenger import POLL_SECONDS, Messenger, Reply

AT_ONCE = 4  # nodes that describe themselves in one go: each message may start a process on a small machine
DESCRIBE_SECONDS = 120.0  # that they have to answer


@dataclass(frozen=True, slots=True)
class NodeDescription:
    """What a node says of itself."""

    node: int  # its id
    partition: int | None
    examples: int | None


def wait_for_nodes(grid: Grid, count: int, seconds: float, *, least: int, settle: float = 0.0) -> list[int]:
    """Return the ids of the connected nodes once they are so many, or at least some when time is over.

    With ``settle``, more may connect: all are there when none has connected for so many seconds.
    """
    now = time.monotonic()
    end, seen, changed = now + seconds, -1, now
    while len(nodes := sorted(grid.get_node_ids())) < count or time.monotonic() < changed + settle:
        if len(nodes) != seen:
            seen, changed = len(nodes), time.monotonic()
            log(INFO, f"waiting for nodes: {seen} of {count}" if seen < count else f"{seen} nodes are connected")
        if time.monotonic() >= end:
            if len(nodes) >= least:
                break
            raise InputError(
                name=f"at least {least} nodes",
                rule="be connected",
                got=f"{len(nodes)} after {seconds:g} s",
                remedy="start more SuperNodes, or lower {min_available_nodes}",
            )
        time.sleep(POLL_SECONDS)
    return nodes


def describe_nodes(grid: Grid, nodes: Sequence[int]) -> tuple[list[NodeDescription], str]:
    """Ask nodes to describe themselves, a few at a time; return their descriptions, and the last reason for a lack."""
    found, problem = list[NodeDescription](), ""
    for first in range(0, len(nodes), AT_ONCE):
        some = nodes[first : first + AT_ONCE]
        asking = Messenger(grid, {node: number for number, node in enumerate(some)})
        replies = asking.collect(ask_to_describe(asking, range(len(some))), DESCRIBE_SECONDS)
        for number, node in enumerate(some):
            try:
                found.append(read_description(node, replies.get(number)))
            except InputError as error:
                problem = str(error)
                log(WARNING, f"{problem}; it is left out")
    return found, problem


def ask_to_describe(asking: Messenger, numbers: Sequence[int]) -> dict[str, int]:
    """Ask nodes to describe themselves, without waiting; return the number of each message's node."""
    return asking.send(numbers, MessageType.TRAIN, None, [{ASK: DESCRIBE}] * len(numbers))


def read_description(node: int, reply: Reply | None) -> NodeDescription:
    """Return what a node says of itself; refuse what is no description."""
    if reply is None:
        raise InputError(name=f"node {node}", rule=f"describe itself within {DESCRIBE_SECONDS:g} s", got="no reply")
    if reply.failure is not None or MEASUREMENTS not in reply.content:
        raise InputError(
            name=f"node {node}",
            rule="describe itself",
            got=f"{reply.failure or 'a reply without a description'}",
            remedy="if its ClientApp lacks mods=[tempo_client()], add them, or give the strategy {nodes}",
        )
    numbers = reply.numbers()
    if numbers.get(NUM_EXAMPLES, 1) < 1:
        raise InputError(name=f"node {node}", rule="have at least 1 example", got=f"{numbers[NUM_EXAMPLES]:g}")
    return NodeDescription(node, _whole(numbers.get(PARTITION)), _whole(numbers.get(NUM_EXAMPLES)))


def _whole(number: float | None) -> int | None:
    return None if number is None else int(number)
