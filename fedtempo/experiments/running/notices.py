"""What whoever waits for runs should know before they begin, as warnings."""

import math
import warnings

from fedtempo.engine.records import RunNotice
from fedtempo.experiments.running.planned import Policies, by_name
from fedtempo.experiments.running.problem import data_of, load_data
from fedtempo.experiments.settings.config import Experiment, FileExperiment, for_policy
from fedtempo.policies.proposed import PilotOptions
from fedtempo.policies.registry import traits


def warn_first(experiment: Experiment, policies: Policies) -> None:
    """Warn of data that are not those that the experiment names, of pilots that go too far, and of K above N."""
    notices = data_notice(experiment), pilot_notice(experiment, policies), cohort_notice(experiment, policies)
    for notice in notices:
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


def pilot_notice(experiment: Experiment, policies: Policies) -> str | None:
    """Say that pilots go further than the runs that they are for, None where they do not."""
    target = experiment.stop.target_loss
    if target is None:
        return None
    ends = {policy: _end_of_pilots(experiment, policy) for policy in _with(policies, "needs_pilots")}
    low = {policy: end for policy, end in ends.items() if end < target}
    if not low:
        return None
    return (
        f"the pilots of {' and '.join(low)} go on to loss {min(low.values()):g}, below the target {target:g}, and all "
        f"their time counts; set losses of {target:g} or more under {' and '.join(f'[policy.{name}]' for name in low)}"
    )


def cohort_notice(experiment: Experiment, policies: Policies) -> str | None:
    """Say that more clients are to be drawn in a round than there are, None where it is not so.

    Policies that draw each client once at most take all of them then.
    """
    clients = data_of(experiment).num_clients
    asked = {policy: for_policy(experiment, policy) for policy in _with(policies, "repeats")}
    above = {
        policy: training.cohort_size
        for policy, (training, options) in asked.items()
        if training.cohort_size > clients and options.get("replacement", True)
    }
    if not above:
        return None
    sizes, draw = " and ".join(map(str, sorted(set(above.values())))), "draws" if len(above) == 1 else "draw"
    return (
        f"cohort_size {sizes} is above the {clients} clients: {' and '.join(above)} {draw} with replacement, "
        "and may draw a client several times a round"
    )


def _with(policies: Policies, trait: str) -> list[str]:
    """Return the names of the policies that have a trait."""
    return [name for name, one in by_name(policies).items() if isinstance(one, str) and getattr(traits(one), trait)]


def _end_of_pilots(experiment: Experiment, policy: str) -> float:
    losses = for_policy(experiment, policy)[1].get("losses")
    return math.inf if losses is None else min(PilotOptions(losses=losses).losses)  # type: ignore[arg-type]
