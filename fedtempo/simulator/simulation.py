"""One simulated run: the loop with simulated clients, made from a problem and what is chosen for it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from fedtempo.engine.loop import Loop, LoopSettings
from fedtempo.engine.settings import StopSettings, TrainingSettings, policy_setting
from fedtempo.policies.policy import Policy
from fedtempo.policies.registry import PolicyLike, make
from fedtempo.simulator.problem import Problem
from fedtempo.simulator.simulated_clients import SimulatedClients
from fedtempo.simulator.workers import LocalWorkers


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class RunSettings:
    """What is chosen for one run of a problem."""

    policy: PolicyLike
    training: TrainingSettings
    stop: StopSettings
    seed: int
    options: Mapping[str, object] = field(default_factory=dict)  # of the policy


def make_policy(problem: Problem, settings: RunSettings) -> Policy:
    """Return the policy of a run alone, which costs little."""
    training, seed = settings.training, settings.seed
    setting = policy_setting(
        problem.fleet, training, settings.options, lambda: problem.first_gradient_bounds(training, seed)
    )
    return make(settings.policy, setting)


def make_simulation(problem: Problem, settings: RunSettings) -> Loop:
    """Return a run under a simulated clock, at its start."""
    training, seed = settings.training, settings.seed
    workers = LocalWorkers(problem.trainer, problem.batches(training, seed), training)
    clients = SimulatedClients(
        workers=workers,
        samples=problem.data.sizes,
        fleet=problem.fleet,
        channel=problem.channel,
        training=training,
    )
    loop = LoopSettings(
        fleet=problem.fleet,
        policy=make_policy(problem, settings),
        training=training,
        stop=settings.stop,
        seed=seed,
    )
    return Loop(loop, clients, problem.initial_model(seed), problem.initial_buffers(seed))
