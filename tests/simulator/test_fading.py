"""Fading: the mean of the model, its correlation and its deepest fade."""

import itertools

import numpy as np
import pytest
from scipy.integrate import quad

from fedtempo.simulator.fading import FadingChannel, mean_inverse_rate


@pytest.mark.parametrize(("snr", "deepest"), [(10.0, 1e-3), (1e-3, 1e-3), (1e5, 1e-6), (3.0, 1.0), (1e20, 1e-20)])
def test_the_mean_of_a_fading_upload_is_a_known_integral(snr, deepest):
    def integrand(log_gain):
        gain = np.exp(log_gain)
        return gain * np.exp(-gain) / np.log1p(snr * gain)

    edges = np.linspace(np.log(deepest), np.log(700), 30)
    above = sum(quad(integrand, a, b, epsabs=0)[0] for a, b in itertools.pairwise(edges))
    below = (1 - np.exp(-deepest)) / np.log1p(snr * deepest)
    assert mean_inverse_rate(snr, deepest) == pytest.approx(above + below, rel=1e-9)


@pytest.mark.parametrize("correlation", [0.0, 0.8, 1.0])
def test_fading_keeps_the_nominal_mean_time_in_every_round(correlation):
    nominal = np.full(200_000, 3.0)
    channel = FadingChannel(nominal, nominal, correlation=correlation, seed=4)
    for r in (0, 1, 12):
        upload_time = channel.at(r, 0.0).upload_time
        spread = upload_time.std() / np.sqrt(nominal.size)
        assert abs(upload_time.mean() - 3.0) < 4 * spread
        assert spread < 0.05
        np.testing.assert_array_equal(channel.at(r, 0.0).compute_time, nominal)


def gains(channel, r, snr, nominal, deepest):
    """Read |h|² back out of the upload times."""
    return np.expm1(nominal / channel.at(r, 0.0).upload_time / mean_inverse_rate(snr, deepest)) / snr


@pytest.mark.parametrize("correlation", [0.0, 0.6, 0.95])
def test_fading_is_a_stationary_gauss_markov_chain(correlation):
    size, snr, deepest = 100_000, 10.0, 1e-9
    nominal = np.linspace(0.1, 5.0, size)
    channel = FadingChannel(nominal, nominal, correlation=correlation, seed=5, deepest_fade_db=-90.0)
    gain = np.array([gains(channel, r, snr, nominal, deepest) for r in range(9)])
    # |h|² ~ Exp(1) in each round, and its correlation over k rounds is the square of that of h, ρ^2k.
    assert gain.mean(axis=1) == pytest.approx(np.ones(9), abs=0.015)
    assert gain.std(axis=1) == pytest.approx(np.ones(9), abs=0.03)
    assert np.quantile(gain[8], [0.01, 0.5]) == pytest.approx([0.01005, np.log(2)], rel=0.1)
    for lag in (1, 3, 8):
        assert np.corrcoef(gain[0], gain[lag])[0, 1] == pytest.approx(correlation ** (2 * lag), abs=0.015)
    neighbours = np.corrcoef(gain[0, :-1], gain[0, 1:])[0, 1]
    assert neighbours == pytest.approx(0, abs=0.015)  # clients fade independently


def test_no_fade_is_deeper_than_the_deepest():
    nominal = np.ones(10_000)
    channel = FadingChannel(nominal, nominal, correlation=0.5, seed=6, snr_db=0.0, deepest_fade_db=-10.0)
    longest = 1 / np.log1p(0.1) / mean_inverse_rate(1.0, 0.1)
    assert channel.at(2, 0.0).upload_time.max() == pytest.approx(longest)
