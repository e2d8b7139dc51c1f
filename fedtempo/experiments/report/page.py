"""The page about some runs: what it says and shows as values, and how it is rendered and written."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import msgspec
import numpy as np

from fedtempo.checks import MissingDependencyError
from fedtempo.experiments.comparing.amounts import count
from fedtempo.experiments.comparing.curves import BAND
from fedtempo.experiments.comparing.statistics import Target, times_to
from fedtempo.experiments.comparing.styles import Style, on_dark, styles
from fedtempo.experiments.report.client_points import clients_note
from fedtempo.experiments.report.headlines import headline
from fedtempo.experiments.report.origin import Configuration, Problems, configurations, facts, problems
from fedtempo.experiments.report.plots import Plots, clock_name, plots
from fedtempo.experiments.report.sections import SectionRuns, sections
from fedtempo.experiments.report.target_table import TargetTable, target_table
from fedtempo.experiments.running.results import Run
from fedtempo.files import whole_file
from fedtempo.tables.html import environment

PACKAGE = "fedtempo.experiments.report"


@dataclass(frozen=True, eq=False, slots=True)
class Section:
    """One experiment under one preset."""

    title: str
    headlines: tuple[str, ...]
    problems: Problems | None
    tables: tuple[TargetTable, ...]  # one for each target
    evaluated: bool  # whether there are curves
    piloted: bool  # whether pilots are left out of them
    styles: dict[str, Style]  # of each group
    plots: Plots
    metric: str  # in place of the accuracy, or accuracy
    clients_note: str | None  # None where there is no one fleet to show
    facts: tuple[tuple[str, str], ...]  # names and values
    configurations: tuple[Configuration, ...]


@dataclass(frozen=True, eq=False, slots=True)
class Page:
    """A report."""

    title: str
    lead: str
    sections: tuple[Section, ...]

    @property
    def dark_colours(self) -> dict[str, str]:
        """The colours that are too dark for a dark page, with those that replace them."""
        used = sorted({style.colour for section in self.sections for style in section.styles.values()})
        return {colour: on_dark(colour) for colour in used if on_dark(colour) != colour}


def report(runs: Sequence[Run], target: Target | None = None) -> Page:
    """Return a page about some runs.

    Without a target, each experiment's is one that all of its runs were to reach, or the lowest loss that all reached.
    """
    found = sections(runs, target)
    shown = [run for section in found for run in section.runs]
    counts = f"{count(len(shown), 'run')} of {count(len(found), 'experiment')}"
    lead = f"{counts}. Times are {clock_name(shown)} seconds of training."
    title = found[0].title if len(found) == 1 else "Experiments"
    return Page(title, lead, tuple(map(_section, found)))


def _section(section: SectionRuns) -> Section:
    look = styles(section.policies)
    drawn = plots(section, look)
    return Section(
        title=section.title,
        headlines=tuple(headline(times_to(section.runs, target), target) for target in section.targets)
        or ("There is no target.",),
        problems=problems(section),
        tables=tuple(target_table(section, target, look) for target in section.targets),
        evaluated=any(np.isfinite(run.loss).any() for run in section.runs),
        piloted=any(run.pilot_time for run in section.runs),
        styles=look,
        plots=drawn,
        metric=next((run.metric for run in section.runs if run.metric is not None), "accuracy"),
        clients_note=None if drawn.fleet is None else clients_note(drawn.fleet),
        facts=facts(section),
        configurations=configurations(section),
    )


def render(page: Page) -> str:
    """Return the page as HTML that needs nothing but itself. Equal pages give equal bytes."""
    template = environment().get_template(f"{PACKAGE}/template.html")
    return template.render(
        page=page,
        numbers=[msgspec.to_builtins(section.plots) for section in page.sections],
        band=BAND,
        css=_asset("report.css"),
        script=_asset("report.js"),
        plotly=_plotly(),
    )


def write_report(runs: Sequence[Run], path: Path, *, target: Target | None = None) -> None:
    """Write the page about some runs to an HTML file. Equal runs give equal bytes."""
    text = render(report(runs, target))
    with whole_file(path) as stream:
        stream.write(text)


def _asset(name: str) -> str:
    return files(PACKAGE).joinpath(name).read_text(encoding="utf-8")


def _plotly() -> str:
    try:
        from plotly.offline import get_plotlyjs
    except ImportError:
        raise MissingDependencyError("plotly", "a report") from None
    return str(get_plotlyjs())
