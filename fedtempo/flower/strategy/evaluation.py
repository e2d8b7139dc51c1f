"""The global loss, by a function on the server or by the clients."""

import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from logging import WARNING

import numpy as np
from flwr.app import ArrayRecord, MessageType, MetricRecord
from flwr.serverapp.strategy import Result

from fedtempo.fleet import Fleet
from fedtempo.flower.log import log
from fedtempo.flower.strategy.layout import Layout
from fedtempo.flower.strategy.messages import CLIENT, NUM_EXAMPLES, ROUND, MessageConfig
from fedtempo.flower.strategy.messenger import Messenger
from fedtempo.flower.strategy.metric_names import averaged, evaluation_of
from fedtempo.learning.trainer import Buffers, Evaluation, Parameters

EvaluateFunction = Callable[[int, ArrayRecord], MetricRecord | None]
LARGEST_LOSS = 1000.0  # times what is usual, or one: a loss farther from the others does not count
ENOUGH_TO_COMPARE = 3  # clients who report one


@dataclass(slots=True)
class EvaluationState:
    """What decides whom a resumed run asks, and which losses it takes."""

    silences: dict[int, int] = field(default_factory=dict)  # evaluations in a row in which a client did not reply
    left_out: dict[int, int] = field(default_factory=dict)  # for how many more evaluations it is not asked
    first_median: float | None = None  # of losses, in the first evaluation that had enough


class ClientsEvaluation:
    """Asks all clients that are available; who did not reply is left out for a while, twice as long each time."""

    def __init__(self, messenger: Messenger, fleet: Fleet, config: MessageConfig, seconds: float) -> None:
        """Take whom to ask, what to send along, and how many seconds to wait."""
        self.messenger, self.fleet, self.config, self.seconds = messenger, fleet, dict(config), seconds
        self.state = EvaluationState()
        self.metrics: dict[str, float] = {}  # of the last evaluation, on average

    def __call__(self, arrays: ArrayRecord, server_round: int) -> Evaluation | None:
        """Return loss and accuracy over the clients that report numbers, by their data."""
        metrics = self._ask(arrays, server_round)
        reported = {client: evaluation_of(own) for client, own in metrics.items()}
        found = {client: one for client, one in reported.items() if one is not None and math.isfinite(one.loss)}
        if nonsense := sorted(client for client, one in reported.items() if one is not None and client not in found):
            log(WARNING, f"clients {nonsense} reported a loss that is no number")
            if not found:
                return Evaluation(math.nan, math.nan)
        self._leave_out_absurd(found)
        self.metrics = averaged({client: metrics[client] for client in found}, self.fleet, but_for=[NUM_EXAMPLES])
        return evaluation_of(averaged({client: asdict(one) for client, one in found.items()}, self.fleet))

    def _ask(self, arrays: ArrayRecord, server_round: int) -> dict[int, dict[str, float]]:
        """Return the metrics of those who replied without an error."""
        asked = list(self._whom_to_ask())
        configs = [self.config | {ROUND: server_round, CLIENT: client} for client in asked]
        sent = self.messenger.send(asked, MessageType.EVALUATE, arrays, configs)
        replies, silences = self.messenger.collect(sent, self.seconds), self.state.silences
        for client in asked:
            if client in replies:
                silences.pop(client, None)
            else:
                silences[client] = silences.get(client, 0) + 1
                self.state.left_out[client] = 2 ** silences[client]
        return {client: reply.metrics() for client, reply in replies.items() if reply.failure is None}

    def _leave_out_absurd(self, found: dict[int, Evaluation]) -> None:
        """Leave out losses that are far from those of most clients: one must not end a run, whichever way."""
        if len(found) < ENOUGH_TO_COMPARE:
            return
        typical = float(np.median([one.loss for one in found.values()]))
        first = self.state.first_median = typical if self.state.first_median is None else self.state.first_median
        far = LARGEST_LOSS * max(abs(typical), abs(first), 1.0)
        for client, one in list(found.items()):
            if abs(one.loss - typical) > far or one.loss < 0 < min(typical, first):
                usual = f"where {typical:.3g} is usual"
                log(WARNING, f"client {client} reported a loss of {one.loss:.3g}, {usual}: left out")
                del found[client]

    def _whom_to_ask(self) -> Iterator[int]:
        for client in np.flatnonzero(self.messenger.online()).tolist():
            if self.state.left_out.get(client, 0) > 0:
                self.state.left_out[client] -= 1
            else:
                yield client


class GlobalLoss:
    """The loss by the server's function or, where they are asked, by the clients; it keeps all metrics.

    Where both report one, the clients' loss counts.
    """

    def __init__(
        self,
        layout: Layout,
        result: Result,
        function: EvaluateFunction | None = None,
        clients: ClientsEvaluation | None = None,
    ) -> None:
        """Take who evaluates, and where metrics go; whoever makes the loop says what ``rounds_done`` returns."""
        self.layout, self.result, self.function, self.clients = layout, result, function, clients
        self.rounds_done: Callable[[], int] = lambda: 0
        self._unused = EvaluationState()

    @property
    def state(self) -> EvaluationState:
        """What a resumed run needs of the clients' evaluations; there is one even where nobody asks them."""
        return self._unused if self.clients is None else self.clients.state

    @state.setter
    def state(self, state: EvaluationState) -> None:
        if self.clients is None:
            self._unused = state
        else:
            self.clients.state = state

    def __call__(self, model: Parameters, buffers: Buffers) -> Evaluation | None:
        """Return how good a model is, None if nobody evaluates it."""
        server_round, arrays = self.rounds_done(), self.layout.pack(model, buffers)
        metrics = None if self.function is None else self.function(server_round, arrays)
        if metrics is not None:
            self.result.evaluate_metrics_serverapp[server_round] = metrics
        if self.clients is None:
            return None if metrics is None else evaluation_of(metrics)
        found = self.clients(self.layout.pack(model, buffers), server_round)
        if found is not None:
            self.result.evaluate_metrics_clientapp[server_round] = MetricRecord({**self.clients.metrics})
        return found
