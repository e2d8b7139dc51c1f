"""A tuning as a picture: the time to the target against the step size, a line for each policy and cohort size."""

from typing import TYPE_CHECKING

from fedtempo.experiments.comparing.styles import styles
from fedtempo.experiments.ranking.candidates import Trial
from fedtempo.experiments.ranking.tuning import Tuning
from fedtempo.figures import check_matplotlib, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def tuning_figure(tuning: Tuning) -> "Figure":
    """Return mean times with pilots; points of which runs missed the target are open, the best of a policy a star."""
    check_matplotlib()
    from matplotlib.ticker import LogLocator, NullFormatter, NullLocator, StrMethodFormatter

    figure = new_figure(6.5, 4.0)
    axes = figure.add_subplot()
    look = styles({policy: policy for policy in tuning.best})
    everything = [run for trial in tuning.trials for run in trial.runs]
    for label, trials in _lines(tuning).items():
        times = [trial.times(tuning.target, everything) for trial in trials]
        sizes, style = [trial.candidate.training.step_size_of(0) for trial in trials], look[trials[0].policy]
        axes.plot(sizes, [one.mean for one in times], color=style.colour, linewidth=1.2, label=label)
        for trial, size, one in zip(trials, sizes, times, strict=True):
            best = tuning.best[trial.policy] is trial
            axes.plot(
                size, one.mean, "*" if best else "o", color=style.colour, markersize=12 if best else 5,
                markerfacecolor="white" if one.missed else style.colour,
            )  # fmt: skip
    axes.set(xscale="log", yscale="log", xlabel="step size", ylabel=f"simulated seconds to {tuning.target}")
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticks(
        tried := sorted({trial.candidate.training.step_size_of(0) for trial in tuning.trials}),
        [f"{x:g}" for x in tried],
    )
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_title(f"{tuning.experiment.name}: stars are best; open points are bounds, some runs missed", fontsize=9)
    axes.grid(alpha=0.3, linewidth=0.4)
    axes.legend(frameon=False, fontsize=8)
    return figure


def _lines(tuning: Tuning) -> dict[str, list[Trial]]:
    """Return the trials of each line in order of their step sizes."""
    sizes = {trial.candidate.training.cohort_size for trial in tuning.trials}
    found: dict[str, list[Trial]] = {}
    for trial in sorted(tuning.trials, key=lambda trial: trial.candidate.training.step_size_of(0)):
        size = f", K = {trial.candidate.training.cohort_size}" if len(sizes) > 1 else ""
        found.setdefault(f"{trial.policy}{size}", []).append(trial)
    return found
