"""What records tell: clients' times and gradient bounds, β/α, and tables for other tools."""

import csv
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedtempo.checks import InputError, MissingDependencyError, Vector
from fedtempo.engine.records import read_records
from fedtempo.experiments.config import Experiment, for_policy
from fedtempo.experiments.toml import from_table
from fedtempo.files import whole_file
from fedtempo.fleet import Fleet
from fedtempo.theory.estimation import BetaOverAlphaEstimate, estimate_beta_over_alpha, estimate_gradient_bounds

PHASES = {"pilot-uniform": "uniform", "pilot-weighted": "weighted"}
Curve = list[tuple[int, float]]  # losses after rounds, where they were evaluated


@dataclass(frozen=True, eq=False, slots=True)
class FleetEstimate:
    """A fleet as its records show it."""

    fleet: Fleet
    unseen: int  # clients that never trained: they take the medians of the others
    beta_over_alpha: BetaOverAlphaEstimate | None  # None: the records hold no uniform and weighted runs to compare


def estimate_fleet(runs: list[Path]) -> FleetEstimate:
    """Read τ, t, G and β/α back out of the records of some runs of one fleet.

    R to each loss F_s is the mean over the runs of a scheme, NaN where one of them does not get there.
    """
    first: dict[str, Any] = {}
    everything: list[dict[str, Any]] = []
    reached: dict[str, list[list[float]]] = {scheme: [] for scheme in PHASES.values()}
    for run in runs:
        header, rounds, _ = read_records(run)
        settings = _settings(header)
        first = first or settings
        for name, value in settings.items():
            if value != first.get(name):
                raise InputError(
                    name=run, rule=f"have the same {name} as {runs[0]}", got="another", remedy="name fewer runs"
                )
        everything += rounds
        for scheme, curve in _curves(header["policy"], rounds).items():
            reached[scheme].append(_rounds_to(curve, first["losses"] or []))
    fleet, unseen = measured_fleet(first["clients"][1], everything)
    ratio = None
    if first["losses"] and all(reached.values()):
        uniform, weighted = (np.mean(reached[scheme], axis=0) for scheme in ("uniform", "weighted"))
        ratio = estimate_beta_over_alpha(fleet, uniform, weighted, cohort_size=first["cohort size"])
    return FleetEstimate(fleet, unseen, ratio)


def measured_fleet(samples: Sequence[int], rounds: Iterable[dict[str, Any]]) -> tuple[Fleet, int]:
    """Return the fleet that some rounds show: mean times and the largest gradient norm of each client.

    Clients that never trained, whose number is returned too, get the medians of the others.
    """
    names = ("members", "compute_time", "upload_time", "largest_gradient_norm")
    columns = [
        np.array([value for record in rounds for value in record[name]], dtype=np.float64)
        for rounds in [list(rounds)]
        for name in names
    ]
    there = ~np.isnan(columns[1])
    if not there.any():
        raise InputError(name="the runs", rule="hold at least one round", got="none")
    clients, compute, upload, norm = (column[there] for column in columns)
    clients, size = clients.astype(np.int64), len(samples)
    bound = estimate_gradient_bounds(clients, norm, num_clients=size).gradient_bound
    compute, upload = (_mean_or_median(clients, values, size) for values in (compute, upload))
    share = np.array(samples, dtype=np.float64) / sum(samples)
    return Fleet(share, bound, compute, upload), size - len(np.unique(clients))


def export_runs(runs: list[Path], path: Path) -> int:
    """Write one row for each round of some runs as Parquet or CSV, by the ending; return how many."""
    rows = [row for run in runs for row in _rows(run)]
    if path.suffix == ".csv":
        write_csv(rows, path)
    elif path.suffix == ".parquet":
        try:
            import pyarrow
            import pyarrow.parquet
        except ImportError:
            raise MissingDependencyError("pyarrow", "report", "Parquet") from None
        with whole_file(path, "wb") as stream:
            pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), stream)
    else:
        raise InputError(name="the file's ending", rule="be .parquet or .csv", got=repr(path.name))
    return len(rows)


def write_csv(rows: list[dict[str, Any]], path: Path) -> None:
    """Write rows of the same columns; lists as JSON."""
    with whole_file(path) as stream:
        writer = csv.DictWriter(stream, fieldnames=list(rows[0]) if rows else [], lineterminator="\n")
        writer.writeheader()
        for row in rows:
            writer.writerow({name: json.dumps(one) if isinstance(one, list) else one for name, one in row.items()})


def _settings(header: dict[str, Any]) -> dict[str, Any]:
    """Return what runs must share to be read together, by the name that a message gives it."""
    if "data" not in header["config"]:  # an app of somebody's own
        return _settings_of_an_app(header)
    experiment = from_table(Experiment, header["config"])
    training, options = for_policy(experiment, header["policy"])
    pilots = options if "losses" in options else for_policy(experiment, "proposed")[1]
    return {
        "clients": (header["data_checksum"], header["samples"]),
        "model": experiment.model.kind,
        "times": experiment.times,
        "channel": experiment.channel,
        "cohort size": training.cohort_size,
        "losses": pilots.get("losses"),
    }


def _settings_of_an_app(header: dict[str, Any]) -> dict[str, Any]:
    """Return the same of a run on Flower nodes that is no experiment of a configuration."""
    config = header["config"]
    return {
        "clients": (header["data_checksum"], header["samples"]),
        "cohort size": config["training"]["cohort_size"],
        "losses": config["policy"].get(header["policy"], {}).get("losses"),
    }


def _curves(policy: str, rounds: list[dict[str, Any]]) -> dict[str, Curve]:
    """Return the curves of one run: of uniform and of weighted sampling, as its policy or as its pilots."""
    curves: dict[str, Curve] = {}
    for record in rounds:
        scheme = policy if record["phase"] == "train" else PHASES.get(record["phase"], "")
        if scheme in PHASES.values() and record["loss"] is not None:
            curves.setdefault(scheme, []).append((record["round"] + 1, record["loss"]))
    return curves


def _rows(run: Path) -> Iterator[dict[str, Any]]:
    header, rounds, _ = read_records(run)
    for record in rounds:
        record.pop("note", None)
        named = {name: header.get(name) for name in ("experiment", "preset", "policy", "seed")}
        yield {"run": str(run.parent), **named, **record}


def _mean_or_median(clients: np.ndarray, values: Vector, size: int) -> Vector:
    count = np.bincount(clients, minlength=size)
    mean = np.bincount(clients, weights=values, minlength=size) / np.maximum(count, 1)
    mean[count == 0] = np.median(mean[count > 0])
    return np.asarray(mean)


def _rounds_to(curve: Curve, targets: list[float]) -> list[float]:
    """Return after how many rounds a curve first reaches each target; NaN where it does not."""
    return [next((float(rounds) for rounds, loss in curve if loss <= target), np.nan) for target in targets]
