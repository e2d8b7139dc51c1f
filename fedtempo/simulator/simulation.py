"""One simulated run: the loop with simulated clients, made from a problem and what is chosen for it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from fedtempo.engine.loop import Loop, LoopSettings
from fedtempo.engine.settings import StopSettings, TrainingSettings, policy_setting
from fedtempo.engine.upload_sizes import reference_share, uploads_of, with_upload_share
from fedtempo.learning.quantisation import Quantiser
from fedtempo.policies.policy import Policy
from fedtempo.policies.registry import PolicyLike, make
from fedtempo.simulator.channel import ScaledUploads
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
    numbers = problem.upload_numbers
    setting = policy_setting(
        with_upload_share(problem.fleet, reference_share(training, *numbers)),
        training,
        settings.options,
        lambda: problem.first_gradient_bounds(training, seed),
        plain_paths=getattr(problem.trainer, "optimiser", None) is None,
        **uploads_of(training, *numbers),
    )
    return make(settings.policy, setting)


def make_simulation(problem: Problem, settings: RunSettings) -> Loop:
    """Return a run under a simulated clock, at its start."""
    training, seed = settings.training, settings.seed
    workers = LocalWorkers(problem.trainer, problem.batches(training, seed), training, Quantiser(seed))
    share = reference_share(training, *problem.upload_numbers)
    fleet, channel = with_upload_share(problem.fleet, share), problem.channel
    clients = SimulatedClients(
        workers=workers,
        samples=problem.data.sizes,
        fleet=fleet,
        channel=channel if share == 1 else ScaledUploads(channel, share),
        training=training,
    )
    loop = LoopSettings(
        fleet=fleet,
        policy=make_policy(problem, settings),
        training=training,
        stop=settings.stop,
        seed=seed,
    )
    return Loop(loop, clients, problem.initial_model(seed), problem.initial_buffers(seed))
