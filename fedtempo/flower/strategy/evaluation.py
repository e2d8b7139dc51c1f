"""The global loss, as a server's function or the clients tell it."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from logging import WARNING
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, MessageType, MetricRecord
from flwr.serverapp.strategy import Result
from flwr.supercore import log

from fedtempo.fleet import Fleet
from fedtempo.flower.strategy.layout import Layout
from fedtempo.flower.strategy.messages import CLIENT, NUM_EXAMPLES, ROUND
from fedtempo.flower.strategy.messenger import Messenger
from fedtempo.learning.trainer import Evaluation, Parameters

EvaluateFunction = Callable[[int, ArrayRecord], MetricRecord | None]
TRAINING_LOSSES = ("loss", "train-loss", "training-loss", "mean-loss")
EVALUATION_LOSSES = ("loss", "eval-loss", "evaluation-loss", "test-loss", "val-loss")
LARGEST_LOSS = 1000.0  # times what is usual, or one: a loss farther from the others does not count
ENOUGH_TO_JUDGE = 3  # clients who tell one
NO_LOSSES = ("packet-loss",)
ACCURACIES = ("accuracy", "acc", "eval-accuracy", "eval-acc", "test-accuracy", "test-acc", "val-accuracy", "val-acc")


def loss_of(metrics: Mapping[str, Any], usual: Sequence[str] = TRAINING_LOSSES) -> float:
    """Return the metric that is a loss, by its name: the first of the usual ones, or one that ends in the word loss."""
    named = _named(metrics)
    name = _loss_among(named, usual)
    return math.nan if name is None else float(named[name])


def evaluation_of(metrics: Mapping[str, Any]) -> Evaluation | None:
    """Return the metrics that are a loss and an accuracy, by their names; None without a loss."""
    named = _named(metrics)
    loss = _loss_among(named, EVALUATION_LOSSES)
    others = (name for name in named if "acc" in name)
    accuracy = next((float(named[name]) for name in (*ACCURACIES, *others) if name in named), math.nan)
    return None if loss is None else Evaluation(float(named[loss]), accuracy)


def _named(metrics: Mapping[str, Any]) -> dict[str, Any]:
    return {name.lower().replace("_", "-"): value for name, value in metrics.items()}


def _loss_among(named: Iterable[str], usual: Sequence[str]) -> str | None:
    others = [name for name in named if name.endswith("loss") and name not in NO_LOSSES]
    return next((name for name in usual if name in others), others[0] if others else None)


def averaged(
    metrics: Mapping[int, Mapping[str, float]], fleet: Fleet, *, but_for: Sequence[str] = ()
) -> dict[str, float]:
    """Return the metrics of clients, each averaged by their data over those who told it as a number."""
    names = dict.fromkeys(name for told in metrics.values() for name in told if name not in but_for)
    found = {}
    for name in names:
        told = {client: one[name] for client, one in metrics.items() if math.isfinite(one.get(name, math.nan))}
        if told:
            found[name] = float(np.average(list(told.values()), weights=fleet.data_share[list(told)]))
    return found


class ClientsEvaluation:
    """Asks all clients who are there; who did not answer is left out for a while, twice as long each time."""

    def __init__(self, messenger: Messenger, fleet: Fleet, config: Mapping[str, Any], seconds: float) -> None:
        """Take whom to ask, what to send along, and how long to wait."""
        self.messenger, self.fleet, self.config, self.seconds = messenger, fleet, dict(config), seconds
        self.silences: Counter[int] = Counter()
        self.left_out: dict[int, int] = {}  # for how many evaluations
        self.first: float | None = None  # median of losses
        self.metrics: dict[str, float] = {}  # of the last evaluation, on average

    def __call__(self, arrays: ArrayRecord, server_round: int) -> Evaluation | None:
        """Return loss and accuracy over the clients that answer with numbers, by their data."""
        asked = list(self._whom_to_ask())
        configs = [self.config | {ROUND: server_round, CLIENT: client} for client in asked]
        replies = self.messenger.collect(
            self.messenger.send(asked, MessageType.EVALUATE, arrays, configs), self.seconds
        )
        for client in asked:
            if client in replies:
                del self.silences[client]
            else:
                self.silences[client] += 1
                self.left_out[client] = 2 ** self.silences[client]
        answers = {client: reply.metrics() for client, reply in replies.items() if reply.error is None}
        told = {client: evaluation_of(metrics) for client, metrics in answers.items()}
        found = {client: one for client, one in told.items() if one is not None and math.isfinite(one.loss)}
        if nonsense := sorted(client for client, one in told.items() if one is not None and client not in found):
            log(WARNING, f"clients {nonsense} told a loss that is no number")
            if not found:
                return Evaluation(math.nan, math.nan)
        self._leave_out_absurd(found)
        answers = {client: answers[client] for client in found}
        self.metrics = averaged(answers, self.fleet, but_for=[NUM_EXAMPLES])
        return evaluation_of(averaged({client: asdict(one) for client, one in found.items()}, self.fleet))

    def _leave_out_absurd(self, found: dict[int, Evaluation]) -> None:
        """Leave out losses that are far from those of most clients: one must not end a run, whichever way."""
        if len(found) < ENOUGH_TO_JUDGE:
            return
        typical = float(np.median([one.loss for one in found.values()]))
        self.first = typical if self.first is None else self.first
        far = LARGEST_LOSS * max(abs(typical), abs(self.first), 1.0)
        for client, one in list(found.items()):
            if abs(one.loss - typical) > far or one.loss < 0 < min(typical, self.first):
                log(WARNING, f"client {client} told a loss of {one.loss:.3g}, where {typical:.3g} is usual: left out")
                del found[client]

    def _whom_to_ask(self) -> Iterator[int]:
        for client in np.flatnonzero(self.messenger.online()).tolist():
            if self.left_out.get(client, 0) > 0:
                self.left_out[client] -= 1
            else:
                yield client


class GlobalLoss:
    """Tells the global loss by the server's function or, where they are asked, by the clients, and keeps all metrics.

    Where both tell something, it is the clients' loss that counts.
    """

    def __init__(
        self,
        layout: Layout,
        result: Result,
        function: EvaluateFunction | None = None,
        clients: ClientsEvaluation | None = None,
    ) -> None:
        """Take who tells, and where metrics go."""
        self.layout, self.result, self.function, self.clients = layout, result, function, clients

    def __call__(self, model: Parameters, server_round: int) -> Evaluation | None:
        """Return it for the model after so many rounds, None if nobody tells."""
        metrics = None if self.function is None else self.function(server_round, self.layout.pack(model))
        if metrics is not None:
            self.result.evaluate_metrics_serverapp[server_round] = metrics
        if self.clients is None:
            return None if metrics is None else evaluation_of(metrics)
        found = self.clients(self.layout.pack(model), server_round)
        if found is not None:
            self.result.evaluate_metrics_clientapp[server_round] = MetricRecord({**self.clients.metrics})
        return found
