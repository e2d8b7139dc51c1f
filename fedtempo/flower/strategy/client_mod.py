"""The client's side: a mod for a Flower ClientApp that measures what policies learn from.

    app = ClientApp(mods=[tempo_client()])

The app's own training function stays as it is. Around it, the mod measures the seconds of computing and, where it
trains with PyTorch, the gradient norms of every optimiser step; other code may call ``note_gradient``. It also answers
what the strategy asks beyond training: who the node is, and, for policies that let all compute and few upload, the norm
of an update, which it keeps until it is fetched.
"""

import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict

from fedtempo.flower.strategy.layout import is_trained
from fedtempo.flower.strategy.messages import (
    ARRAYS,
    ASK,
    COMPUTE_SECONDS,
    CONFIG,
    DESCRIBE,
    FETCH,
    KEEP,
    KEPT_MODEL,
    LARGEST_GRADIENT_NORM,
    MEAN_GRADIENT_NORM,
    MEASUREMENTS,
    NUM_EXAMPLES,
    PARTITION,
    ROUND_INDEX,
    UPDATE_NORM,
)

ClientFunction = Callable[[Message, Context], Message]
Mod = Callable[[Message, Context, ClientFunction], Message]


class GradientNorms:
    """Gradient norms along the path of one local training."""

    def __init__(self) -> None:
        """Start with none."""
        self.count, self.total, self.largest = 0, 0.0, 0.0

    def add(self, norm: float) -> None:
        """Take one more."""
        self.count += 1
        self.total += norm
        self.largest = max(self.largest, norm)

    def metrics(self) -> dict[str, float]:
        """Return what a reply reports of them."""
        if not self.count:
            return {}
        return {LARGEST_GRADIENT_NORM: self.largest, MEAN_GRADIENT_NORM: self.total / self.count}


_running: list[GradientNorms] = []


def note_gradient(gradient: npt.ArrayLike | Sequence[npt.ArrayLike]) -> None:
    """Report the gradient of a local step, whole or as a list of layers, or its norm.

    For training without an optimiser of PyTorch, whose gradients the mod sees by itself. Outside of a training that the
    mod measures it does nothing.
    """
    if _running:
        parts = gradient if isinstance(gradient, list | tuple) else [gradient]
        squares = [float(np.sum(np.square(np.asarray(part, dtype=np.float64)))) for part in parts]
        _running[-1].add(math.sqrt(sum(squares)))


def tempo_client(num_examples: Callable[[Context], int] | None = None) -> Mod:
    """Return the mod; ``num_examples`` returns how many samples the node trains on, to weigh it by."""

    def mod(message: Message, context: Context, call_next: ClientFunction) -> Message:
        config = message.content.config_records.get(CONFIG, ConfigRecord())
        ask = config.get(ASK)
        if ask == DESCRIBE:
            return _describe(message, context, num_examples)
        if ask == FETCH:
            return Message(RecordDict({ARRAYS: context.state.array_records[KEPT_MODEL]}), reply_to=message)
        if message.metadata.message_type != "train" or ROUND_INDEX not in config:  # or of another strategy
            return call_next(message, context)
        received = message.content.array_records.get(ARRAYS)
        with _measuring() as norms:
            began = time.perf_counter()
            reply = call_next(message, context)
            seconds = time.perf_counter() - began
        if reply.has_error():
            return reply
        own = reply.content.metric_records.get(MEASUREMENTS, MetricRecord())  # of an app that knows better
        reply.content[MEASUREMENTS] = MetricRecord({COMPUTE_SECONDS: seconds, **norms.metrics(), **own})
        if ask == KEEP and received is not None:
            _keep(reply, received, context)
        return reply

    return mod


def _describe(message: Message, context: Context, num_examples: Callable[[Context], int] | None) -> Message:
    """Return which partition this node has, and how many samples."""
    known = {name: value for name in (PARTITION, NUM_EXAMPLES) if (value := context.node_config.get(name)) is not None}
    if num_examples is not None:
        try:
            known[NUM_EXAMPLES] = num_examples(context)
        except Exception as error:
            raise RuntimeError(f"num_examples of tempo_client failed: {error!r}") from error
    description = MetricRecord({name: int(value) for name, value in known.items()})
    return Message(RecordDict({MEASUREMENTS: description}), reply_to=message)


def _keep(reply: Message, received: ArrayRecord, context: Context) -> None:
    """Keep the update until it is fetched; report its norm alone."""
    arrays = reply.content.array_records.pop(ARRAYS)
    context.state[KEPT_MODEL] = arrays
    squares = [
        float(np.sum((arrays[name].numpy().astype(np.float64) - received[name].numpy()) ** 2))
        for name in arrays
        if is_trained(name, arrays[name].dtype)
    ]
    reply.content.metric_records[MEASUREMENTS][UPDATE_NORM] = float(np.sqrt(sum(squares)))


@contextmanager
def _measuring() -> Iterator[GradientNorms]:
    """Take the gradients of every optimiser step of PyTorch, where it is loaded, and those of ``note_gradient``."""
    norms = GradientNorms()
    _running.append(norms)
    torch: Any = sys.modules.get("torch")
    optimisers: Any = sys.modules.get("torch.optim.optimizer")
    hook = None
    if torch is not None and optimisers is not None:

        def see(optimiser: Any, args: object, kwargs: object) -> None:  # noqa: ANN401
            gradients = [p.grad for group in optimiser.param_groups for p in group["params"] if p.grad is not None]
            dense = [g.coalesce().values() if g.is_sparse else g for g in gradients]
            if dense:
                norms.add(math.sqrt(sum(float(torch.linalg.vector_norm(g)) ** 2 for g in dense)))

        hook = optimisers.register_optimizer_step_pre_hook(see)
    try:
        yield norms
    finally:
        _running.remove(norms)
        if hook is not None:
            hook.remove()
