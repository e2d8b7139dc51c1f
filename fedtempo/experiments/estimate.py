"""A fleet from records: clients' times and gradient bounds, and β/α."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, NoReturn, TypeAlias

import numpy as np

from fedtempo.checks import InputError, Integers, Vector, check_positive
from fedtempo.engine.records import Header, RoundRecord
from fedtempo.experiments.paper_numbers import PILOT_POLICIES
from fedtempo.experiments.running.results import Run, read_run
from fedtempo.experiments.settings.config import ChannelConfig, TimesConfig, decode_experiment, for_policy
from fedtempo.fleet import Fleet
from fedtempo.policies.registry import traits
from fedtempo.theory.estimation import BetaOverAlphaEstimate, estimate_beta_over_alpha, estimate_gradient_bounds

LossCurve: TypeAlias = list[tuple[int, float]]  # losses after rounds, where they were evaluated


@dataclass(frozen=True, eq=False, slots=True)
class FleetEstimate:
    """A fleet as its records show it."""

    fleet: Fleet
    unseen: int  # clients that never trained: they take the medians of the others
    beta_over_alpha: BetaOverAlphaEstimate | None  # None: there are no runs, or no losses, to compare
    missing: InputError | None = None  # what there is not that β/α needs: runs, losses, or runs that reached them


def estimate_fleet(paths: Sequence[Path], losses: Sequence[float] | None = None) -> FleetEstimate:
    """Return τ, t, G and β/α from the records of some runs of one fleet.

    R to each loss F_s is the mean over the runs of a scheme, NaN where one of them does not get there. ``losses``: the
    F_s; None takes those that the runs name.
    """
    runs = [read_run(path) for path in paths]
    first, *others = (_shared(run.header) for run in runs)
    for path, shared in zip(paths[1:], others, strict=True):
        for name, wanted, value in zip(first._fields, first, shared, strict=True):
            if value != wanted:
                _refuse(path, name.replace("_", " "), paths[0])
    fleet, unseen = measured_fleet(runs[0].header.samples, (record for run in runs for record in run.records))
    losses = _named_losses(runs, paths) if losses is None else [check_positive("losses", loss) for loss in losses]
    curves = [_curves(run) for run in runs]
    by_scheme = {scheme: [each[scheme] for each in curves if scheme in each] for scheme in PILOT_POLICIES}
    if missing := _lacking(by_scheme, losses):
        return FleetEstimate(fleet, unseen, None, missing)
    reached = (_mean_rounds(curves, losses) for curves in by_scheme.values())
    ratio = estimate_beta_over_alpha(fleet, *reached, cohort_size=first.cohort_size)
    return FleetEstimate(fleet, unseen, ratio, None if np.isfinite(ratio.ratios).any() else _too_low(by_scheme, losses))


def _refuse(path: Path, name: str, other: Path) -> NoReturn:
    raise InputError(path, f"have the same {name} as {other}", "another", "name fewer runs")


def measured_fleet(samples: Sequence[int], rounds: Iterable[RoundRecord]) -> tuple[Fleet, int]:
    """Return the fleet that some rounds show: mean times and the largest gradient norm of each client.

    Clients that never trained, whose number is returned too, get the medians of the others.
    """
    rounds = list(rounds)
    members = np.array([member for record in rounds for member in record.members], dtype=np.int64)
    compute, upload, norm = (
        np.array([value for record in rounds for value in record[name]], dtype=np.float64)
        for name in ("compute_time", "upload_time", "largest_gradient_norm")
    )
    known = ~np.isnan(compute)
    if not known.any():
        raise InputError(name="the runs", rule="hold at least one round", got="none")
    clients, size = members[known], len(samples)
    bound = estimate_gradient_bounds(clients, norm[known], num_clients=size).gradient_bound
    compute, upload = (_mean_or_median(clients, values[known], size) for values in (compute, upload))
    share = np.array(samples, dtype=np.float64) / sum(samples)
    return Fleet(share, bound, compute, upload), size - len(np.unique(clients))


def _mean_or_median(clients: Integers, values: Vector, size: int) -> Vector:
    count = np.bincount(clients, minlength=size)
    mean = np.bincount(clients, weights=values, minlength=size) / np.maximum(count, 1)
    mean[count == 0] = np.median(mean[count > 0])
    return np.asarray(mean)


class _Shared(NamedTuple):
    """What runs must have in common to be read together."""

    clients: tuple[str, list[int]]  # the checksum of the data, and how many samples each has
    cohort_size: int
    model: str | None = None  # None: of somebody's own app on Flower nodes, which is no experiment of a configuration
    times: TimesConfig | None = None
    channel: ChannelConfig | None = None
    problem: Mapping[str, object] | None = None  # one that was made in Python


def _shared(header: Header) -> _Shared:
    clients = header.data_checksum, header.samples
    if "data" not in header.config:
        own = header.config.get("policy", {}).get(header.policy, {}).get("training", {})
        size = own.get("cohort_size", header.config["training"]["cohort_size"])
        return _Shared(clients, int(size), problem=header.config.get("problem"))
    experiment = decode_experiment(header.config)
    training, _ = for_policy(experiment, header.policy)
    return _Shared(clients, training.cohort_size, experiment.model.kind, experiment.times, experiment.channel)


def _pilot_losses(header: Header) -> list[float] | None:
    """Return the losses F_s of the run's own pilots, or of the paper's scheme in its configuration; None if neither."""
    tables = header.config.get("policy", {})
    for policy in (header.policy, *(policy for policy in tables if traits(policy).papers)):
        if losses := tables.get(policy, {}).get("losses"):
            return [float(loss) for loss in losses]
    return None


def _named_losses(runs: Sequence[Run], paths: Sequence[Path]) -> list[float]:
    """Return the losses F_s that the runs name, [] where none does.

    Runs that name no losses, since their policies have no pilots, take those of the others.
    """
    named = [(path, losses) for path, run in zip(paths, runs, strict=True) if (losses := _pilot_losses(run.header))]
    for path, others in named:
        if others != named[0][1]:
            _refuse(path, "losses", named[0][0])
    return named[0][1] if named else []


def _lacking(by_scheme: Mapping[str, Sequence[LossCurve]], losses: Sequence[float]) -> InputError | None:
    """Say what β/α cannot be estimated without, None where all is there."""
    absent = [scheme for scheme, curves in by_scheme.items() if not curves]
    if absent:
        return InputError(
            name="β/α",
            rule="come from runs of uniform and of weighted sampling, or of pilots",
            got=f"none of {' or '.join(absent)}",
            remedy=f"run {' and '.join(absent)} too",
        )
    if not losses:
        remedy = "give {losses}, such as 1.2,1.1: those of [policy.proposed]"
        return InputError("β/α", "have losses to count rounds to", "none in these records", remedy)
    return None


def _too_low(by_scheme: Mapping[str, Sequence[LossCurve]], losses: Sequence[float]) -> InputError:
    """Say that no loss was reached by all runs, and which would have been."""
    lowest = {scheme: max(min(loss for _, loss in curve) for curve in curves) for scheme, curves in by_scheme.items()}
    ends = ", ".join(f"those of {scheme} got to {loss:.4g}" for scheme, loss in lowest.items())
    return InputError(
        name="β/α",
        rule="have a loss that all runs reached",
        got=f"{max(losses):g} as the highest",
        remedy=f"{ends}: let them go on, or give {{losses}} above these",
    )


def _mean_rounds(curves: Sequence[LossCurve], losses: Sequence[float]) -> Vector:
    return np.asarray(np.mean([_rounds_to(curve, losses) for curve in curves], axis=0))


def _curves(run: Run) -> dict[str, LossCurve]:
    """Return the curves of one run: of uniform and of weighted sampling, as its policy or as its pilots."""
    curves: dict[str, LossCurve] = {}
    for record in run.records:
        scheme = run.policy if record.trained else record.phase.removeprefix("pilot-")
        if scheme in PILOT_POLICIES and record.loss is not None:
            curves.setdefault(scheme, []).append((record.round + 1, record.loss))
    return curves


def _rounds_to(curve: LossCurve, targets: Sequence[float]) -> list[float]:
    """Return after how many rounds a curve first reaches each target; NaN where it does not."""
    return [next((float(rounds) for rounds, loss in curve if loss <= target), np.nan) for target in targets]
