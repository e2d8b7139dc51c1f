"""The clients of a section as points: what each costs and matters, and how often each policy draws it."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from fedtempo.checks import Integers, Vector
from fedtempo.experiments.comparing.amounts import count
from fedtempo.experiments.comparing.curves import is_wide
from fedtempo.experiments.running.results import Run
from fedtempo.theory.estimation import estimate_gradient_bounds

MOST_CLIENTS = 1500  # that a scatter plot shows
DIGITS = 5  # of the numbers in plots
FLEET_SETTINGS = ("data", "times", "channel")  # of a configuration: who the clients are


class GroupDraws(msgspec.Struct, frozen=True):
    """How often one group of runs drew each client; lists have an entry for each client that is shown."""

    noted: bool  # whether the share is q, which the policy noted
    share: list[float]
    draws: list[int]


class ClientAxes(msgspec.Struct, frozen=True):
    """Which axes should be logarithmic."""

    seconds: bool
    importance: bool
    share: bool


class ClientsPlot(msgspec.Struct, frozen=True):
    """Clients that have trained, by time; fields have the names that the page's script reads."""

    client: list[int]
    samples: list[float]
    compute: list[float]
    upload: list[float]
    seconds: list[float]
    norm: list[float]
    importance: list[float]
    groups: list[GroupDraws]
    uniform: float  # the share of uniform sampling
    clients: int  # of the fleet
    unseen: int  # of them have never trained
    never_drawn: bool  # whether a group never drew one that is shown
    log: ClientAxes


@dataclass(frozen=True, eq=False, slots=True)
class _Clients:
    """What is known of each client that has trained."""

    client: Integers
    samples: Vector
    compute: Vector
    upload: Vector
    norm: Vector  # the largest gradient norm that was seen
    importance: Vector

    @property
    def seconds(self) -> Vector:
        return self.compute + self.upload

    def only(self, shown: Integers) -> "_Clients":
        return _Clients(
            self.client[shown],
            self.samples[shown],
            self.compute[shown],
            self.upload[shown],
            self.norm[shown],
            self.importance[shown],
        )


@dataclass(frozen=True, eq=False, slots=True)
class _Draws:
    """Shares and draws of all clients in one group."""

    noted: bool
    share: Vector
    draws: Integers


def clients_plot(groups: Mapping[str, Sequence[Run]]) -> ClientsPlot | None:
    """Return time, importance and share of draws of each client; None where runs have different clients, or no rounds.

    A client's share is q where the policy noted it (the mean over seeds), or else the part of all draws in training
    that fell on it.
    """
    runs = [run for group in groups.values() for run in group]
    fleets = {repr([run.header.config.get(name) for name in FLEET_SETTINGS]) for run in runs}
    alike = len(fleets) == 1 and len({run.header.data_checksum for run in runs}) == 1
    known = _known(runs) if alike else None
    if known is None:
        return None
    order = np.argsort(known.seconds, kind="stable")  # the fastest and the slowest are always shown
    places = np.unique(np.linspace(0, order.size - 1, min(order.size, MOST_CLIENTS)).astype(np.int64))
    shown = known.only(order[places])
    size = len(runs[0].header.samples)
    draws = [_draws(group, size) for group in groups.values()]
    shares = np.concatenate([one.share[shown.client] for one in draws])
    return ClientsPlot(
        client=shown.client.tolist(),
        samples=short(shown.samples),
        compute=short(shown.compute),
        upload=short(shown.upload),
        seconds=short(shown.seconds),
        norm=short(shown.norm),
        importance=short(shown.importance),
        groups=[GroupDraws(d.noted, short(d.share[shown.client]), d.draws[shown.client].tolist()) for d in draws],
        uniform=1 / size,
        clients=size,
        unseen=size - order.size,
        never_drawn=bool((shares == 0).any()),
        log=ClientAxes(is_wide(shown.seconds), is_wide(shown.importance), is_wide(shares[shares > 0])),
    )


def clients_note(plot: ClientsPlot) -> str:
    """Say what the plot shows, and whom it cannot show."""
    shown, unseen = len(plot.client), plot.unseen
    text = (
        "A client's time is what it takes to compute and to upload alone on the link, its importance the data share "
        "times the largest gradient norm that was seen. The line across is uniform sampling. A share is q where the "
        "policy noted it, and else what it drew in training."
    )
    if shown + unseen < plot.clients:
        text += f" {shown:,} of {plot.clients:,} clients are shown."
    if unseen:
        text += f" {count(unseen, 'client')} of {plot.clients:,} never trained and cannot be shown."
    if plot.never_drawn:
        text += " A logarithmic axis leaves out who was never drawn."
    return text


def _known(runs: Sequence[Run]) -> _Clients | None:
    """Return mean times and largest gradient norms; None if nobody has trained."""
    samples = np.array(runs[0].header.samples, dtype=np.float64)
    rounds, compute, upload, norm = np.zeros((4, samples.size))
    for run in runs:
        columns = [
            _flat(record.members for record in run.records),
            _flat(record.compute_time for record in run.records),
            _flat(record.upload_time for record in run.records),
            _flat(record.largest_gradient_norm for record in run.records),
        ]
        who, *seen = (column[~np.isnan(columns[1])] for column in columns)  # those that failed have no times
        members = who.astype(np.int64)
        rounds += np.bincount(members, minlength=samples.size)
        compute += np.bincount(members, seen[0], samples.size)
        upload += np.bincount(members, seen[1], samples.size)
        np.maximum.at(norm, members, seen[2])
    client = np.flatnonzero(rounds)
    if not norm.any():
        return None
    bound = estimate_gradient_bounds(client, norm[client], num_clients=samples.size).gradient_bound[client]
    return _Clients(
        client=client,
        samples=samples[client],
        compute=compute[client] / rounds[client],
        upload=upload[client] / rounds[client],
        norm=bound,
        importance=samples[client] / samples.sum() * bound,
    )


def _flat(lists: Iterable[Sequence[float | None]]) -> Vector:
    """Return the numbers of all members in all rounds, NaN for None."""
    return np.array(list(itertools.chain.from_iterable(lists)), dtype=np.float64)


def _draws(group: Sequence[Run], num_clients: int) -> _Draws:
    draws = np.zeros(num_clients, dtype=np.int64)
    for run in group:
        members = _flat(record.members for record in run.trained).astype(np.int64)
        np.add.at(draws, members, _flat(record.counts for record in run.trained).astype(np.int64))
    noted = [run.note["sampling_prob"] for run in group if "sampling_prob" in run.note]
    return _Draws(bool(noted), np.mean(noted, axis=0) if noted else draws / max(1, draws.sum()), draws)


def short(values: Vector) -> list[float]:
    """Return numbers with as many digits as a plot can show."""
    return [float(f"{value:.{DIGITS}g}") for value in values.tolist()]
