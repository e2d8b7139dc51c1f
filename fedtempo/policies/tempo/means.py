"""How many updates a mean takes, and how many local steps each of them: those that together take the least time.

A step that is a mean of K updates, each noisier than its own way is long by the factor κ, takes 1 + κ/K times as many
steps as one without noise. Its updates go η g E E_c/(E + E_c - 1) far on local paths of the coherence E_c
(local_steps.py). K updates take K Y seconds, Y from the closed network of M clients in flight
(theory/closed_network.py), where M = (1 + s) K keeps updates from being stale by more than s steps. So the time to a
loss goes by

    (K + κ) · Y(M; E τ₁, t) · (E + E_c - 1)/E.

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


def quickest_means(
    compute: float, upload: float, *, usual: int, bend: float | None, least: int, most_in_flight: int
) -> Means:
    """Return K, at least ``least``, and E, at most as many as usual.

    ``compute``: seconds of the usual number of local steps; ``bend``: 1/E_c, None where it is not known, and E is the
    usual one. κ is ``least`` too: fewer than that would make steps of the full length swing.
    """
    choices = [usual]
    while bend is not None and choices[-1] / constants.FEWER_STEPS >= constants.FEWEST_STEPS:
        choices.append(round(choices[-1] / constants.FEWER_STEPS))
    arrivals = np.arange(least, max(most_in_flight, least) + 1)
    in_flight = np.clip(np.rint((1 + constants.STALE) * arrivals), 1, most_in_flight).astype(int)
    best, found = np.inf, Means(least, usual)
    for steps in choices:
        gaps = seconds_between(most_in_flight, compute * steps / usual, upload)[in_flight - 1]
        steps_of_way = 1.0 if bend is None else (1 + (steps - 1) * bend) / steps  # (E + E_c - 1)/E but for E_c
        times = (arrivals + least) * gaps * steps_of_way
        place = int(times.argmin())
        if times[place] < best:
            best, found = times[place], Means(int(arrivals[place]), steps)
    return found
