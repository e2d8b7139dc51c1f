"""What records tell: clients' times and gradient bounds, β/α, and tables for other tools."""

import csv
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from fedtempo.checks import InputError, MissingDependencyError, Vector
from fedtempo.experiments.records import read_lines
from fedtempo.files import whole_file
from fedtempo.fleet import Fleet
from fedtempo.theory.estimation import BetaOverAlphaEstimate, estimate_beta_over_alpha, estimate_gradient_bounds

PHASES = {"pilot-uniform": "uniform", "pilot-weighted": "weighted"}


@dataclass(frozen=True, eq=False, slots=True)
class FleetEstimate:
    """A fleet as its records show it."""

    fleet: Fleet
    unseen: int  # clients that never trained: they take the medians of the others
    beta_over_alpha: BetaOverAlphaEstimate | None  # None: the records hold no uniform and weighted runs to compare


def estimate_fleet(runs: list[Path]) -> FleetEstimate:
    """Read τ, t, G and β/α back out of the records of some runs of one fleet."""
    seen: list[tuple[int, float, float, float]] = []
    curves: dict[str, list[float]] = {}
    header: dict[str, Any] = {}
    for run in runs:
        for record in read_lines(run):
            if "header" in record:
                if header and record["header"]["samples"] != header["samples"]:
                    raise InputError(
                        f"{run} must be a run of the same clients as the others, got other data; name fewer runs"
                    )
                header = record["header"]
            elif "members" in record:
                names = ("members", "compute_time", "upload_time", "largest_gradient_norm")
                rows = zip(*(record[name] for name in names), strict=True)
                seen += [row for row in rows if row[1] is not None]
                scheme = header["policy"] if record["phase"] == "train" else PHASES.get(record["phase"], "")
                if scheme in PHASES.values() and record["loss"] is not None:
                    curve = curves.setdefault(scheme, [])
                    if record["round"] == len(curve):  # the first run of a scheme counts, without gaps
                        curve.append(record["loss"])
    if not seen:
        raise InputError("the runs must hold at least one round, got none")
    samples = np.array(header["samples"], dtype=np.float64)
    clients, compute, upload, norm = (np.array(column) for column in zip(*seen, strict=True))
    clients = clients.astype(np.int64)
    bound = estimate_gradient_bounds(clients, norm, num_clients=len(samples))
    compute, upload = (_mean_or_median(clients, values, len(samples)) for values in (compute, upload))
    fleet = Fleet(samples / samples.sum(), bound.gradient_bound, compute, upload)
    options, size = header["config"].get("policy", {}).get("proposed", {}), header["config"]["training"]["cohort_size"]
    ratio = None
    if len(curves) == 2 and options.get("losses"):
        reached = [_rounds_to(curves[scheme], options["losses"]) for scheme in ("uniform", "weighted")]
        ratio = estimate_beta_over_alpha(fleet, *reached, cohort_size=size)
    return FleetEstimate(fleet, len(samples) - len(np.unique(clients)), ratio)


def export_runs(runs: list[Path], path: Path) -> int:
    """Write one row for each round of some runs as Parquet or CSV, by the ending; return how many."""
    rows = [row for run in runs for row in _rows(run)]
    if path.suffix == ".csv":
        with whole_file(path) as stream:
            _write_csv(rows, stream)
    elif path.suffix == ".parquet":
        try:
            import pyarrow
            import pyarrow.parquet
        except ImportError:
            raise MissingDependencyError("pyarrow", "report", "Parquet") from None
        with whole_file(path, "wb") as stream:
            pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), stream)
    else:
        raise InputError(f"the file's ending must be .parquet or .csv, got {path.name!r}")
    return len(rows)


def _rows(run: Path) -> Iterable[dict[str, Any]]:
    header: dict[str, Any] = {}
    for record in read_lines(run):
        if "header" in record:
            header = record["header"]
        elif "members" in record:
            record.pop("note", None)
            yield {name: header[name] for name in ("experiment", "policy", "seed")} | record


def _write_csv(rows: list[dict[str, Any]], stream: IO[str]) -> None:
    writer = csv.DictWriter(stream, fieldnames=list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({key: json.dumps(value) if isinstance(value, list) else value for key, value in row.items()})


def _mean_or_median(clients: np.ndarray, values: Vector, size: int) -> Vector:
    count = np.bincount(clients, minlength=size)
    mean = np.bincount(clients, weights=values, minlength=size) / np.maximum(count, 1)
    mean[count == 0] = np.median(mean[count > 0])
    return np.asarray(mean)


def _rounds_to(curve: list[float], targets: list[float]) -> list[float]:
    """Return after how many rounds a curve first reaches each target; NaN where it does not."""
    losses = np.array(curve)
    reached = [np.flatnonzero(losses <= target) for target in targets]
    return [float(rounds[0] + 1) if rounds.size else np.nan for rounds in reached]
