"""Clients that come and go: who is available in each round."""

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from fedtempo.checks import Booleans, InputError, Vector, check_positive
from fedtempo.randomness import stream
from fedtempo.simulator.chain import Chain
from fedtempo.simulator.channel import Channel, ChannelState, per_client


class WithAbsences:
    """A channel whose clients come and go, each by a two-state Markov chain of its own, stationary from round 0.

    A client is available in a share ``present_share`` of the rounds. An absence lasts ``absence_rounds`` on average,
    hence a presence absence_rounds · share/(1 - share). Without ``absence_rounds`` rounds are independent: plain
    dropouts. Both may differ between clients. Where the channel has absences already, a client is available if both say
    so.

    In a round in which nobody would be available one client is, drawn uniformly, for this round only, from all whom the
    channel allows; the chains do not notice. With equal shares this adds (1 - share)^N / N to each client's share,
    which is nothing unless few clients are mostly absent. A single client is always available.
    """

    def __init__(
        self,
        channel: Channel,
        *,
        present_share: npt.ArrayLike,
        seed: int,
        absence_rounds: npt.ArrayLike | None = None,
    ) -> None:
        """Take one number for all clients or one for each."""
        self._channel, self._seed = channel, seed
        self._size = len(channel.at(0, 0.0))
        share = self._one_or_each("present_share", present_share)
        if share.max() > 1:
            raise InputError(name="present_share", rule="lie above 0 and not above 1", got=f"{share.max():g}")
        length = 1 / share if absence_rounds is None else self._one_or_each("absence_rounds", absence_rounds)
        shortest = np.maximum(1.0, (1 - share) / share * (1 - 1e-12))
        if np.any(length < shortest):
            raise InputError(
                name="absence_rounds",
                rule="be at least 1 and (1 - present_share)/present_share, so that presences last a round or more too",
                got=f"{np.min(length):g}",
            )
        self._share, self._return_prob = share, 1 / length
        self._leave_prob = (1 - share) / share / length  # as many leave as return: share · leave = (1 - share) · return
        self._present = Chain(self._first, self._next)

    def at(self, round_index: int, time: float) -> ChannelState:
        """Return the channel's times, and who is available in this round."""
        state = self._channel.at(round_index, time)
        present = self._present.at(round_index)
        available = present if state.available is None else present & state.available
        if not available.any():
            allowed = np.arange(self._size) if state.available is None else np.flatnonzero(state.available)
            available = np.zeros(self._size, dtype=bool)
            available[stream(self._seed, "nobody there", round_index).choice(allowed)] = True
        return replace(state, available=available)

    def _first(self) -> Booleans:
        return np.asarray(stream(self._seed, "absences", 0).random(self._size) < self._share)

    def _next(self, present: Booleans, round_index: int) -> Booleans:
        draw = stream(self._seed, "absences", round_index).random(self._size)
        return np.asarray(draw < np.where(present, 1 - self._leave_prob, self._return_prob))

    def _one_or_each(self, name: str, values: npt.ArrayLike) -> Vector:
        if np.ndim(values) == 0:
            return np.array(check_positive(name, float(values)))  # type: ignore[arg-type]
        return per_client(name, values, self._size, allow_zero=False)
