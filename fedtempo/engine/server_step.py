"""How the server steps: by the settings of training, the method of the policy, and what an asynchronous plan asks.

FedAsync mixes models in the place of updates, w ← w + Σ_j weight_j (w_j - w). With w_j = w'_j + Δ_j, where w'_j is the
model from which client j started, this is a step with the updates Δ_j + w'_j - w.
"""

from fedtempo.checks import InputError, Vector, check_choice, check_fraction
from fedtempo.engine.clients import Outcome
from fedtempo.engine.settings import TrainingSettings
from fedtempo.fleet import Fleet
from fedtempo.learning.aggregation import Aggregator
from fedtempo.learning.server_optimisers import SERVER_OPTIMISERS
from fedtempo.learning.trainer import Parameters, whole_steps
from fedtempo.policies.policy import BufferedPlan, Policy, RoundPlan
from fedtempo.state import Rows


def aggregator_of(fleet: Fleet, policy: Policy, training: TrainingSettings) -> Aggregator:
    """Return the server of a run; what the policy's method names comes before the settings of training."""
    memory = training.server_memory or policy.server_memory
    if training.local_correction and not memory:
        remedy = "set server_memory, or take a policy with a memory, such as tempo"
        raise InputError("local_correction", "go with a memory of last updates", "none", remedy)
    momentum, optimiser = policy.server_momentum, policy.server_optimiser
    if optimiser is not None:
        check_choice("a policy's server_optimiser", optimiser, SERVER_OPTIMISERS)
    if momentum is not None and check_fraction("a policy's server_momentum", momentum) == 1:
        raise InputError("a policy's server_momentum", "be below 1", "1", "old steps would never fade")
    return Aggregator(
        fleet.data_share,
        momentum=training.server_momentum if momentum is None else momentum,
        memory=memory,
        bits=policy.memory_bits,
        optimiser=training.server_optimiser if optimiser is None else optimiser,
        step_size=training.server_step_size,
    )


def step_factor(chosen: RoundPlan | BufferedPlan, done: Outcome) -> float:
    """Return the factor of the server's step that the staleness of those who arrived asks for."""
    limit = chosen.staleness_limit if isinstance(chosen, BufferedPlan) else None
    if limit is None or done.staleness is None:
        return 1.0
    stalest = float(done.staleness[~done.failed].max(initial=0))
    return 1.0 if stalest <= limit else limit / stalest


def path_lengths(done: Outcome, training: TrainingSettings) -> Vector:
    """Return how long each local path was, in steps of the schedule's η: what a direction is for one local step."""
    return whole_steps(training.local_schedule, done.local_steps) * (done.step_size / done.schedule)


def note_sent(sent: Rows, chosen: BufferedPlan, model: Parameters) -> None:
    """Keep the model that those are sent who start and whose own models will be mixed in."""
    if chosen.mix_models:
        sent.by_client.update(dict.fromkeys(chosen.start.tolist(), model))


def to_aggregate(sent: Rows, done: Outcome, model: Parameters, step_size: float) -> tuple[Parameters, Vector]:
    """Return the update of each member and the η of when it started: w'_j + Δ_j - w where its model is mixed in.

    A share of a model has no step size, so that of now stands there.
    """
    if not sent.by_client:
        return done.result.update, done.schedule
    update, then = done.result.update.copy(), done.schedule.copy()
    for j, client in enumerate(done.plan.members.tolist()):
        before = sent.by_client.pop(client, None)
        if before is not None:
            update[j] += before - model
            then[j] = step_size
    return update, then
