"""The experiment that the ready app runs, by its run config: the same on the server and on every node.

| key | |
|---|---|
| `config`, `preset` | a configuration file that the server and all nodes have, and a preset of it |
| `experiment` | or the experiment itself, as JSON, which then needs no file |
| `policy`, `seed`, `rounds` | what to run |
| `records` | the server's folder to write records to, and to go on from |
| `clock` | "wall", or "simulated" for Flower's simulation |
| `deadline` | seconds after which a round ends without those who have not answered |
| `nodes` | JSON: the client that each node id stands for; otherwise nodes are asked |
| `link`, `link-token` | host:port of the uplink's control, and the file that holds its token |
| `ballast` | bytes to send along with the model, to make it as large as another one |
| `emulate` | a folder that nodes on one machine share: they compute for their nominal times, a cohort at once |
"""

import json
from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord

from fedtempo.experiments.config import DEFAULT_PRESET, Experiment, make_experiment, read_experiment
from fedtempo.learning.trainer import Parameters
from fedtempo.randomness import stream

MODEL, BALLAST = "model", "ballast"  # the arrays that the app sends


def from_run_config(run_config: Mapping[str, Any]) -> Experiment:
    """Return the experiment that a run config names."""
    return _read(*_named(run_config))[0]


def table_of(run_config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the plain table that it was made from."""
    return _read(*_named(run_config))[1]


def _named(run_config: Mapping[str, Any]) -> tuple[str, str, str]:
    named = run_config.get("experiment", ""), run_config.get("config", ""), run_config.get("preset", DEFAULT_PRESET)
    return str(named[0]), str(named[1]), str(named[2])


@cache
def _read(table: str, path: str, preset: str) -> tuple[Experiment, dict[str, Any]]:
    if not table:
        return read_experiment(path, preset)
    plain = json.loads(table)
    return make_experiment(plain, preset), plain


def pack(model: Parameters, ballast: int = 0, *salt: int) -> ArrayRecord:
    """Return a model as the app sends it, with so many bytes of ballast.

    Ballast is whole numbers, which nobody trains; nothing compresses it, and with a salt of its own for each reply
    Flower cannot take it for something that the server has already.
    """
    arrays = {MODEL: Array(model)}
    if ballast:
        arrays[BALLAST] = Array(stream(0, "ballast", *salt).integers(256, size=ballast, dtype=np.uint8))
    return ArrayRecord(arrays)
