"""Flower nodes that compute under the simulated clock: their own clock does not count, and none of them may fail."""

from dataclasses import dataclass, field
from logging import INFO

from fedtempo.checks import Integers, Vector
from fedtempo.engine.clients import Start
from fedtempo.engine.settings import TrainingSettings
from fedtempo.engine.upload_sizes import relative_sizes
from fedtempo.fleet import Fleet
from fedtempo.flower.log import log
from fedtempo.flower.strategy.assignment import assign
from fedtempo.flower.strategy.dispatch import Dispatch
from fedtempo.flower.strategy.evaluation import EvaluationState, GlobalLoss
from fedtempo.flower.strategy.judge import JudgeState
from fedtempo.flower.strategy.newcomers import Newcomers
from fedtempo.flower.strategy.results import local_result, own_metrics
from fedtempo.flower.strategy.uplink import cohort_bandwidth
from fedtempo.learning.trainer import Buffers, Evaluation, LocalResult, Parameters
from fedtempo.simulator.workers import Work


@dataclass(slots=True)
class GridWorkersState:
    """What a new process must know of the nodes."""

    judge: JudgeState = field(default_factory=JudgeState)
    evaluation: EvaluationState = field(default_factory=EvaluationState)


class GridWorkers:
    """Flower nodes as the workers of simulated clients."""

    def __init__(
        self,
        dispatch: Dispatch,
        *,
        fleet: Fleet,
        training: TrainingSettings,
        loss: GlobalLoss,
        deadline: float,
        newcomers: Newcomers | None = None,
    ) -> None:
        """Take the way to nodes; ``deadline``: seconds that a node has to report."""
        self.dispatch, self.fleet, self.training, self.loss = dispatch, fleet, training, loss
        self.deadline, self.newcomers = deadline, newcomers
        self.metrics: dict[str, float] = {}  # of the last training: what apps report of their own, on average

    @property
    def state(self) -> GridWorkersState:
        """All that a resumed run needs."""
        return GridWorkersState(self.dispatch.judge.state, self.loss.state)

    @state.setter
    def state(self, state: GridWorkersState) -> None:
        self.dispatch.judge.state, self.loss.state = state.judge, state.evaluation
        log(INFO, "the run goes on from its checkpoint")

    def train(self, work: Work, start: Start) -> LocalResult:
        """Let nodes run the local steps."""
        judge = self.dispatch.judge
        if start.round_index == 0:
            judge.state = JudgeState()  # training starts again from w₀, where other updates are usual
        if self.newcomers is not None:
            self.newcomers.admit(self.dispatch.messenger)
        assignments = assign(
            start,
            work.clients,
            local_steps=work.local_steps,
            step_size=work.step_size,
            schedule=start.step_size,
            bandwidth=cohort_bandwidth(
                self.fleet,
                self.training,
                work.clients,
                work.local_steps,
                relative_sizes(self.training, work.upload_bits, start.model.size, start.buffers.size),
            ),
            upload_bits=work.upload_bits,
        )
        sent = self.dispatch.send(assignments, start, together=True)
        reports = judge.refuse_absurd(self.dispatch.collect(sent, self.deadline))
        if failures := {one.client: str(one.failure) for one in reports if one.failure is not None}:
            raise RuntimeError(f"nodes of a simulated run must not fail, got {failures}")
        self.metrics = own_metrics(reports, self.fleet)
        return local_result(reports, judge)

    def losses(self, clients: Integers, start: Start) -> Vector:
        """Return F_i of the model for some clients."""
        return self.dispatch.losses(clients, start, self.deadline)

    def evaluate(self, model: Parameters, buffers: Buffers) -> Evaluation | None:
        """Return how good a model is."""
        return self.loss(model, buffers)
