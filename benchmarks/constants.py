"""What other constants of tempo, or settings of training, would bring: seconds to the target over several draws.

    python benchmarks/constants.py setup1 --draws 1000:1010 --step-size 0.1 SMALL_COHORT=3 "SMALL_COHORT=5;FLOOR=0.2"
    python benchmarks/constants.py setup3 --policy weighted upload_bits=8 "upload_bits=4;server_average=0.8"

Each variant names constants of fedtempo/policies/tempo/constants.py, in capitals, or settings of training; the policy
as it is runs beside them, on the same draws (of data, times and training) at preset best. Prints a line for each: the
geometric mean, in which runs that missed the target enter at the limit, the updates that arrived in a run, the seconds
that each took, and every draw.
"""

import argparse
import ast
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import fields
from itertools import product
from pathlib import Path
from unittest.mock import patch

import numpy as np
from joblib import Parallel, delayed

from fedtempo.engine.divergence import DivergedError
from fedtempo.engine.settings import TrainingSettings
from fedtempo.engine.slow_clients import mean_loss, slowest
from fedtempo.experiments.ranking.setup_grids import GRIDS
from fedtempo.experiments.running.runner import ready, simulation_of
from fedtempo.experiments.settings.config import DEFAULT_PRESET
from fedtempo.experiments.settings.config_file import has_preset, load_experiment
from fedtempo.policies.tempo import constants

CONFIGS = Path(__file__).parents[1] / "configs"
SLOW = 0.1  # of the clients, those that upload slowest
BETWEEN_SEEDS = 10_000  # of one draw and the next


def outcome(
    setup: str, policy: str, variant: str, draw: int, seed: int, training: dict, limit: float, growth: float = 0.0
) -> tuple[float, int, float, float]:
    """Return the time to the target, or infinity, how many updates arrived, the time that this took, and a loss.

    The loss is that of the tenth of the clients that upload slowest, at the end. All time counts, that of a pilot
    which finds a step size too. ``growth`` is the time between two looks at the loss, as a share of the time so far.
    """
    training = training | settings_in(variant)
    seeds = {name: {"seed": draw} for name in ("data", "times", "channel")}
    looks = {"evaluate_growth": growth or GRIDS[setup].looks_apart}
    over = seeds | {"policy": {policy: {"training": training}}, "training": looks, "stop": {"max_time": limit}}
    path = CONFIGS / f"{setup}.toml"
    experiment = load_experiment(path, "best" if has_preset(path, "best") else DEFAULT_PRESET, over=over)
    with ready(experiment), changed(variant), suppress(DivergedError):
        simulation = simulation_of(experiment, policy, seed)
        updates = 0
        for record in simulation.rounds():
            updates += len(record.members)
            if simulation.state.time_to_loss is not None:
                break
    state = simulation.state
    reached = np.inf if state.time_to_loss is None else state.time_to_loss + state.pilot_time
    who = slowest(simulation.fleet, SLOW)
    losses = simulation.clients.losses(simulation.model, simulation.buffers, who)
    slow_loss = mean_loss(losses, simulation.fleet.data_share[who])
    return reached, updates, state.time, slow_loss


def named_in(variant: str) -> dict[str, object]:
    """Return the constants and settings that a variant names, and their values."""
    found = {}
    known = {field.name for field in fields(TrainingSettings)}
    for name, _, value in (part.partition("=") for part in variant.split(";") if part):
        if not (hasattr(constants, name) if name.isupper() else name in known):
            raise SystemExit(f"a variant must name constants of tempo or settings of training, got {name}")
        try:
            found[name] = ast.literal_eval(value)
        except ValueError:
            found[name] = value
    return found


def settings_in(variant: str) -> dict[str, object]:
    """Return the settings of training alone."""
    return {name: value for name, value in named_in(variant).items() if not name.isupper()}


@contextmanager
def changed(variant: str) -> Iterator[None]:
    """Give the constants that a variant names other values for a while."""
    with ExitStack() as stack:
        for name, value in named_in(variant).items():
            if not name.isupper():
                continue
            stack.enter_context(patch.object(constants, name, value))
        yield


def main() -> None:
    """Run all variants on all draws."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("setup", choices=tuple(GRIDS))
    parser.add_argument("variants", nargs="*", metavar="NAME=VALUE[;NAME=VALUE]")
    parser.add_argument("--policy", default="tempo", help="another one, to compare with")
    parser.add_argument("--draws", default="1000:1010", help="the first, and the one after the last")
    parser.add_argument("--seeds", type=int, default=1, help="of training, for each draw")
    parser.add_argument("--step-size", type=float)
    parser.add_argument("--cohort-size", type=int)
    parser.add_argument("--server-momentum", type=float)
    parser.add_argument("--limit", type=float, help="simulated seconds; that of leaderboards unless given")
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_intermixed_args()
    for variant in given.variants:
        if given.policy != "tempo" and len(settings_in(variant)) < len(named_in(variant)):
            parser.error(f"constants are of tempo, got {variant} for {given.policy}")
    limit = GRIDS[given.setup].time_limit if given.limit is None else given.limit
    names = ("step_size", "cohort_size", "server_momentum")
    training = {name: value for name in names if (value := getattr(given, name)) is not None}
    draws = range(*map(int, given.draws.split(":")))
    runs = list(product(draws, range(given.seeds)))
    for variant in ["", *given.variants]:
        ends = Parallel(n_jobs=given.jobs)(
            delayed(outcome)(given.setup, given.policy, variant, draw, draw + BETWEEN_SEEDS * seed, training, limit)
            for draw, seed in runs
        )
        found, updates, spent, _ = np.array(ends).T
        mean = np.exp(np.log(np.minimum(found, limit)).mean())
        each = " ".join(f"{time:.0f}" if np.isfinite(time) else "-" for time in found)
        said = f"{mean:.1f} | {np.isinf(found).sum()} missed | {updates.mean():.0f} updates of "
        print(f"{variant or given.policy} | {said}{spent.sum() / updates.sum():.2f} s | {each}", flush=True)


if __name__ == "__main__":
    main()
