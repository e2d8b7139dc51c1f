"""Policies ranked by the time that they take to a target, everything counted, each at its own best settings.

One procedure for all: every policy tries the same grid of step sizes and cohort sizes, where momentum is allowed of
momenta too (none is one of them), on draws of the data and seeds that the ranking does not use; what missed the target
least often, then took least time, is run on the draws and seeds of the ranking. A policy's settings have a short time
at first, and longer ones only until one of them reached the target in each run; what would have been faster on average
but slower in one run loses by that. The ranking goes by the same two: missed runs, then time.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedtempo.checks import InputError, check_choice, check_count
from fedtempo.experiments.comparison import Target, interval_of_mean
from fedtempo.experiments.config import read_experiment
from fedtempo.experiments.figures import COLOURS
from fedtempo.experiments.grid import Job
from fedtempo.experiments.readback import write_csv
from fedtempo.experiments.results import ORACLES, code_of
from fedtempo.experiments.runner import load_data
from fedtempo.experiments.standings import Standing, kept_from, read_standings
from fedtempo.experiments.tables import NOTHING, amount, markdown, multiple
from fedtempo.experiments.tuning import FIRST_SEED, Candidate, at_the_edge, best_of, candidates
from fedtempo.files import whole_file

DEFAULT_POLICIES = (
    "tempo", "uniform", "weighted", "statistical", "proposed", "proposed-oracle", "oort", "power-of-choice", "fedcs",
    "tifl", "ocs", "clustered", "kvib", "fedbuff",
)  # fmt: skip
OURS = "tempo"
PRESET = "best"
TUNING_DRAWS, TUNING_SEEDS = (FIRST_SEED, FIRST_SEED + 1), (FIRST_SEED,)
MOMENTA = (0.5, 0.8, 0.9)
CHANNELS = ("static", "fading", "fading-untold", "absences", "traces")
REGIMES = ("plain", "momentum")
# In time, not in rounds: looked at after every few rounds, long rounds would find the target later than short ones.
LOOKS_APART = 0.01  # times the time so far
PRESENT_SHARE = 0.7  # of the rounds, where clients are absent at random
Ranked = dict[str, Sequence[Candidate | Standing]]  # of each policy, what it took in each draw


@dataclass(frozen=True, slots=True)
class SetupGrid:
    """What is tried in one setup, and how long a run may take."""

    step_sizes: tuple[float, ...]
    cohort_sizes: tuple[int, ...]
    momentum_step_sizes: tuple[float, ...]
    momentum_cohort_sizes: tuple[int, ...]
    time_limit: float  # simulated seconds
    tuning_limits: tuple[float, ...] = (1 / 16, 1 / 4, 1)  # parts of it, for which settings are tried

    def choices(self, regime: str) -> list[dict[str, Sequence[float]]]:
        """Return the grids to try, of values for each setting of training; one without momentum belongs to both."""
        plain: dict[str, Sequence[float]] = {"step_size": self.step_sizes, "cohort_size": self.cohort_sizes}
        momentum: dict[str, Sequence[float]] = {
            "step_size": self.momentum_step_sizes, "cohort_size": self.momentum_cohort_sizes,
            "server_momentum": MOMENTA,
        }  # fmt: skip
        return [plain] if regime == "plain" else [plain | {"server_momentum": (0.0,)}, momentum]


GRIDS = {
    "setup1": SetupGrid((0.02, 0.05, 0.1, 0.2, 0.4), (1, 2, 4, 8), (0.01, 0.03, 0.1), (2, 4, 8), 3000.0),
    "setup2": SetupGrid((0.001, 0.002, 0.005, 0.01), (1, 2, 5, 10), (0.001, 0.002, 0.005), (2, 5, 10), 6000.0),
    "setup3": SetupGrid((0.03, 0.1), (2, 4, 10), (0.01, 0.03, 0.1), (4,), 600.0, tuning_limits=(0.4, 1)),
}


def check_choices(
    setups: Sequence[str],
    channels: Sequence[str],
    regimes: Sequence[str],
    *,
    seeds: int,
    draws: int,
    traces: Path | None,
) -> None:
    """Refuse what cannot be ranked, before anything runs."""
    for name, values, known in (
        ("--setups", setups, tuple(GRIDS)), ("--channels", channels, CHANNELS), ("--regimes", regimes, REGIMES),
    ):  # fmt: skip
        if not values:
            raise InputError(name=name, rule=f"name at least one of {', '.join(known)}", got="none")
        for value in values:
            check_choice(name, value, known)
        if len(set(values)) < len(values):
            raise InputError(name=name, rule="name each once", got=f"{','.join(values)}")
    if check_count("--seeds", seeds) < check_count("--draws", draws):
        raise InputError(name="--seeds", rule="be at least one for each draw", got=f"{seeds} for {draws} draws")
    if "traces" in channels:
        _trace_files(traces)


@dataclass(frozen=True, slots=True)
class Contest:
    """One setup on one kind of channel: which runs there are."""

    setup: str
    channel: str
    config: Path
    target: Target
    traces: Path | None
    records: Path

    @property
    def grid(self) -> SetupGrid:
        """What is tried."""
        return GRIDS[self.setup]

    def among(
        self,
        policies: Sequence[str],
        choices: dict[str, Sequence[float]],
        *,
        part: float = 1.0,
        draws: Sequence[int],
        seeds: Sequence[int],
    ) -> list[Candidate]:
        """Return policies under choices of settings, for a part of the time limit."""
        stop = {"target_loss": self.target.loss, "max_time": part * self.grid.time_limit}
        worlds = [_world(self.channel, draw, self.traces) for draw in draws]
        root = self.records / self.setup / self.channel
        return candidates(
            self.config, PRESET, policies, choices=choices, seeds=seeds, stop=stop, root=root, worlds=worlds
        )

    def tune(
        self, policies: Sequence[str], regime: str, run_grid: Callable[[str, list[Job]], object]
    ) -> tuple[dict[str, Candidate], list[str]]:
        """Return the best settings of each policy, and what is to say about them."""
        chosen: dict[str, Candidate] = {}
        edges: list[str] = []
        limits = self.grid.tuning_limits
        for number, part in enumerate(limits, start=1):
            if not (left := [policy for policy in policies if policy not in chosen]):
                break
            tried = [
                candidate
                for choices in self.grid.choices(regime)
                for candidate in self.among(left, choices, part=part, draws=TUNING_DRAWS, seeds=TUNING_SEEDS)
            ]
            stage = f"{self.setup}, {self.channel}, {regime}: settings, part {number} of at most {len(limits)}"
            run_grid(stage, [job for candidate in tried for job in candidate.jobs])
            best = best_of(tried, self.target)
            done = {policy: one for policy, one in best.items() if part == 1 or not one.times(self.target).missed}
            chosen |= done
            edges += at_the_edge([candidate for candidate in tried if candidate.policy in done], self.target)
        return {policy: chosen[policy] for policy in policies}, edges

    def said(self, regime: str, policies: Sequence[str], *, seeds: int, draws: int) -> str:
        """Return the command that ranks them."""
        return (
            f"fedtempo leaderboard --setups {self.setup} --channels {self.channel} --regimes {regime} --seeds {seeds} "
            f"--draws {draws}"
            + (f" --policies {','.join(policies)}" if tuple(policies) != DEFAULT_POLICIES else "")
            + (" --traces FOLDER" if self.channel == "traces" else "")
        )

    def world_said(self, data: str) -> str:
        """Return what the runs trained on, in words."""
        if self.channel == "traces":
            data += f"; links: {', '.join(Path(file).name for file in _trace_files(self.traces))}"
        if self.channel in ("fading", "traces"):
            data += "; policies are told the times of a round before it"
        return data


def rank(
    setup: str,
    channel: str,
    regime: str,
    policies: Sequence[str],
    *,
    seeds: int,
    draws: int,
    configs: Path,
    traces: Path | None,
    records: Path,
    output: Path,
    run_grid: Callable[[str, list[Job]], object],
    beside: Path | None = None,
) -> Path:
    """Tune and rank policies in one setup on one kind of channel; write the table and the chart, return the table.

    ``run_grid`` runs jobs under a title. ``beside``: the folder of an earlier leaderboard, of which the runs of all
    other policies are kept.
    """
    check_choices([setup], [channel], [regime], seeds=seeds, draws=draws, traces=traces)
    name = f"{setup}-{channel}-{regime}"
    kept: dict[str, list[Standing]] = {}
    if beside is not None:
        kept = read_standings(beside / f"{name}.csv", seeds=seeds, draws=draws, without=policies)
    config = configs / f"{setup}.toml"
    experiment, _ = read_experiment(config, PRESET)
    target = Target(loss=experiment.stop.target_loss)
    contest = Contest(setup, channel, config, target, traces, records)
    data = contest.world_said(load_data(experiment.data).name)
    for policy, standings in kept.items():
        for there in {world for one in standings for world in one.worlds} - {(data, str(target))}:
            raise InputError(
                name="--beside",
                rule=f"hold runs on the same data to the same target, {data} to {target}",
                got=f"{policy} on {' to '.join(there)} in {name}.csv",
                remedy=f"rank {policy} anew",
            )
    chosen, edges = contest.tune(policies, regime, run_grid)
    ran: dict[str, list[Candidate]] = {}  # of each policy, one for each draw
    for policy, best in chosen.items():
        fixed: dict[str, Sequence[float]] = {name: [value] for name, value in best.training.items()}
        ran[policy] = [
            contest.among([policy], fixed, draws=[draw], seeds=range(draw, seeds, draws))[0] for draw in range(draws)
        ]
    run_grid(
        f"{setup}, {channel}, {regime}: ranking", [job for found in ran.values() for one in found for job in one.jobs]
    )
    runs = [run for found in ran.values() for one in found for run in one.runs]
    ranked: Ranked = {**ran, **kept}
    title = f"{setup}, {channel}, {regime}: seconds to {target}"
    path = output / f"{name}.md"
    made_by = contest.said(regime, policies, seeds=seeds, draws=draws) + (" --beside FOLDER" if kept else "")
    made = f"Made by `{made_by}` with {code_of(runs)}. Data: {data}. [Each run]({path.stem}.csv)."
    if beside is not None and kept:
        made += f" {kept_from(path.with_suffix('.csv'), kept)}"
        edges += _edges_kept(beside / path.name, kept)
    lines = [f"# {title}", made, f"![Ranking]({path.stem}.png)", ranking_table(ranked, target)]
    if edges:
        lines += ["Settings at the edge of what was tried:", "\n".join(f"- {said}" for said in edges)]
    output.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as stream:
        stream.write("\n\n".join(lines) + "\n")
    write_csv(each_run(ranked, target, data), path.with_suffix(".csv"))
    draw_ranking(ranked, target, title, path.with_suffix(".png"))
    return path


def _edges_kept(table: Path, kept: dict[str, list[Standing]]) -> list[str]:
    """Return what an earlier table says of settings at the edge of what its policies tried."""
    said = table.read_text(encoding="utf-8").splitlines() if table.is_file() else []
    return [line[2:] for line in said if line.startswith("- ") and line[2:].partition(":")[0] in kept]


def _world(channel: str, draw: int, traces: Path | None) -> dict[str, Any]:
    """Return a draw of data and times, and the channel, as a table to lie over a configuration."""
    world: dict[str, Any] = {"data": {"seed": draw}, "times": {"seed": draw}, "channel": {"seed": draw}}
    world["training"] = {"evaluate_growth": LOOKS_APART}
    if channel.startswith("fading"):
        world["channel"] |= {"kind": "fading", "told": channel == "fading"}
    elif channel == "absences":
        world["channel"] |= {"present_share": PRESENT_SHARE}
    elif channel == "traces":
        files = _trace_files(traces)
        world["channel"] |= {"kind": "traces", "traces": files}
        world["times"] |= {"upload": None, "uplink_mbps": None}
    return world


def _trace_files(folder: Path | None) -> list[str]:
    found = sorted(folder.iterdir()) if folder is not None and folder.is_dir() else []
    files = [str(path.resolve()) for path in found if path.suffix in (".up", ".csv")]
    if not files:
        given = "none" if folder is None else folder
        raise InputError(
            name="--traces", rule="be a folder with .up or .csv files for the channel traces", got=f"{given}"
        )
    return files


def _mean_of(found: Sequence[Candidate | Standing], target: Target) -> float:
    """Return the geometric mean over draws of the mean time over seeds."""
    return float(np.exp(np.mean([np.log(one.times(target).mean) for one in found])))


def _missed(found: Sequence[Candidate | Standing], target: Target) -> int:
    return sum(one.times(target).missed for one in found)


def _ratios(
    found: Sequence[Candidate | Standing], usual: Sequence[Candidate | Standing], target: Target
) -> tuple[str, str]:
    """Return the 95 % interval of the mean ratio of times, in pairs of draws, and its range, where no run missed."""
    pairs = [(one.times(target), other.times(target)) for one, other in zip(found, usual, strict=True)]
    if any(one.missed or other.missed for one, other in pairs):
        return NOTHING, NOTHING
    ratios = np.array([one.mean / other.mean for one, other in pairs])
    interval = interval_of_mean(np.log(ratios))
    bounds = NOTHING if interval is None else f"{np.exp(interval[0]):.2f}–{np.exp(interval[1]):.2f}"
    return bounds, f"{ratios.min():.2f}–{ratios.max():.2f}"


def ranking(ranked: Ranked, target: Target) -> list[str]:
    """Return the policies by missed runs, then by time; those that take pilots for granted stand below all others."""
    return sorted(
        ranked,
        key=lambda policy: (policy in ORACLES, _missed(ranked[policy], target), _mean_of(ranked[policy], target)),
    )


def ranking_table(ranked: Ranked, target: Target) -> str:
    """Return one line for each policy, the best first; every draw is shown."""
    order = ranking(ranked, target)
    reference = OURS if OURS in ranked else order[0]
    usual, usual_missed = _mean_of(ranked[reference], target), _missed(ranked[reference], target)
    rows = []
    for policy in order:
        times, mean = [one.times(target) for one in ranked[policy]], _mean_of(ranked[policy], target)
        missed, runs = _missed(ranked[policy], target), sum(one.seconds.size for one in times)
        settings = ", ".join(f"{name} {value:g}" for name, value in ranked[policy][0].training.items())
        over = multiple(mean / usual, of_missed=missed > 0, to_missed=usual_missed > 0)
        interval, spread = _ratios(ranked[policy], ranked[reference], target)
        rows.append([
            policy,
            f"{'> ' if missed else ''}{amount(mean)}",
            *(("1", NOTHING, NOTHING) if policy == reference else (over, interval, spread)),
            " ".join(f"{'>' if one.missed else ''}{amount(one.mean)}" for one in times),
            f"{missed} of {runs}",
            settings,
        ])  # fmt: skip
    draws = len(next(iter(ranked.values())))
    note = (
        f"Ranked by how many runs missed the target, then by time: the geometric mean over "
        f"{draws} draw{'s' if draws > 1 else ''} of the data, pilots counted. Runs that missed it enter with the "
        f"time that they trained, at most the time limit, and those that diverged with the limit. Ratios are of "
        f"draws in pairs: their 95 % interval and their range. Settings were chosen on other draws and seeds; of each "
        f"policy's own options the defaults stand."
    )
    if granted := [policy for policy in order if policy in ORACLES]:
        note += f" Outside the ranking, with pilots taken for granted: {', '.join(granted)}."
    headings = ["policy", "seconds", f"to {reference}", "95 %", "range", "each draw", "missed", "settings"]
    return f"{note}\n\n" + markdown(headings, rows)


def each_run(ranked: Ranked, target: Target, data: str) -> list[dict[str, Any]]:
    """Return one row for each run of the ranking, the best policy first."""
    rows = []
    for policy in ranking(ranked, target):
        for draw, found in enumerate(ranked[policy]):
            times = found.times(target)
            codes = found.code if isinstance(found, Standing) else tuple(code_of([run]) for run in found.runs)
            columns = times.seeds, times.seconds.tolist(), times.pilots.tolist(), times.reached.tolist(), codes
            for seed, seconds, pilots, reached, code in zip(*columns, strict=True):
                row = {"policy": policy, "draw": draw, "seed": seed, "reached": reached, "seconds": round(seconds, 6)}
                row |= {"of_them_pilots": round(pilots, 6)}
                row |= dict(sorted(({"server_momentum": 0.0} | found.training).items()))
                rows.append(row | {"code": code, "data": data, "target": str(target)})
    return rows


def draw_ranking(ranked: Ranked, target: Target, title: str, path: Path) -> None:
    """Draw each policy's mean and its draws on one line, the best on top; means of which runs missed are open."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    order = ranking(ranked, target)[::-1]
    figure = Figure(figsize=(6.5, 1.1 + 0.26 * len(order)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for y, policy in enumerate(order):
        colour, bound = COLOURS[policy == OURS], _missed(ranked[policy], target) > 0
        each = [one.times(target).mean for one in ranked[policy]]
        axes.plot([min(each), max(each)], [y, y], color=colour, linewidth=1)
        axes.plot(each, [y] * len(each), "|", color=colour, markersize=8)
        axes.plot(_mean_of(ranked[policy], target), y, "o", color=colour, mfc="white" if bound else colour)
    axes.set_xscale("log")
    axes.set_ylim(-0.6, len(order) - 0.4)
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_yticks(range(len(order)), [f"{policy}*" if policy in ORACLES else policy for policy in order])
    axes.grid(axis="x", color="#dddddd", linewidth=0.5)
    axes.set_axisbelow(True)
    granted = "; * pilots taken for granted" if set(order) & set(ORACLES) else ""
    axes.set_xlabel(
        f"simulated seconds, pilots counted{granted}\npoints: means, open where runs missed the target; bars: draws",
        fontsize=8,
    )
    axes.set_title(title, fontsize=9)
    with whole_file(path, "wb") as stream:
        figure.savefig(stream, format="png", dpi=200)
