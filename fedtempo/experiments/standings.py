"""Runs of an earlier leaderboard, read back from the table of each run, so that others can be ranked beside them."""

import csv
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedtempo.checks import InputError
from fedtempo.experiments.comparison import Target, Times
from fedtempo.experiments.results import ORACLES

SETTINGS = ("step_size", "cohort_size", "server_momentum")
COLUMNS = ("policy", "draw", "seed", "reached", "seconds", "of_them_pilots", "code", "data", "target", *SETTINGS)


@dataclass(frozen=True, eq=False, slots=True)
class Standing:
    """What one policy took in one draw of the data, pilots counted."""

    training: dict[str, float]  # the settings that were chosen for it
    found: Times
    code: tuple[str, ...]  # that made each run
    worlds: frozenset[tuple[str, str]]  # the data and the target of its runs: one pair, unless somebody mixed them

    def times(self, target: Target) -> Times:
        """Return the seconds to the target, which is the one that its runs had."""
        return self.found


def read_standings(path: Path, *, seeds: int, draws: int, without: Sequence[str]) -> dict[str, list[Standing]]:
    """Return each policy's draws from the CSV of a leaderboard, but for those ``without``."""
    if not path.is_file():
        raise InputError(
            name="--beside", rule=f"be a folder of leaderboards with {path.name}", got=f"none in {path.parent}"
        )
    with path.open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    if missing := [name for name in COLUMNS if not rows or name not in rows[0]]:
        raise InputError(name=path, rule=f"have the column {missing[0]}", got="none", remedy="rank those policies anew")
    momentum = any(float(row["server_momentum"]) for row in rows)
    settings = SETTINGS if momentum else tuple(name for name in SETTINGS if name != "server_momentum")
    found = {}
    for policy in dict.fromkeys(row["policy"] for row in rows if row["policy"] not in without):
        own = [row for row in rows if row["policy"] == policy]
        expected = [(str(draw), str(seed)) for draw in range(draws) for seed in range(draw, seeds, draws)]
        if sorted((row["draw"], row["seed"]) for row in own) != sorted(expected):
            got = f"{len(own)} runs over {len({row['draw'] for row in own})} draws; name as many, or rank {policy} anew"
            raise InputError(name=path, rule=f"have {seeds} seeds over {draws} draws of {policy}", got=f"{got}")
        found[policy] = [
            _standing(policy, settings, [row for row in own if row["draw"] == str(draw)]) for draw in range(draws)
        ]
    return found


def _standing(policy: str, settings: Sequence[str], rows: list[dict[str, str]]) -> Standing:
    numbers = {name: int(rows[0][name]) if name == "cohort_size" else float(rows[0][name]) for name in settings}
    times = Times(
        policy, tuple(int(row["seed"]) for row in rows), np.array([float(row["seconds"]) for row in rows]),
        np.array([float(row["of_them_pilots"]) for row in rows]), np.array([row["reached"] == "True" for row in rows]),
        np.full(len(rows), np.nan), policy in ORACLES,
    )  # fmt: skip
    worlds = frozenset((row["data"], row["target"]) for row in rows)
    return Standing(numbers, times, tuple(row["code"] for row in rows), worlds)


def kept_from(path: Path, standings: dict[str, list[Standing]]) -> str:
    """Say which policies were not run, and what code made their runs."""
    codes = Counter(code for draws in standings.values() for one in draws for code in one.code)
    made = "; ".join(f"{code} ({count} runs)" for code, count in codes.items())
    return f"Kept from an earlier {path.name}: {', '.join(standings)}, with {made}."
