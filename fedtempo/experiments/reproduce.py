"""The paper's tables and figures, from runs to Markdown and pictures beside the paper's own numbers."""

import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from textwrap import wrap
from typing import Any

import numpy as np

from fedtempo.checks import InputError, Vector
from fedtempo.experiments.comparison import Target, times_to
from fedtempo.experiments.config import Experiment, for_policy, read_experiment
from fedtempo.experiments.figures import draw_comparison
from fedtempo.experiments.grid import Job
from fedtempo.experiments.paper import CONFIGS, IMPACT_ACCURACY, IMPACT_LOSS, IMPACT_OF_K, MODELS, SETUPS
from fedtempo.experiments.results import Run, code_of, read_run
from fedtempo.experiments.runner import load_trainer, make_policy
from fedtempo.experiments.tables import (
    estimate,
    factor,
    fleet_of,
    gains_table,
    interval,
    limits,
    markdown,
    ratio_table,
    round_time_table,
    rounds,
    rounds_table,
    seconds,
    time_table,
)
from fedtempo.experiments.toml import nearest
from fedtempo.files import whole_file
from fedtempo.policies.fixed import FixedSampling
from fedtempo.theory.optimum import optimal_cohort
from fedtempo.theory.sampling import statistical_sampling

IMPACT_OF_E = (10, 25, 50, 100)
LARGEST_BEST_COHORT = 30  # that the last step of the gain may choose
PARTS = {**{name: name for name in SETUPS}, "impact-of-k": "setup2", "impact-of-e": "setup2"}  # and their setups
TITLE_WIDTH = 105  # letters that fit over a figure
PILOTS, OURS = ["uniform", "weighted"], ["statistical", "proposed", "proposed-oracle"]

RunGrid = Callable[[list[Job]], list[Path]]  # runs what has not ended, and returns the records


@dataclass(frozen=True, kw_only=True, slots=True)
class Reproduction:
    """What is to be reproduced, and where things go."""

    configs: Path  # folder of setup1.toml to setup3.toml
    preset: str
    seeds: Sequence[int]
    records: Path  # folder of the runs
    output: Path  # folder of tables and figures
    run_grid: RunGrid
    say_first: Callable[[Experiment, list[str]], None]  # what whoever waits for runs of these policies should know

    def read(self, setup: str, over: dict[str, Any] | None = None) -> tuple[Experiment, dict[str, Any]]:
        """Return the experiment of a setup."""
        path = self.configs / f"{setup}.toml"
        if not path.exists():
            raise InputError(
                name=path,
                rule="be a setup of the paper",
                got="no such file",
                remedy="name the folder configs of the repository with --configs",
            )
        return read_experiment(path, self.preset, over=over)

    def jobs(
        self, setup: str, policies: Sequence[str], over: dict[str, Any] | None = None, *, folder: str | None = None
    ) -> list[Job]:
        """Return the runs of some policies over all seeds; runs beside the setup itself have other folders."""
        experiment, table = self.read(setup, over)
        root = self.records / (folder or setup) / self.preset
        return [Job(experiment, table, policy, seed, root) for policy in policies for seed in self.seeds]

    def run(self, jobs: list[Job]) -> list[Run]:
        """Run them and read their records."""
        return [read_run(path) for path in self.run_grid(jobs)]

    def run_groups(self, groups: dict[int, list[Job]]) -> dict[int, list[Run]]:
        """Run several groups as one grid."""
        found = iter(self.run([job for jobs in groups.values() for job in jobs]))
        return {name: list(islice(found, len(jobs))) for name, jobs in groups.items()}


def reproduce(what: str, given: Reproduction) -> Iterator[list[Path]]:
    """Reproduce one part of the paper or all; yield the files of each when it is done, the first of them the tables.

    Whatever the parts need is looked for before the first of them runs.
    """
    if what != "all" and what not in PARTS:
        raise InputError(
            name="what to reproduce",
            rule="be a known part of the paper",
            got=f"{what!r}{nearest(what, [*PARTS, 'all'])}",
        )
    parts = list(PARTS) if what == "all" else [what]
    for setup in dict.fromkeys(PARTS[part] for part in parts):
        experiment, _ = given.read(setup)
        load_trainer(experiment.model, experiment.data)
        given.say_first(experiment, PILOTS + OURS)
    given.output.mkdir(parents=True, exist_ok=True)
    others = {"impact-of-k": _impact_of_k, "impact-of-e": _impact_of_e}
    for part in parts:
        yield others[part](given) if part in others else _setup(part, given)


def _setup(name: str, given: Reproduction) -> list[Path]:
    """Tables 2 and 3 and the figure of one setup.

    At preset ``paper``, ``proposed-oracle`` is the paper's scheme with its pilots taken for granted: gradient bounds
    known, and the β/α that the uniform and weighted runs of all seeds together lead to, or 0, the closed form, where
    they lead to none. Other presets keep the β/α of the configuration, and have no Table 2 and no steps of the gain:
    their policies differ in more than who trains.
    """
    paper, known = SETUPS[name], {}
    experiment, _ = given.read(name)
    runs = given.run(given.jobs(name, PILOTS))
    size = experiment.training.cohort_size
    if given.preset == "paper":
        found = estimate(runs, paper.losses, size)
        known = {"policy": {"proposed-oracle": {"beta_over_alpha": found.value or 0.0}}}
    runs += given.run(given.jobs(name, OURS, known))
    target, accuracy = Target(loss=paper.target_loss), Target(accuracy=paper.target_accuracy)
    second = Target(loss=paper.second_loss)
    file = name if given.preset == "paper" else f"{name}-{given.preset}"
    title = _title(paper.name, experiment, runs[0])
    figure = draw_comparison(
        runs,
        Target(loss=paper.target_loss, accuracy=paper.target_accuracy),
        given.output / file,
        title="\n".join(wrap(title, TITLE_WIDTH)),
    )
    parts = [
        f"# {title}",
        _about(runs, given, f"reproduce {name}"),
        f"![Loss and accuracy over time]({figure[0].with_suffix('.png').name})",
        "How many times longer each baseline takes than the paper's scheme:",
        ratio_table(runs, target, paper.seconds),
        ratio_table(runs, second),
    ]
    if given.preset == "paper":
        parts += ["## Rounds of the pilots, and β/α (Table 2)", rounds_table(runs, paper, size)]
    parts += [
        f"## Time to {target}, the paper's target (Table 3)",
        time_table(runs, target, paper.seconds),
        f"## Time to {accuracy}",
        time_table(runs, accuracy),
        f"## Time to {second}, a second target",
        time_table(runs, second),
    ]
    if given.preset == "paper":
        best, with_best = size, []
        if found.value:  # without it a larger cohort is never worse
            best = optimal_cohort(fleet_of(runs), found.value, LARGEST_BEST_COHORT).cohort_size
            changed = {"training": {"cohort_size": best}, "stop": {"target_loss": paper.second_loss}}  # all that counts
            with_best = given.run(given.jobs(name, ["proposed-oracle"], known | changed, folder=f"{name}-best-k"))
        parts += [
            "## Where the gain comes from",
            "Each step keeps those before it. The first four rows are the same runs under four clocks.",
            gains_table(runs, second, with_best, best),
        ]
    final, _ = given.read(name, known)
    parts += ["## Round times: Theorem 2 against the clock", _round_times(final, runs)]
    return [_write(given.output / f"{file}.md", parts), *figure]


def _impact_of_k(given: Reproduction) -> list[Path]:
    """Figure 6: the proposed scheme in Setup 2 with several cohort sizes."""
    over = {"stop": {"target_loss": IMPACT_LOSS, "target_accuracy": IMPACT_ACCURACY}}
    groups = given.run_groups({
        size: given.jobs(
            "setup2", ["proposed-oracle"], over | {"training": {"cohort_size": size}}, folder="impact-of-k"
        )
        for size in IMPACT_OF_K
    })  # fmt: skip
    target, accuracy = Target(loss=IMPACT_LOSS), Target(accuracy=IMPACT_ACCURACY)
    rows = []
    for size, runs in groups.items():
        (to_loss,), (to_accuracy,) = (times_to(runs, wanted).values() for wanted in (target, accuracy))
        rows.append([
            f"{size}", seconds(to_loss), interval(to_loss), rounds(to_loss), seconds(to_accuracy),
            f"{IMPACT_OF_K[size]:,.0f}",
        ])  # fmt: skip
    runs = [run for group in groups.values() for run in group]
    labels = {id(run): f"K = {size}" for size, group in groups.items() for run in group}
    figure = draw_comparison(
        runs, Target(loss=IMPACT_LOSS, accuracy=IMPACT_ACCURACY), given.output / "impact-of-k",
        title="Setup 2: impact of the cohort size K", labels=lambda run: labels[id(run)],
    )  # fmt: skip
    headings = [
        "K",
        f"seconds to {target}",
        "95 % interval",
        "rounds",
        f"seconds to {accuracy}",
        "paper (s to the loss)",
    ]
    parts = [
        "# Impact of K on Setup 2 (Figure 6)",
        _about(runs, given, "reproduce impact-of-k"),
        f"`proposed-oracle` has the β/α of the configuration, {_beta_over_alpha(given)}.",
        f"![Loss and accuracy over time]({figure[0].with_suffix('.png').name})",
        markdown(headings, rows),
    ]
    return [_write(given.output / "impact-of-k.md", parts), *figure]


def _impact_of_e(given: Reproduction) -> list[Path]:
    """Check the paper's footnote that other numbers of local steps behave alike. Computing time grows with them."""
    experiment, _ = given.read("setup2")
    usual, compute = experiment.training.local_steps, experiment.times.compute
    mean = None if compute is None else compute.mean
    if mean is None:
        raise InputError(name="setup2.toml", rule="draw computing times about a mean", got="another kind")
    target = Target(loss=SETUPS["setup2"].second_loss)

    def over(steps: int) -> dict[str, Any]:
        return {
            "training": {"local_steps": steps},
            "times": {"compute": {"mean": mean * steps / usual}},
            "stop": {"target_loss": target.loss},
        }

    policies, rows = [*PILOTS, "proposed-oracle"], []
    groups = given.run_groups({
        steps: given.jobs("setup2", policies, over(steps), folder="impact-of-e") for steps in IMPACT_OF_E
    })  # fmt: skip
    for steps, runs in groups.items():
        found = times_to(runs, target)
        ours = found["proposed-oracle"]
        rows.append([
            f"{steps}", *(seconds(times) for times in found.values()),
            *(factor(found[policy], ours) for policy in ("uniform", "weighted")),
        ])  # fmt: skip
    headings = ["E", "uniform (s)", "weighted (s)", "proposed-oracle (s)", "uniform over ours", "weighted over ours"]
    parts = [
        f"# Impact of E on Setup 2, to {target}",
        _about([run for group in groups.values() for run in group], given, "reproduce impact-of-e"),
        f"`proposed-oracle` has the β/α of the configuration, {_beta_over_alpha(given)}.",
        markdown(headings, rows),
    ]
    return [_write(given.output / "impact-of-e.md", parts)]


def _round_times(experiment: Experiment, runs: Sequence[Run]) -> str:
    """Compare round times with the theory for the policies that draw from one q."""
    fleet = fleet_of(runs)
    found: dict[str, list[Vector]] = {}
    for run in runs:
        if "sampling_prob" in run.note:
            q = np.array(run.note["sampling_prob"])
        elif "gradient_bound" in run.note:
            q = statistical_sampling(replace(fleet, gradient_bound=np.array(run.note["gradient_bound"])))
        else:
            policy = make_policy(experiment, run.policy, run.seed)
            if not isinstance(policy, FixedSampling):
                continue
            q = policy.sampling_prob
        found.setdefault(run.policy, []).append(q)
    return round_time_table(runs, found, {policy: for_policy(experiment, policy)[0] for policy in found})


def _beta_over_alpha(given: Reproduction) -> float:
    experiment, _ = given.read("setup2")
    return float(for_policy(experiment, "proposed-oracle")[1]["beta_over_alpha"])


def _title(name: str, experiment: Experiment, run: Run) -> str:
    """Name a setup by what its runs were made of, not by what the paper has."""
    preset = "" if experiment.preset == "paper" else f", preset {experiment.preset}"
    clients = len(run.header["samples"])
    return f"{name}: {MODELS[experiment.model.kind]}, {run.header['data']}, {clients} clients{preset}"


def _about(runs: Sequence[Run], given: Reproduction, command: str) -> str:
    seeds = len(given.seeds)
    preset = "" if given.preset == "paper" else f" --preset {given.preset}"
    first = f" --first-seed {given.seeds[0]}" if given.seeds[0] else ""
    configs = "" if given.configs == CONFIGS else f" --configs {shlex.quote(str(given.configs))}"
    end = limits(runs[0].header["config"]["stop"])
    return (
        f"Made by `fedtempo {command} --seeds {seeds}{first}{preset}{configs}` with {code_of(runs)}. Data: "
        f"{runs[0].header['data']}. Times are simulated seconds, mean ± standard deviation over seeds. Runs end after "
        f"{end} of training: those that did not reach a target by then enter with all the time they took, and are "
        "counted; bounds are marked."
    )


def _write(path: Path, parts: list[str]) -> Path:
    with whole_file(path) as stream:
        stream.write("\n\n".join(parts) + "\n")
    return path
