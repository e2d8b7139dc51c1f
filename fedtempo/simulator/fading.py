"""Rayleigh fading: upload times that change from round to round, by the Gauss-Markov model."""

import numpy as np
import numpy.typing as npt

from fedtempo.checks import InputError, Vector, check_fraction
from fedtempo.randomness import stream
from fedtempo.simulator.chain import Chain
from fedtempo.simulator.channel import ChannelState

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
        self._gain = Chain(self._first, self._next)  # h

    def at(self, round_index: int, time: float) -> ChannelState:
        """Return the times of a round, whenever it starts."""
        gain: Vector = np.square(self._gain.at(round_index)).sum(axis=0)
        np.maximum(gain, self._deepest_fade, out=gain)
        return ChannelState(self._nominal.compute_time, self._scaled_time / np.log1p(self._snr * gain))

    def _first(self) -> Vector:
        return self._noise(0)

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


def _from_decibel(name: str, value: float, largest: float) -> float:
    if not -LARGEST_DECIBEL <= value <= largest:
        raise InputError(name=name, rule=f"lie between {-LARGEST_DECIBEL:g} and {largest:g} decibel", got=f"{value}")
    return float(10 ** (value / 10))
