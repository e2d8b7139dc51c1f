"""One simulated run: the loop with simulated clients."""

from fedtempo.checks import InputError
from fedtempo.data.federation import FederatedData
from fedtempo.engine.loop import Loop
from fedtempo.engine.settings import StopSettings, TrainingSettings
from fedtempo.fleet import Fleet
from fedtempo.learning.batches import Batches
from fedtempo.learning.trainer import Trainer
from fedtempo.policies.policy import Policy
from fedtempo.randomness import stream
from fedtempo.simulator.channel import Channel
from fedtempo.simulator.simulated_clients import LocalWorkers, SimulatedClients


class Simulation(Loop):
    """A policy, a model and a fleet under a simulated clock."""

    def __init__(
        self,
        *,
        data: FederatedData,
        trainer: Trainer,
        fleet: Fleet,
        channel: Channel,
        policy: Policy,
        training: TrainingSettings,
        stop: StopSettings,
        seed: int,
    ) -> None:
        """Start at w₀, at time 0."""
        if data.num_clients != len(fleet):
            raise InputError(
                name="the fleet",
                rule="have a client for each part of the data",
                got=f"{len(fleet)} and {data.num_clients}",
            )
        batches = Batches(data.offsets, batch_size=training.batch_size, seed=seed)
        super().__init__(
            clients=SimulatedClients(
                workers=LocalWorkers(trainer, batches, weight_decay=training.weight_decay),
                samples=data.sizes,
                fleet=fleet,
                channel=channel,
                training=training,
            ),
            initial=trainer.initial_model(stream(seed, "initial model")),
            fleet=fleet,
            policy=policy,
            training=training,
            stop=stop,
            seed=seed,
        )
