"""A step size that nobody chose: the smallest at which local paths from w₀ gain nearly as much as they can.

A client's gain at η is its mean loss over the batches of a path at w₀, less that along the path of steps of η. It rises
in proportion to η as long as steps are short, is greatest where they are as long as the loss surface lets them be, and
falls beyond. Near the top it is flat: a step size several times shorter gains nearly as much, and disturbs the mean of
unlike clients less. So η is where the gain reaches GREAT of the greatest, found on a grid of RATIO and between two of
its places. Clients report losses alone: it costs no upload, and computing by a few of the quickest
(docs/decisions/0022-step-size.md).
"""

import math
from collections.abc import Callable

import numpy as np

from fedtempo.checks import InputError, Integers, Vector

GREAT = 0.9  # of the greatest gain
RATIO = 10**0.5  # between two step sizes that are tried
FIRST = 0.1  # step size that is tried first
MOST_PLACES = 16  # of the grid in each direction: eight decades
CLIENTS = 8  # that try: the quickest of those available
FEWEST_STEPS = 20  # of a path: one step ends before its loss is seen
STANDSTILL = 1e-30  # step size that leaves w₀ where it is

PathLossesOf = Callable[[Integers, float, int], Vector]  # of clients, for a step size and a number of steps
PathLosses = Callable[[float], Vector]  # of some clients along paths of a step size; ∞ where one left the numbers


def try_step_sizes(
    compute_time: Vector, available: Integers, local_steps: int, path_losses: PathLossesOf
) -> tuple[float, Integers]:
    """Return the step size that the quickest of those available find, and who they are."""
    clients, steps = quickest(compute_time, available), max(local_steps, FEWEST_STEPS)
    return choose_step_size(lambda step_size: path_losses(clients, step_size, steps)), clients


def quickest(compute_time: Vector, available: Integers) -> Integers:
    """Return the clients that try step sizes: of those available the ones that compute in the shortest time."""
    order = np.argsort(compute_time[available], kind="stable")
    return np.sort(available[order[:CLIENTS]])


def choose_step_size(path_losses: PathLosses) -> float:
    """Return the smallest step size with nearly the greatest gain, the median over clients."""
    at_first = path_losses(STANDSTILL)
    known = np.isfinite(at_first)
    before = at_first[known]
    found: dict[int, float] = {}

    def gain(place: int) -> float:
        if place not in found:
            along = path_losses(FIRST * RATIO**place)[known]
            lower = np.where(np.isfinite(along), before - np.nan_to_num(along), -np.inf)
            found[place] = float(np.median(lower)) if lower.size else -math.inf
        return found[place]

    top = _top(gain)
    if not gain(top) > 0:
        remedy = "no step size lowers the loss of w₀: look at the model and its data"
        raise InputError("step_size", "be a number", "auto", remedy)
    enough, place = GREAT * gain(top), top
    while gain(place - 1) >= enough and place > -MOST_PLACES:
        place -= 1
    little, much = max(gain(place - 1), 0.0), gain(place)
    part = (enough - little) / (much - little) if little < enough else 0.0
    return float(FIRST * RATIO ** (place - 1 + part))


def _top(gain: Callable[[int], float]) -> int:
    """Return the place of the greatest gain; where steps are much too long or too short, it lies the other way."""
    place = 0
    while place < MOST_PLACES and (gain(place + 1) > gain(place) or gain(place) == 0):
        place += 1
    while place > -MOST_PLACES and (gain(place - 1) > gain(place) or not gain(place) > 0):
        place -= 1
    return place
