"""The times that a simulated run sees in each round: static, or following traces. Others: fading.py, absences.py.

A channel is a function of the round and the time: what it answers never depends on what it was asked before. So a run
resumed from a checkpoint sees the times of one never stopped, and all policies under one seed see the same world.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt

from fedtempo.checks import Booleans, InputError, Vector, as_numbers, check_positive, first_violation
from fedtempo.randomness import stream
from fedtempo.simulator.traces import RateTrace, upload_seconds


@dataclass(frozen=True, eq=False, slots=True)
class ChannelState:
    """What N clients need in one round, seconds. Arrays are kept as read-only views, not copied."""

    compute_time: Vector  # τ_i
    upload_time: Vector  # t_i, alone with one unit of bandwidth, as in Fleet
    available: Booleans | None = None  # who is available, at least one; None: all are
    known: bool = True  # whether policies know these times before the round, or only what is measured in it

    def __post_init__(self) -> None:
        """Check what the loop relies on; it holds for channels that users write as well."""
        size = np.size(self.compute_time)
        for name in ("compute_time", "upload_time"):
            values = per_client(name, getattr(self, name), size, allow_zero=name == "compute_time")
            object.__setattr__(self, name, values)
        if self.available is not None:
            available = np.asarray(self.available).view()
            if available.dtype != np.bool_ or available.shape != (size,):
                raise InputError(
                    name="available",
                    rule=f"be true or false for each of the {size} clients",
                    got=f"shape {available.shape} of {available.dtype}",
                )
            if not available.any():
                raise InputError(
                    name="available",
                    rule="be true for at least one client",
                    got="none",
                    remedy="no round could take place",
                )
            available.flags.writeable = False
            object.__setattr__(self, "available", available)

    def __len__(self) -> int:
        """Return N."""
        return self.compute_time.size

    def __repr__(self) -> str:
        """Name the size, not the arrays."""
        available = len(self) if self.available is None else np.count_nonzero(self.available)
        return f"ChannelState({len(self)} clients, {available} available)"


class Channel(Protocol):
    """Where the loop asks for times."""

    def at(self, round_index: int, time: float) -> ChannelState:
        """Return the state for a round that starts at a time; the same question always gets the same answer."""


class StaticChannel:
    """Times that never change."""

    def __init__(self, compute_time: npt.ArrayLike, upload_time: npt.ArrayLike) -> None:
        """Keep one time of each kind for each client."""
        self._state = ChannelState(np.asarray(compute_time), np.asarray(upload_time))

    def at(self, round_index: int, time: float) -> ChannelState:
        """Return the same state each time, at no cost."""
        return self._state


class UnknownTimes:
    """A channel whose times nobody knows beforehand: policies have nominal ones, and what they measure."""

    def __init__(self, channel: Channel) -> None:
        """Take the channel."""
        self._channel = channel

    def at(self, round_index: int, time: float) -> ChannelState:
        """Return the channel's state, with times that policies do not know."""
        return replace(self._channel.at(round_index, time), known=False)


class ScaledUploads:
    """A channel over which uploads take a share of their time: they have fewer bits."""

    def __init__(self, channel: Channel, share: float) -> None:
        """Take the channel, and the share."""
        self._channel, self._share = channel, share

    def at(self, round_index: int, time: float) -> ChannelState:
        """Return the channel's state, with shorter uploads."""
        state = self._channel.at(round_index, time)
        return replace(state, upload_time=state.upload_time * self._share)


Untold = UnknownTimes  # its name until 0.1


class TraceChannel:
    """Uploads over recorded links: each client follows one of the traces, drawn at random, from an offset of its own.

    A trace is a client's rate when it has the whole link to itself, as ``uplink_mbps`` in ``read_fleet``. t_i is the
    time that the model takes if its upload starts with the round, times ``total_bandwidth``; how the rate changes while
    the client still computes is left out.
    """

    def __init__(
        self,
        compute_time: npt.ArrayLike,
        traces: Sequence[RateTrace],
        *,
        model_bits: float,
        seed: int,
        total_bandwidth: float = 1.0,
    ) -> None:
        """Draw a trace and an offset, uniform over its period, for each client."""
        if not traces:
            raise InputError(name="traces", rule="hold at least one trace", got="none")
        self._compute_time = per_client("compute_time", compute_time, np.size(compute_time), allow_zero=True)
        self._model_bits = check_positive("model_bits", model_bits)
        self._total_bandwidth = check_positive("total_bandwidth", total_bandwidth)
        size = self._compute_time.size
        choice = stream(seed, "trace choice").integers(len(traces), size=size)
        offset = stream(seed, "trace offsets").random(size)
        self._followers = []
        for number, trace in enumerate(traces):
            clients = np.flatnonzero(choice == number)
            # In order of their offset, so that the search through the trace moves forwards.
            clients = clients[np.argsort(offset[clients])]
            self._followers.append((trace, clients, offset[clients] * trace.period))

    @property
    def nominal_upload_time(self) -> Vector:
        """t_i at the mean rate of the trace that a client follows: what can be known beforehand."""
        seconds = np.empty_like(self._compute_time)
        for trace, clients, _ in self._followers:
            seconds[clients] = upload_seconds(self._model_bits, trace.mean_mbps)
        return seconds * self._total_bandwidth

    def at(self, round_index: int, time: float) -> ChannelState:
        """Return the times for uploads that start at this time, whatever the round."""
        seconds = np.empty_like(self._compute_time)
        for trace, clients, offset in self._followers:
            seconds[clients] = trace.delivery_seconds(offset + time, self._model_bits)
        return ChannelState(self._compute_time, seconds * self._total_bandwidth)


def per_client(name: str, values: npt.ArrayLike, size: int, *, allow_zero: bool) -> Vector:
    """Return a quantity of N clients as a read-only view, checked."""
    array = as_numbers(name, values).view()
    if array.shape != (size,) or size == 0:
        raise InputError(name=name, rule="have one entry for each client", got=f"shape {array.shape}")
    bad = first_violation(array, allow_zero=allow_zero)
    if bad is not None:
        rule = "zero or positive, and finite" if allow_zero else "positive and finite"
        raise InputError(name=name, rule=f"be {rule}", got=f"{array[bad]:g} for client number {bad}")
    array.flags.writeable = False
    return array
