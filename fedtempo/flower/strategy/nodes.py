"""Real clients: Flower nodes that train and upload under the wall clock."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from logging import INFO

from fedtempo.checks import Integers, Vector
from fedtempo.engine.clients import Conditions, Start
from fedtempo.engine.settings import TrainingSettings
from fedtempo.fleet import Fleet
from fedtempo.flower.link.allotment import Link
from fedtempo.flower.log import log
from fedtempo.flower.strategy.assignment import ClientReport
from fedtempo.flower.strategy.dispatch import Dispatch
from fedtempo.flower.strategy.evaluation import GlobalLoss
from fedtempo.flower.strategy.judge import JudgeState
from fedtempo.flower.strategy.messenger import POLL_SECONDS
from fedtempo.flower.strategy.newcomers import Newcomers
from fedtempo.flower.strategy.node_flight import NodeFlight
from fedtempo.flower.strategy.node_round import NodeRound, RoundClock
from fedtempo.flower.strategy.uplink import Uplink
from fedtempo.learning.trainer import Buffers, Evaluation, Parameters
from fedtempo.state import Stateful

MOST_FRUITLESS_ROUNDS = 5  # one after another in which so many different clients failed, or all available: an end


@dataclass(slots=True)
class NodesState:
    """What a new process must know of the nodes."""

    in_flight: list[int] = field(default_factory=list)  # it reports them as lost: their replies went to the old one
    fruitless_rounds: int = 0  # without an update that was taken, since there was one
    failing: list[int] = field(default_factory=list)  # who failed in these


class FlowerClients:
    """The fleet of a real run."""

    repeatable = False

    def __init__(
        self,
        dispatch: Dispatch,
        *,
        fleet: Fleet,
        training: TrainingSettings,
        loss: GlobalLoss,
        deadline: float,
        link: Link | None = None,
        newcomers: Newcomers | None = None,
    ) -> None:
        """Start with nobody in flight; ``deadline``: seconds that a client has to report."""
        self.dispatch, self.fleet, self.training, self.loss = dispatch, fleet, training, loss
        self.deadline, self.uplink, self.newcomers = deadline, Uplink(link), newcomers
        self.flight = NodeFlight(dispatch, deadline)
        self.last_end = 0.0  # of a round, on the monotonic clock
        self.metrics: dict[str, float] = {}  # of the last round: what apps report of their own, on average
        self._fruitless_rounds, self._failing = 0, list[int]()

    @property
    def state(self) -> NodesState:
        """All that a resumed run needs, but for what the judge and evaluations know."""
        return NodesState(self.in_flight.tolist(), self._fruitless_rounds, self._failing)

    @state.setter
    def state(self, state: NodesState) -> None:
        self.flight.sent, self.flight.lost = {}, state.in_flight
        self._fruitless_rounds, self._failing = state.fruitless_rounds, state.failing
        log(INFO, "the run goes on from its checkpoint")

    @property
    def parts(self) -> dict[str, Stateful]:
        """Who is in flight, what updates are usual, and whom evaluations ask."""
        return {"clients": self, "judge": self.dispatch.judge, "evaluation": self.loss}

    @property
    def in_flight(self) -> Integers:
        """Who has started and is still to arrive."""
        return self.flight.clients

    def begin(self, start: Start) -> NodeRound:
        """Begin a round: wait until some client is available, and let the clock of the round start.

        While clients are in flight the clock goes on: they do, too, when the server evaluates or saves between rounds.
        """
        now = time.monotonic()
        clock = RoundClock(self.last_end if self.flight.sent else now, now)
        while not (conditions := self.conditions()).available.any() and not len(self.in_flight):  # type: ignore[union-attr]
            if time.monotonic() > now + self.deadline:
                raise RuntimeError(f"some node must be connected, got none for {self.deadline:g} s{self._others()}")
            time.sleep(POLL_SECONDS)
        return NodeRound(self, start, clock, conditions)

    def evaluate(self, model: Parameters, buffers: Buffers) -> Evaluation | None:
        """Return how good a model is, by whatever the user has chosen."""
        return self.loss(model, buffers)

    def losses(self, model: Parameters, buffers: Buffers, clients: Integers) -> Vector | None:
        """Know nothing: losses of single clients would take a round of messages."""
        return None

    def conditions(self) -> Conditions:
        """Return who is available and idle, nodes that have connected since included."""
        if self.newcomers is not None:
            self.newcomers.admit(self.dispatch.messenger)
        idle = self.dispatch.messenger.online()
        idle[self.in_flight] = False
        return Conditions(available=idle)

    def start_again(self) -> None:
        """Forget who is in flight and what is usual: training starts again from w₀."""
        self.flight.forget_all()
        self.dispatch.judge.state = JudgeState()

    def check_fruitless(self, reports: Sequence[ClientReport]) -> None:
        """End a run in which no client's update is taken any more."""
        if not reports:
            return
        if any(one.update is not None for one in reports):
            self._fruitless_rounds, self._failing = 0, []
            return
        self._fruitless_rounds += 1
        self._failing = sorted({*self._failing, *(one.client for one in reports)})
        enough = min(int(self.dispatch.messenger.online().sum()), MOST_FRUITLESS_ROUNDS)
        if self._fruitless_rounds >= MOST_FRUITLESS_ROUNDS and len(self._failing) >= enough:
            last = reports[-1]
            raise RuntimeError(
                f"some client must report an update, got failures alone in {self._fruitless_rounds} rounds one after "
                f"another; the last from client {last.client}: {last.failure}"
            )

    def _others(self) -> str:
        """Name nodes that are connected instead of those that are known."""
        messenger = self.dispatch.messenger
        others = sorted(set(messenger.grid.get_node_ids()) - set(messenger.client_of))
        known = sorted(messenger.client_of)
        return f"; nodes {others} are connected, but the clients of this run are nodes {known}" if others else ""
