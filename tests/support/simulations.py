"""Short simulations of a small federation."""

import numpy as np

from fedtempo import Fleet
from fedtempo.api.simulate import simulate
from fedtempo.engine.settings import StopSettings, TrainingSettings
from fedtempo.learning.softmax import SoftmaxTrainer
from fedtempo.policies.policy import Probe, RoundPlan
from fedtempo.simulator.absences import WithAbsences
from fedtempo.simulator.channel import StaticChannel
from fedtempo.simulator.problem import Problem
from fedtempo.simulator.simulation import RunSettings, make_simulation

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


def loop_of(data, times, policy, *, channel=None, rounds=7, seed=0, options=None, trainer=None, **training):
    """Return a run at its start."""
    fleet = Fleet(data.data_share, 1.0, **times)
    channel = channel or StaticChannel(fleet.compute_time, fleet.upload_time)
    settings = RunSettings(
        policy=policy, options=options or {}, seed=seed, stop=StopSettings(max_rounds=rounds),
        training=TrainingSettings(**{"cohort_size": 3, "local_steps": 5} | training),
    )  # fmt: skip
    return make_simulation(Problem.of_fleet(data, trainer or SoftmaxTrainer(data), fleet, channel), settings)


def simulation(data, times, policy, **more):
    """Return a run in which clients come and go, with all that a server may keep."""
    channel = WithAbsences(StaticChannel(**times), present_share=0.8, seed=3)
    usual = {"cohort_size": 4, "server_momentum": 0.5, "server_memory": True, "options": OPTIONS.get(policy, {})}
    return loop_of(data, times, policy, channel=channel, **usual | more)


def goes_on_alike(start, stops=None):
    """Check that a run which is stopped after some rounds, or any, and carried over to new objects comes out the same.

    ``start`` returns a run at its start.
    """
    whole = list(start().rounds())
    for stop in stops or range(1, len(whole)):
        first, second = start(), start()
        rounds = first.rounds()
        begun = [next(rounds) for _ in range(stop)]
        second.resume({name: array.copy() for name, array in first.save().items()})
        assert begun + list(second.rounds()) == whole


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
