"""Short simulations of a small federation."""

import numpy as np

from fedtempo import Fleet
from fedtempo.engine.settings import StopSettings, TrainingSettings
from fedtempo.learning.softmax import SoftmaxTrainer
from fedtempo.policies.policy import Probe, RoundPlan
from fedtempo.simulator.api import assemble, simulate
from fedtempo.simulator.channel import StaticChannel
from fedtempo.simulator.markov import WithAbsences

OPTIONS = {
    "statistical": {"losses": [2.0, 1.9], "max_rounds": 5},
    "proposed": {"losses": [2.0, 1.9], "max_rounds": 5},
    "proposed-oracle": {"beta_over_alpha": 1.0},
}


def run(data, times, policy="weighted", *, rounds=6, seed=0, **more):
    settings = {
        "cohort_size": 4,
        "local_steps": 5,
        "max_rounds": rounds,
        "options": OPTIONS.get(str(policy), {}),
    } | more
    return simulate(data, **times, policy=policy, seed=seed, **settings)


def simulation(data, times, policy, seed=0, **training):
    fleet = Fleet(data.data_share, 1.0, **times)
    channel = StaticChannel(fleet.compute_time, fleet.upload_time)
    return assemble(
        data=data, trainer=SoftmaxTrainer(data), fleet=fleet,
        channel=WithAbsences(channel, present_share=0.8, seed=3),
        policy=policy, options=OPTIONS.get(policy, {}), seed=seed, stop=StopSettings(max_rounds=7),
        training=TrainingSettings(cohort_size=4, local_steps=5, server_momentum=0.5, server_memory=True, **training),
    )  # fmt: skip


class Asking:
    """A policy that asks before it plans: the two with the highest answers upload."""

    def __init__(self, ask):
        self.ask = ask

    def plan(self, context):
        if context.answers is None:
            return Probe(clients=np.array([3, 1, 8, 6]), ask=self.ask)
        best = np.sort(np.array([3, 1, 8, 6])[np.argsort(-context.answers)[:2]])
        return RoundPlan(members=best, weights=np.full(2, 0.5))

    def observe(self, report):
        pass
