"""What a report says of some runs: who was first at the target, by how much, and what its plots show."""

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedtempo.checks import InputError, Integers, Vector
from fedtempo.experiments.comparison import Target, Times
from fedtempo.experiments.figures import (
    AXIS_LABELS,
    MOST_POINTS,
    PANELS,
    Style,
    average,
    curve,
    grouped,
    is_wide,
    level,
    log_axes,
    shown_range,
    thinned,
)
from fedtempo.experiments.results import Run
from fedtempo.experiments.tables import amount, factor_and_interval
from fedtempo.theory.estimation import estimate_gradient_bounds

MOST_SAID = 3  # policies that a headline names
MOST_CLIENTS = 1500  # that a scatter plot shows
SEED_POINTS = 240  # of the curve of one seed, a thin line among many
DIGITS = 5  # of the numbers in curves
WHISKERS = (0.05, 0.25, 0.5, 0.75, 0.95)  # of the round times
SEEN = ("members", "compute_time", "upload_time", "largest_gradient_norm")  # of a record: a client's own numbers
FLEET_SETTINGS = ("data", "times", "channel")  # of a configuration: who the clients are


@dataclass(frozen=True, eq=False, slots=True)
class Section:
    """One experiment under one preset; the policy of its runs is the label that they are shown under."""

    title: str
    runs: list[Run]
    target: Target
    duplicates: int  # runs that were given twice
    other_ends: int = 0  # runs passed over for a longer one that differs in its end alone

    @property
    def groups(self) -> dict[str, list[Run]]:
        """The runs by label."""
        return grouped(self.runs)

    @property
    def targets(self) -> list[Target]:
        """The target for loss and the one for accuracy, where there are both."""
        each = [Target(loss=self.target.loss), Target(accuracy=self.target.accuracy)]
        return [target for target in each if target != Target()]


def sections(runs: Iterable[Run], target: Target | None = None) -> list[Section]:
    """Return runs by experiment and preset, each group under a label that says how it differs from the others.

    Without a target, each experiment's is one that all of its runs were to reach, or the lowest loss that all reached.
    """
    by_name = grouped(runs, lambda run: run.name)
    if not by_name:
        raise InputError(name="a report", rule="have at least one run", got="none")
    found = []
    for name, group in by_name.items():
        by_preset = grouped(group, _preset)
        for preset, members in by_preset.items():
            shown, duplicates, other_ends = _once_each(labelled(members))
            title = name if len(by_preset) == 1 else f"{name}, preset {preset}"
            found.append(Section(title, shown, target or choose_target(shown), duplicates, other_ends))
    return found


def labelled(runs: Sequence[Run]) -> list[Run]:
    """Return runs whose policy also names the settings in which they differ, so that unlike runs are not averaged."""
    settings = [_settings(run) for run in runs]
    own: dict[str, list[dict[str, Any]]] = {}  # settings of the runs of each policy
    for run, one in zip(runs, settings, strict=True):
        own.setdefault(run.policy, []).append(one)
    shared = {name: words for name, words in _differing(settings).items() if not name.startswith("policy.")}
    if any(name.startswith("data.") for name in shared):
        shared.pop("checksum", None)
    told = {
        policy: shared | {name: words for name, words in _differing(group).items() if name.startswith("policy.")}
        for policy, group in own.items()
    }
    found = []
    for run, one in zip(runs, settings, strict=True):
        words = told[run.policy]
        said = [
            f"{name.removeprefix('training.').removeprefix('policy.')} {words[name][repr(value)]}"
            for name, value in one.items()
            if name in words
        ]
        found.append(replace(run, policy=", ".join([run.policy, *said])))
    return found


def choose_target(runs: Sequence[Run]) -> Target:
    """Return the easiest of the targets that the runs were to stop at: whoever reached its own has reached it too.

    Where they have no loss or accuracy in common, it is the lowest loss that all have reached.
    """
    stops = [run.header["config"].get("stop", {}) for run in runs]
    losses, accuracies = ([stop.get(name) for stop in stops] for name in ("target_loss", "target_accuracy"))
    easiest = Target(
        loss=None if None in losses else max(losses), accuracy=None if None in accuracies else min(accuracies)
    )
    return _lowest_loss(runs) if easiest == Target() else easiest


def _lowest_loss(runs: Sequence[Run]) -> Target:
    ended = [run for run in runs if run.summary.get("end") not in (None, "diverged")] or runs
    losses = [run.loss[np.isfinite(run.loss)] for run in ended]
    if not all(one.size for one in losses):
        return Target()
    worst = max(float(one.min()) for one in losses)
    step = 10.0 ** (math.floor(math.log10(worst)) - 2) if worst > 0 else 1.0
    return Target(loss=round(math.ceil(worst / step) * step, 12))


def headline(times: dict[str, Times], target: Target) -> str:
    """Say who was first at a target with all time counted, who came next, and who would be first without pilots."""
    ranked = contenders(times)
    counted = {label: one.with_pilots() for label, one in ranked.items()}
    piloted = any(one.pilots.any() for one in ranked.values())
    how = f", {pilots_said(ranked)}," if piloted or _only_oracles(ranked) else ""
    said = _fastest_said(counted, target, how)
    first, trained = fastest(counted), fastest(ranked)
    if first is not None and trained is not None and trained.policy != first.policy:
        said += f" With all pilots left out, {trained.policy} would be first, after {amount(trained.mean)} s."
    return said


def contenders(times: dict[str, Times]) -> dict[str, Times]:
    """Return those to rank with pilots counted: all but who takes them for granted, or these if there are no others."""
    return times if _only_oracles(times) else {label: one for label, one in times.items() if not one.oracle}


def pilots_said(ranked: dict[str, Times]) -> str:
    """Say how the times of a ranking take account of pilots."""
    return "pilots taken for granted" if _only_oracles(ranked) else "pilots counted"


def _only_oracles(times: dict[str, Times]) -> bool:
    return all(one.oracle for one in times.values())


def fastest(times: dict[str, Times]) -> Times | None:
    """Return who took the shortest mean time among those that always reached the target, None if there is nobody."""
    return min((one for one in times.values() if not one.missed), key=lambda one: one.mean, default=None)


def _fastest_said(times: dict[str, Times], target: Target, how: str = "") -> str:
    first = fastest(times)
    if first is None:
        counts = [f"{label} in {one.reached.sum()} of {one.reached.size}" for label, one in times.items()]
        return f"No policy reached {target} in all of its runs: {_few(counts, ', ')}."
    runs = "in its only run" if len(first.seeds) == 1 else f"in the mean of {len(first.seeds)} seeds"
    verb = "was first at" if len(times) > 1 else "reached"
    said = f"{first.policy} {verb} {target} after {amount(first.mean)} s{how} {runs}."
    others = {label: one for label, one in times.items() if one is not first}
    if not others:
        return said
    if (second := fastest(others)) is None:
        counts = [f"{label} in {one.missed} of {one.reached.size} runs" for label, one in others.items()]
        return f"{said} The others missed it: {_few(counts, ', ')}."
    value, interval = factor_and_interval(second, first)
    within = f" (95 % interval {interval})" if interval else ""
    return f"{said} Next was {second.policy}, which took {value.removesuffix(' ×')} times as long{within}."


def _few(parts: Sequence[str], separator: str) -> str:
    """Return as many parts as can be read, and how many more the table has."""
    more = len(parts) - MOST_SAID
    return separator.join(parts if more <= 1 else [*parts[:MOST_SAID], f"and {more} more below"])


def ending(run: Run) -> str:
    """Say how a run ended."""
    end = run.summary.get("end")
    if end == "target":
        return "reached its target"
    if end == "diverged":
        return str(run.summary.get("error", "diverged"))
    if end in ("max_rounds", "max_time"):
        return f"ended at its limit, {len(run.trained):,} rounds, {amount(run.summary['time'])} s"
    return f"unfinished after {len(run.trained):,} rounds" if end is None else str(end)


def why_missed(runs: Iterable[Run], target: Target) -> str:
    """Say in a few words why some runs did not reach a target, or not in their time."""
    words = {"diverged": "diverged", "target": "ended at another target", None: "not finished"}
    counts = Counter(
        words.get(run.summary.get("end"), "at the limit")
        if run.round_of(loss=target.loss, accuracy=target.accuracy) is None
        else "after the limit"
        for run in runs
    )
    return ", ".join(f"{count} {word}" for word, count in counts.items())


def plot_data(section: Section, look: dict[str, Style]) -> dict[str, Any]:
    """Return all that the page's script draws for one experiment, as JSON values."""
    groups = section.groups
    return {
        "groups": [
            {
                "name": label,
                "colour": look[label].colour,
                "dashes": list(look[label].dashes),
                "marker": look[label].marker,
                "runs": len(group),
            }
            for label, group in groups.items()
        ],
        "panels": [_panel(groups, section.target, x, y) for x, y in PANELS],
        "fleet": fleet_data(groups),
        "rounds": [_round_times(group) for group in groups.values()],
    }


def seconds_of(runs: Iterable[Run]) -> str:
    """Return what the times of runs are."""
    return f"{' and '.join(sorted({run.clock for run in runs}, reverse=True))} seconds"


def _panel(groups: dict[str, list[Run]], target: Target, x: str, y: str) -> dict[str, Any]:
    averages, drawn = [], []
    for group in groups.values():
        curves = [curve(run, x, y, target) for run in group]
        averages.append(one := average(curves))
        low, high = thinned(one.low), thinned(one.high)[::-1]
        band = (np.concatenate([one.x[low], one.x[high]]), np.concatenate([one.low[low], one.high[high]]))
        drawn.append({
            "mean": _points(one.x, one.mean),
            "band": [_short(band[0]), _short(band[1])] if len(group) > 1 else [[], []],
            "seeds": [
                {"seed": run.seed, "points": _points(c.x, c.y, SEED_POINTS)}
                for run, c in zip(group, curves, strict=True)
            ],
        })  # fmt: skip
    log_x, log_y = log_axes(averages, y)
    span = shown_range(averages, y, level(target, y))
    runs = [run for group in groups.values() for run in group]
    label = seconds_of(runs).replace("seconds", "time (s)") if x == "time" else AXIS_LABELS[x]
    return {
        "x": label + (", pilots left out" if any(run.pilot_time for run in runs) else ""), "y": AXIS_LABELS[y],
        "log_x": log_x, "log_y": log_y and span is None, "range": None if span is None else _short(np.array(span)),
        "target": level(target, y), "curves": drawn,
    }  # fmt: skip


def fleet_data(groups: dict[str, list[Run]]) -> dict[str, Any] | None:
    """Return time, importance and share of draws of each client; None where runs have different clients, or no rounds.

    A client's share is q where the policy noted it (the mean over seeds), or else the part of all draws in training
    that fell on it.
    """
    runs = [run for group in groups.values() for run in group]
    fleets = {repr([run.header["config"].get(name) for name in FLEET_SETTINGS]) for run in runs}
    alike = len(fleets) == 1 and len({run.header["data_checksum"] for run in runs}) == 1
    columns = _clients(runs) if alike else None
    if columns is None:
        return None
    order = np.argsort(columns["seconds"], kind="stable")  # the fastest and the slowest are always shown
    shown = order[np.unique(np.linspace(0, order.size - 1, min(order.size, MOST_CLIENTS)).astype(np.int64))]
    columns = {name: values[shown] for name, values in columns.items()}
    clients = columns.pop("client").astype(np.int64)
    size = len(runs[0].header["samples"])
    shares = [_shares(group, size) for group in groups.values()]
    drawn = np.concatenate([share[clients] for _, share, _ in shares])
    return {
        "client": clients.tolist(),
        **{name: _short(values) for name, values in columns.items()},
        "groups": [
            {"noted": noted, "share": _short(share[clients]), "draws": draws[clients].tolist()}
            for noted, share, draws in shares
        ],
        "uniform": 1 / size,
        "clients": size,
        "unseen": size - order.size,
        "never_drawn": bool((drawn == 0).any()),
        "log": {name: is_wide(columns[name]) for name in ("seconds", "importance")}
        | {"share": is_wide(drawn[drawn > 0])},
    }


def _clients(runs: Sequence[Run]) -> dict[str, Vector] | None:
    """Return what is known of each client that has trained: mean times, and the largest gradient norm.

    None if nobody has.
    """
    samples = np.array(runs[0].header["samples"], dtype=np.float64)
    count, compute, upload, norm = np.zeros((4, samples.size))
    for run in runs:
        columns = [_column(run.records, name) for name in SEEN]
        who, *seen = (column[~np.isnan(columns[1])] for column in columns)  # those that failed have no times
        members = who.astype(np.int64)
        count += np.bincount(members, minlength=samples.size)
        compute += np.bincount(members, seen[0], samples.size)
        upload += np.bincount(members, seen[1], samples.size)
        np.maximum.at(norm, members, seen[2])
    client = np.flatnonzero(count)
    if not norm.any():
        return None
    compute, upload = compute[client] / count[client], upload[client] / count[client]
    bound = estimate_gradient_bounds(client, norm[client], num_clients=samples.size).gradient_bound[client]
    return {
        "client": client.astype(np.float64), "samples": samples[client], "compute": compute, "upload": upload,
        "seconds": compute + upload, "norm": bound, "importance": samples[client] / samples.sum() * bound,
    }  # fmt: skip


def _column(records: Iterable[dict[str, Any]], name: str) -> Vector:
    """Return the numbers of all members in all rounds, NaN for None."""
    return np.array(list(itertools.chain.from_iterable(record[name] for record in records)), dtype=np.float64)


def _shares(group: list[Run], num_clients: int) -> tuple[bool, Vector, Integers]:
    """Return whether the policy noted q, the share of each client, and how often it was drawn in training."""
    draws = np.zeros(num_clients, dtype=np.int64)
    for run in group:
        members, counts = (_column(run.trained, name).astype(np.int64) for name in ("members", "counts"))
        np.add.at(draws, members, counts)
    noted = [run.note["sampling_prob"] for run in group if "sampling_prob" in run.note]
    return bool(noted), np.mean(noted, axis=0) if noted else draws / max(1, draws.sum()), draws


def _round_times(group: list[Run]) -> dict[str, Any]:
    times = np.array([record["round_time"] for run in group for record in run.trained])
    if not times.size:
        return {"rounds": 0}
    return {"rounds": times.size, "mean": float(times.mean()), "quantiles": _short(np.quantile(times, WHISKERS))}


def _preset(run: Run) -> str:
    return str(run.header.get("preset"))


def _settings(run: Run) -> dict[str, Any]:
    """Return what a run was made with, by dotted name: all that changes its curve, so neither its name nor its end."""
    config = run.header["config"]
    own = {name: value for name, value in config.items() if name not in ("name", "policy", "stop")}
    own["policy"] = config.get("policy", {}).get(run.policy, {})
    return _flat(own) | {"checksum": run.header["data_checksum"][:8], "clock": run.clock}


def _differing(settings: Sequence[dict[str, Any]]) -> dict[str, dict[str, str]]:
    """Return the names of settings that differ, with words for each value, by its repr: short ones if those differ."""
    found: dict[str, dict[str, str]] = {}
    for name in dict.fromkeys(name for one in settings for name in one):
        values = {repr(value): value for value in (one.get(name) for one in settings)}
        short = {key: _brief(value) for key, value in values.items()}
        if len(values) > 1:
            found[name] = short if len(set(short.values())) == len(values) else {key: key for key in values}
    return found


def _brief(value: object) -> str:
    """Return a value in words, numbers with four digits."""
    if isinstance(value, float):
        return f"{value:,.0f}" if 1e3 <= abs(value) < 1e9 else f"{value:.4g}"
    return str(value)


def _flat(table: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in table.items():
        found |= _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return found


def _once_each(runs: Iterable[Run]) -> tuple[list[Run], int, int]:
    """Return one run for each label and seed, the longest, and how many were passed over: as equal, for their end."""
    alike: dict[tuple[str, int], list[Run]] = {}
    for run in runs:
        alike.setdefault((run.policy, run.seed), []).append(run)
    shown = [max(group, key=lambda run: len(run.records)) for group in alike.values()]
    ends = [len({repr(run.header["config"].get("stop")) for run in group}) for group in alike.values()]
    return shown, sum(map(len, alike.values())) - sum(ends), sum(ends) - len(ends)


def _points(x: Vector, y: Vector, most: int = MOST_POINTS) -> list[list[float]]:
    shown = thinned(y, most)
    return [_short(x[shown]), _short(y[shown])]


def _short(values: Vector) -> list[float]:
    return [float(f"{value:.{DIGITS}g}") for value in values.tolist()]
