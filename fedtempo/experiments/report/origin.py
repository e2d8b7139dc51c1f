"""Where the runs of a section come from: data, code, how they ended, and how to run them again."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from fedtempo.experiments.comparing.amounts import count
from fedtempo.experiments.report.sections import SectionRuns
from fedtempo.experiments.running.results import Run
from fedtempo.experiments.settings.decode import to_toml
from fedtempo.tables.commands import command_line

ENDS = {"target": "at the target", "max_rounds": "at the limit", "max_time": "at the limit", None: "not finished"}


@dataclass(frozen=True, slots=True)
class BrokenRun:
    """A run that did not come to an end."""

    policy: str
    seed: int
    ending: str
    folder: str


@dataclass(frozen=True, slots=True)
class Problems:
    """What whoever reads the numbers should know first."""

    text: str
    failures: tuple[BrokenRun, ...]


@dataclass(frozen=True, slots=True)
class Configuration:
    """Settings of some runs, and the commands that run them again; none where clients of Flower trained."""

    policies: str
    toml: str
    commands: tuple[str, ...]
    how: str  # to run it again


def problems(section: SectionRuns) -> Problems | None:
    """Return the runs that did not end at their target or their limit, and those passed over; None without any."""
    failed = [run for run in section.runs if run.end in (None, "diverged")]
    sentences = []
    if section.duplicates:
        sentences.append(f"{count(section.duplicates, 'run')} given twice, each counted once.")
    if section.other_ends:
        other = count(section.other_ends, "run")
        sentences.append(f"{other} with another end left out: longer ones of the same are shown.")
    if failed:
        sentences.append(f"{count(len(failed), 'run')} of {len(section.runs)} did not come to an end:")
    failures = tuple(BrokenRun(run.policy, run.seed, _ending(run), str(run.folder)) for run in failed)
    return Problems(" ".join(sentences), failures) if sentences else None


def _ending(run: Run) -> str:
    if run.summary is None:
        return f"unfinished after {len(run.trained):,} rounds"
    return run.summary.end if run.summary.error is msgspec.UNSET else run.summary.error


def facts(section: SectionRuns) -> tuple[tuple[str, str], ...]:
    """Return what the runs were made with, by name."""
    runs = [run for group in section.groups.values() for run in group]
    seeds = [f"{label}: {_ranges(run.seed for run in group)}" for label, group in section.groups.items()]
    ends = Counter(ENDS.get(run.end, str(run.end)) for run in runs)
    found = {
        "Data": _each(runs, lambda run: run.header.data),
        "Checksum": _each(runs, lambda run: run.header.data_checksum),
        "Clients": _each(runs, lambda run: f"{len(run.header.samples):,}"),
        "Preset": _each(runs, lambda run: run.header.preset or ""),
        "Commit": _each(runs, lambda run: run.header.commit or "installed package"),
        "Versions": _each(runs, _versions),
        "Seeds": "; ".join(seeds),
        "Ends": ", ".join(f"{number} {word}" for word, number in ends.items()),
    }
    return tuple((name, text) for name, text in found.items() if text)


def configurations(section: SectionRuns) -> tuple[Configuration, ...]:
    """Return the settings of all runs, each once, with the commands that run them again."""
    runs = [run for group in section.groups.values() for run in group]
    return tuple(_configuration(config, group) for config, group in _distinct(runs))


def _configuration(config: dict[str, object], runs: Sequence[Run]) -> Configuration:
    commands = tuple(
        command_line("run", "CONFIG", policy=run.header.policy, seed=run.seed)
        for run in sorted(runs, key=lambda run: (run.policy, run.seed))
        if run.clock == "simulated" and "data" in config
    )
    policies = ", ".join(dict.fromkeys(run.policy for run in runs))
    return Configuration(policies, to_toml(config).rstrip(), commands, _how_again(config, commands))


def _how_again(config: Mapping[str, object], commands: Sequence[str]) -> str:
    """Say how to run it again."""
    if commands:
        return (
            "Preset and options are already in it. To run it again, save this as CONFIG, beside the files that it names"
        )
    if "problem" in config:
        return "The problem was made in Python: to run it again, call the same with these settings"
    return "Flower nodes trained: to run it again, give their app these settings"


def _distinct(runs: Iterable[Run]) -> list[tuple[dict[str, object], list[Run]]]:
    """Return the configurations that differ in more than the policies for which they have options, with their runs."""
    found: list[tuple[dict[str, object], dict[str, object], list[Run]]] = []  # the first, all options, the runs
    for run in runs:
        config, options = run.header.config, run.header.config.get("policy", {})
        for known, others, group in found:
            clash = any(others[name] != options[name] for name in others if name in options)
            if not clash and {**config, "policy": {}} == {**known, "policy": {}}:
                others |= options
                group.append(run)
                break
        else:
            found.append((config, dict(options), [run]))
    return [({**known, "policy": others} if others else known, group) for known, others, group in found]


def _versions(run: Run) -> str:
    return ", ".join(f"{name} {version}" for name, version in run.header.versions.items() if version)


def _each(runs: Iterable[Run], text: Callable[[Run], str]) -> str:
    return "; ".join(dict.fromkeys(map(text, runs)))


def _ranges(numbers: Iterable[int]) -> str:
    """Return whole numbers in order, 0–4 for five in a row."""
    spans: list[list[int]] = []
    for number in sorted(numbers):
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ", ".join(f"{a}" if a == b else f"{a}–{b}" for a, b in spans)
