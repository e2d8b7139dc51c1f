"""The header of a strategy's records."""

import zlib
from collections.abc import Mapping
from importlib.metadata import version

import msgspec
import numpy as np

from fedtempo.checks import InputError, near_miss
from fedtempo.engine.records import FORMAT, Header
from fedtempo.experiments.running.identity import SERVER_SETTINGS, STEP_SETTINGS, used_settings
from fedtempo.experiments.running.provenance import made_with
from fedtempo.fleet import Fleet
from fedtempo.flower.strategy.roster import Roster
from fedtempo.flower.strategy.settings import StrategySettings


def check_header(over: Mapping[str, object] | None) -> None:
    """Refuse what is no field of a header, before any node is asked."""
    for name in over or {}:
        if name not in Header.__struct_fields__:
            remedy = near_miss(name, Header.__struct_fields__)
            raise InputError(name="header", rule="have fields of a header of records", got=repr(name), remedy=remedy)


def run_header(
    settings: StrategySettings, roster: Roster, num_rounds: int, over: Mapping[str, object] | None
) -> Header:
    """Return what a reader of the records must know; ``over`` lies over what the strategy itself knows."""
    name = settings.policy_name
    table = {
        "format": FORMAT,
        "experiment": "Flower app",
        "preset": None,
        "policy": name,
        "seed": settings.seed,
        "config": {
            "training": used_settings(settings.training, (*STEP_SETTINGS, *SERVER_SETTINGS)),
            "policy": {name: dict(settings.options)},
        },
        "data": "of the nodes",
        "data_checksum": _checksum(roster.fleet),
        "samples": roster.samples,
        "clock": settings.clock,
        **made_with(),
        **(over or {}),
    }
    try:
        header = msgspec.convert(table, Header)
    except msgspec.ValidationError as error:
        raise InputError(name="header", rule="have the values of a header", got=f"others ({error})") from None
    stop = {**header.config.get("stop", {}), "max_rounds": num_rounds, **settings.ends}
    return msgspec.structs.replace(
        header,
        config={"times": {}, **header.config, "stop": stop},
        versions={**header.versions, "flwr": version("flwr")},
        clock=settings.clock,
    )


def _checksum(fleet: Fleet) -> str:
    """Return what stands for the data, which lie on the nodes: all that is known of the fleet."""
    arrays = [fleet.data_share, fleet.gradient_bound, fleet.compute_time, fleet.upload_time]
    arrays += [np.array(fleet.total_bandwidth), *([] if fleet.bandwidth_cap is None else [fleet.bandwidth_cap])]
    return f"{zlib.crc32(b''.join(array.tobytes() for array in arrays)):08x}"
