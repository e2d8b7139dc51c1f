"""Flower nodes that compute under the simulated clock."""

import numpy as np

from fedtempo.checks import Integers, Vector
from fedtempo.engine.clients import Arrays, Start
from fedtempo.flower.strategy.nodes import FlowerClients
from fedtempo.learning.trainer import Evaluation, LocalResult, Parameters
from fedtempo.policies.policy import Probe, RoundPlan


class GridWorkers:
    """Flower nodes that compute for simulated clients: their own clock does not count, and none of them may fail."""

    def __init__(self, clients: FlowerClients) -> None:
        """Take the nodes."""
        self.clients, self.num_parameters = clients, clients.layout.size

    def train(self, clients: Integers, steps: Integers, sizes: Vector, start: Start) -> LocalResult:
        """Let nodes run the local steps."""
        if start.round_index == 0:
            self.clients.start_again()
        self.clients.look(start)
        alike = np.full(len(clients), 1 / max(len(clients), 1))  # for buffers; the loop weighs updates itself
        plan = RoundPlan(members=clients, weights=alike, local_steps=steps, step_size=sizes)
        outcome = self.clients.train(plan, start)
        if outcome.failed.any():
            raise RuntimeError(
                f"nodes of a simulated run must not fail, got {(outcome.plan.note or {}).get('failures')}"
            )
        return outcome.result

    def losses(self, clients: Integers, start: Start) -> Vector:
        """Ask nodes for F_i of the model."""
        return self.clients.ask(Probe(clients=clients, ask="loss"), start)

    def evaluate(self, model: Parameters) -> Evaluation | None:
        """Return how good a model is."""
        return self.clients.evaluate(model)

    def state(self) -> Arrays:
        """Return what the server keeps of the nodes' models."""
        return self.clients.state()

    def restore(self, arrays: Arrays) -> None:
        """Take it up."""
        self.clients.restore(arrays)
