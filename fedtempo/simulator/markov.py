"""Channels that follow Markov chains from round to round: Rayleigh fading, and clients that come and go.

A chain is played from round 0 and its latest round is kept, so that rounds in ascending order cost one step each. A run
that resumes at round r pays r steps once, and a round before the latest starts over: slower, with the same answer.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from fedtempo.checks import InputError, Vector, check_fraction, check_positive
from fedtempo.randomness import stream
from fedtempo.simulator.channel import Booleans, Channel, ChannelState, per_client

State = TypeVar("State")

LARGEST_DECIBEL = 200.0


class FadingChannel:
    """Rayleigh fading, correlated from round to round: the Gauss-Markov model.

    Each client has a complex gain h, standard normal in round 0, and h ← ρ h + √(1-ρ²) e from one round to the next.
    Rounds, not seconds, are its unit of time. The rate is proportional to log2(1 + snr |h|²), scaled so that in each
    round the expected **upload time** is the client's nominal one: what a round costs is linear in t_i, so that a plan
    for the nominal times is right on average. (The mean rate is then higher than the nominal one.) Under plain Rayleigh
    fading this expectation would be infinite, as that of 1/|h|² is; so |h|² counts as ``deepest_fade_db`` where it is
    below that.
    """

    def __init__(
        self,
        compute_time: npt.ArrayLike,
        upload_time: npt.ArrayLike,
        *,
        correlation: float,
        seed: int,
        snr_db: float = 10.0,
        deepest_fade_db: float = -30.0,
    ) -> None:
        """Take nominal times of each client, ρ from 0 (independent rounds) to 1 (frozen), and the mean snr."""
        self._nominal = ChannelState(np.asarray(compute_time), np.asarray(upload_time))
        self._correlation = check_fraction("correlation", correlation)
        self._snr = _from_decibel("snr_db", snr_db, LARGEST_DECIBEL)
        self._deepest_fade = _from_decibel("deepest_fade_db", deepest_fade_db, 0.0)
        self._scaled_time = self._nominal.upload_time / mean_inverse_rate(self._snr, self._deepest_fade)
        self._seed = seed
        self._latest: tuple[int, Vector] | None = None

    def at(self, round_index: int, time: float) -> ChannelState:
        """Return the times of a round, whenever it starts."""
        latest = self._latest = _play_to(round_index, self._latest, lambda: self._noise(0), self._next)
        gain = np.square(latest[1]).sum(axis=0)
        np.maximum(gain, self._deepest_fade, out=gain)
        return ChannelState(self._nominal.compute_time, self._scaled_time / np.log1p(self._snr * gain))

    def _next(self, h: Vector, round_index: int) -> Vector:
        rho = self._correlation
        return np.asarray(rho * h + np.sqrt(1 - rho**2) * self._noise(round_index))

    def _noise(self, round_index: int) -> Vector:
        """Return standard complex normal numbers as rows of real and imaginary parts, E|h|² = 1."""
        return stream(self._seed, "fading", round_index).normal(scale=np.sqrt(0.5), size=(2, len(self._nominal)))


def mean_inverse_rate(snr: float, deepest_fade: float) -> float:
    """E[1 / ln(1 + snr max(x, deepest_fade))] for the squared gain x ~ Exp(1) of Rayleigh fading."""
    # Over s = ln x the integrand is smooth on the scale of 1 wherever the two bounds lie: 20 nodes for each unit of s.
    low, high = np.log(deepest_fade), np.log(40.0)  # e^-40 is beyond the last digit
    edges = np.linspace(low, high, int(np.ceil(high - low)) + 1)
    nodes, weights = np.polynomial.legendre.leggauss(20)
    half = (edges[1] - edges[0]) / 2
    x = np.exp(edges[:-1, np.newaxis] + half * (1 + nodes))
    in_fade = -np.expm1(-deepest_fade) / np.log1p(snr * deepest_fade)
    return float(in_fade + half * np.sum(weights * x * np.exp(-x) / np.log1p(snr * x)))


class WithAbsences:
    """A channel whose clients come and go, each by a two-state Markov chain of its own, stationary from round 0.

    A client is there in a share ``present_share`` of the rounds. An absence lasts ``absence_rounds`` on average, hence
    a presence absence_rounds · share/(1 - share). Without ``absence_rounds`` rounds are independent: plain dropouts.
    Both may differ between clients. Where the channel has absences already, a client is there if both say so.

    In a round in which nobody would be there one client is, drawn uniformly, for this round only, from all whom the
    channel allows; the chains do not notice. With equal shares this adds (1 - share)^N / N to each client's share,
    which is nothing unless few clients are mostly away. A single client is always there.
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
        self._latest: tuple[int, Booleans] | None = None

    def at(self, round_index: int, time: float) -> ChannelState:
        """Return the channel's times, and who is there in this round."""
        state = self._channel.at(round_index, time)
        latest = self._latest = _play_to(round_index, self._latest, self._first, self._next)
        available = latest[1] if state.available is None else latest[1] & state.available
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


def _play_to(
    round_index: int,
    latest: tuple[int, State] | None,
    first: Callable[[], State],
    following: Callable[[State, int], State],
) -> tuple[int, State]:
    """Play a Markov chain from its latest known round to this one, or from round 0 where it is already past it."""
    if round_index < 0:
        raise InputError(name="round_index", rule="be zero or positive", got=f"{round_index}")
    reached, state = latest if latest is not None and latest[0] <= round_index else (0, first())
    for passed in range(reached + 1, round_index + 1):
        state = following(state, passed)
    return round_index, state


def _from_decibel(name: str, value: float, largest: float) -> float:
    if not -LARGEST_DECIBEL <= value <= largest:
        raise InputError(name=name, rule=f"lie between {-LARGEST_DECIBEL:g} and {largest:g} decibel", got=f"{value}")
    return float(10 ** (value / 10))
