"""How many updates a mean takes, and how many local steps each of them: those that together take the least time.

A step that is a mean of K updates takes 1 + ν/K times as many steps as one without noise, ν being the squared noise of
an update over the squared way of a step. Updates go η g E E_c/(E + E_c - 1) far on local paths of the coherence E_c
(local_steps.py). K of them take K Y seconds, Y from the closed network of M clients in flight
(theory/closed_network.py), where M = (1 + s) K keeps updates from being stale by more than s steps. So the time to a
loss goes by

    (K + ν) · Y(M; E τ₁, t) · (E + E_c - 1)/E.

Where links are slow, Y hardly depends on E or K: few updates in a mean, and as many local steps as ever. Where uploads
are short, fewer local steps make updates less stale, and more of them a second.
"""

from typing import NamedTuple

import numpy as np

from fedtempo.policies.tempo import constants
from fedtempo.theory.closed_network import seconds_between


class Means(NamedTuple):
    """What a mean is made of."""

    arrivals: int  # K
    local_steps: int  # E


class MeanSeconds(NamedTuple):
    """What an update takes on the mean."""

    compute: float  # of the usual number of local steps
    fixed: float  # beside computing, whatever delays nobody else: downloads
    upload: float  # over the whole link


def quickest_means(seconds: MeanSeconds, *, usual: int, bend: float | None, least: int, most_in_flight: int) -> Means:
    """Return K, at least ``least``, and E, at most as many as usual.

    ``bend``: 1/E_c; None where it is not known or E is not to be chosen, and E is the usual one. So it is where the
    fleet is too small for as many in flight as a mean may have: rounds are nearly synchronous there.
    """
    choices, fewest = [usual], max(usual * constants.SHORTEST_PATH, constants.FEWEST_STEPS)
    if (1 + constants.STALE) * least > most_in_flight:
        bend = None
    while bend is not None and choices[-1] / constants.FEWER_STEPS >= fewest:
        choices.append(round(choices[-1] / constants.FEWER_STEPS))
    arrivals = np.arange(least, max(most_in_flight, least) + 1)
    in_flight = np.clip(np.rint((1 + constants.STALE) * arrivals), 1, most_in_flight).astype(int)
    best, found = np.inf, Means(least, usual)
    for steps in choices:
        compute = seconds.compute * steps / usual + seconds.fixed
        gaps = seconds_between(most_in_flight, compute, seconds.upload)[in_flight - 1]
        updates = 1.0 if bend is None else (1 + (steps - 1) * bend) / steps  # for the way of one local step
        times = (arrivals + constants.NOISE_OF_AN_UPDATE) * gaps * updates
        place = int(times.argmin())
        if times[place] < best:
            best, found = times[place], Means(int(arrivals[place]), steps)
    return found
