"""What whoever waits for runs should know before they begin, as warnings."""

import math
import warnings
from collections.abc import Iterable

from fedtempo.engine.records import RunNotice
from fedtempo.experiments.running.problem import load_data
from fedtempo.experiments.settings.config import Experiment, FileExperiment, for_policy
from fedtempo.policies.proposed import PilotOptions
from fedtempo.policies.registry import traits


def warn_first(experiment: Experiment, policies: Iterable[str]) -> None:
    """Warn of data that are not those that the experiment names, and of pilots that go too far."""
    for notice in (data_notice(experiment), pilot_notice(experiment, policies)):
        if notice is not None:
            warnings.warn(notice, RunNotice, stacklevel=3)


def data_notice(experiment: Experiment) -> str | None:
    """Say that the data are not the whole set that the experiment names, None where they are."""
    if not isinstance(experiment, FileExperiment):
        return None
    data, kind = load_data(experiment.data), experiment.data.kind
    if data.complete:
        return None
    return f"the data are {data.name}, not the whole of {kind.upper()}; run: fedtempo fetch {kind}"


def pilot_notice(experiment: Experiment, policies: Iterable[str]) -> str | None:
    """Say that pilots go further than the runs that they are for, None where they do not."""
    target = experiment.stop.target_loss
    if target is None:
        return None
    ends = {policy: _end_of_pilots(experiment, policy) for policy in policies if traits(policy).needs_pilots}
    low = {policy: end for policy, end in ends.items() if end < target}
    if not low:
        return None
    return (
        f"the pilots of {' and '.join(low)} go on to loss {min(low.values()):g}, below the target {target:g}, and all "
        f"their time counts; set losses of {target:g} or more under {' and '.join(f'[policy.{name}]' for name in low)}"
    )


def _end_of_pilots(experiment: Experiment, policy: str) -> float:
    losses = for_policy(experiment, policy)[1].get("losses")
    return math.inf if losses is None else min(PilotOptions(losses=losses).losses)  # type: ignore[arg-type]
