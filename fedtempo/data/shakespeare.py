"""Next-character prediction on Shakespeare's plays, with the roles as clients, as LEAF has it.

S. Caldas et al., "LEAF: A Benchmark for Federated Settings", 2018. A sample is 80 characters that a role says one after
another, its label the character after them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fedtempo.checks import InputError, Integers, check_count
from fedtempo.data.federation import FederatedData
from fedtempo.data.partition import apportion
from fedtempo.data.plays import Role, read_roles
from fedtempo.randomness import stream

LENGTH = 80  # characters of a sample
SHORTEST_TEXT = 500  # characters of a role that is a client
HELD_OUT_SHARE = 0.15  # of each role's text, from its end

# Those that are at least one in 2,500 of what roles say. Token 0 stands for all others, 0.13 % of the text.
CHARACTERS = "\n !',-.:;?ABCDEFGHILMNOPRSTWYabcdefghijklmnopqrstuvwxy"
NUM_TOKENS = 1 + len(CHARACTERS)


@dataclass(frozen=True, eq=False, slots=True)
class Sequences:
    """Samples of all roles, one role after another, as tokens."""

    inputs: Integers  # (n, 80)
    labels: Integers  # (n,): the next character
    owner: Integers  # (n,): the role, from 0
    test_inputs: Integers
    test_labels: Integers
    roles: tuple[str, ...]  # such as "HAMLET of hamlet"
    complete: bool  # the texts are those that ``fetch`` brings


class Windows(NamedTuple):
    """Where a role's samples may start: the first ``train`` places are for training, the rest for testing."""

    tokens: Integers
    train: int
    test: int


def shakespeare_data(*, num_clients: int, num_samples: int, seed: int) -> FederatedData:
    """Return so many samples of some roles, drawn at random from those with at least 500 characters.

    A role has samples in proportion to what it says. The last 15 % of its text are held out: labels for testing come
    from there, and none for training.
    """
    drawn = draw_sequences(*read_roles(), num_clients=num_clients, num_samples=num_samples, seed=seed)
    sizes = np.bincount(drawn.owner, minlength=num_clients)
    asked = "" if len(drawn.labels) == num_samples else f", {len(drawn.labels):,} samples"
    return FederatedData(
        inputs=drawn.inputs, labels=drawn.labels, offsets=np.concatenate([[0], np.cumsum(sizes)]),
        test_inputs=drawn.test_inputs, test_labels=drawn.test_labels,
        num_classes=NUM_TOKENS, input_shape=(LENGTH,),
        name=f"{'' if drawn.complete else 'partial '}Shakespeare{asked}", complete=drawn.complete,
        tokens=True,
    )  # fmt: skip


def draw_sequences(
    roles: Sequence[Role], complete: bool, *, num_clients: int, num_samples: int, seed: int
) -> Sequences:
    """Return random samples of random roles, in the order of the plays; no place in a text is drawn twice."""
    check_count("num_clients", num_clients)
    check_count("num_samples", num_samples)
    long_enough = [role for role in roles if len(role.text) >= SHORTEST_TEXT]
    if len(long_enough) < num_clients:
        raise InputError(
            name="clients",
            rule=f"be at most the {len(long_enough)} roles with {SHORTEST_TEXT} characters",
            got=f"{num_clients}",
        )
    rng = stream(seed, "roles")
    chosen = [long_enough[i] for i in np.sort(rng.choice(len(long_enough), num_clients, replace=False))]
    windows = [_windows(role.text) for role in chosen]
    train_places = np.array([window.train for window in windows])
    test_places = np.array([window.test for window in windows])
    total = min(num_samples, int(train_places.sum()))
    sizes = np.minimum(apportion(total, train_places, smallest=1), train_places)
    test_total = min(max(1, round(HELD_OUT_SHARE * total)), int(test_places.sum()))
    test_sizes = np.minimum(apportion(test_total, test_places), test_places)

    starts = [rng.choice(window.train, size, replace=False) for window, size in zip(windows, sizes, strict=True)]
    test_starts = [
        window.train + rng.choice(window.test, size, replace=False)
        for window, size in zip(windows, test_sizes, strict=True)
    ]
    return Sequences(
        *_samples(windows, starts), np.repeat(np.arange(num_clients), sizes), *_samples(windows, test_starts),
        tuple(f"{role.name} of {role.play}" for role in chosen), complete,
    )  # fmt: skip


def tokens_of(text: str) -> Integers:
    """Return the token of each character."""
    codes = np.frombuffer(text.encode("utf-32-le"), dtype=np.uint32)
    table = np.zeros(max(map(ord, CHARACTERS)) + 1, dtype=np.int64)
    table[[ord(character) for character in CHARACTERS]] = np.arange(1, NUM_TOKENS)
    tokens: Integers = np.where(codes < table.size, table[np.minimum(codes, table.size - 1)], 0)
    return tokens


def _windows(text: str) -> Windows:
    tokens = tokens_of(text)
    places, held_out = tokens.size - LENGTH, round(HELD_OUT_SHARE * tokens.size)
    return Windows(tokens, places - held_out, held_out)


def _samples(windows: Sequence[Windows], starts: Sequence[Integers]) -> tuple[Integers, Integers]:
    """Return the 80 characters from each start, and the one after them."""
    runs = [
        np.lib.stride_tricks.sliding_window_view(window.tokens, LENGTH + 1)[start]
        for window, start in zip(windows, starts, strict=True)
    ]
    every = np.concatenate(runs)
    return np.ascontiguousarray(every[:, :-1]), np.ascontiguousarray(every[:, -1])
