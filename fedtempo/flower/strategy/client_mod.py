"""The client's side: a mod for a Flower ClientApp that measures what policies learn from.

    app = ClientApp(mods=[tempo_client()])

The app's own training function stays as it is. Around it, the mod measures the seconds of computing and, where it
trains with PyTorch, the gradient norms of every optimiser step; other code may call ``note_gradient``. Where uploads
have fewer bits, it packs the update in the place of the model. It also answers what the strategy asks beyond training:
who the node is, and, for policies that let all compute and few upload, the norm of an update, which it keeps until it
is fetched.
"""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict

from fedtempo.flower.strategy.layout import is_trained
from fedtempo.flower.strategy.local_training import LocalTraining, measuring
from fedtempo.flower.strategy.messages import (
    ARRAYS,
    ASK,
    COMPUTE_SECONDS,
    CONFIG,
    DESCRIBE,
    DIRECTION,
    FETCH,
    KEEP,
    KEPT_MODEL,
    LOCAL_DIRECTION,
    MEASUREMENTS,
    NUM_EXAMPLES,
    PARTITION,
    ROUND_INDEX,
    UPDATE_NORM,
    UPLOAD_BITS,
    MessageConfig,
)

if TYPE_CHECKING:
    from fedtempo.flower.strategy.packing import PackedUpload

ClientFunction = Callable[[Message, Context], Message]
Mod = Callable[[Message, Context, ClientFunction], Message]


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
        share = float(cast("float", config.get(LOCAL_DIRECTION, 0.0)))
        began = time.perf_counter()
        with measuring(LocalTraining(share, message.content.array_records.get(DIRECTION))) as training:
            reply = call_next(message, context)
        if reply.has_error():
            return reply
        training.check_followed()
        packed = _pack(reply, received, config)
        seconds = time.perf_counter() - began
        own = reply.content.metric_records.get(MEASUREMENTS, MetricRecord())  # of an app that knows better
        noise = {} if packed is None else packed.noise
        reply.content[MEASUREMENTS] = MetricRecord({COMPUTE_SECONDS: seconds, **training.metrics(), **noise, **own})
        if ask == KEEP and received is not None:
            _keep(reply, received, context, packed)
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


def _pack(reply: Message, received: ArrayRecord | None, config: MessageConfig) -> "PackedUpload | None":
    """Put the update into the place of the model, where it is asked for; return what was put there."""
    trained = reply.content.array_records.get(ARRAYS)
    if UPLOAD_BITS not in config or received is None or trained is None:
        return None
    from fedtempo.flower.strategy.packing import Packing  # and numba with it, which others have no use for

    packed = Packing.read(config).pack(received, trained)
    if packed is not None:
        reply.content[ARRAYS] = packed.arrays
    return packed


def _keep(reply: Message, received: ArrayRecord, context: Context, packed: "PackedUpload | None") -> None:
    """Keep the update until it is fetched; report its norm alone."""
    arrays = reply.content.array_records.pop(ARRAYS)
    context.state[KEPT_MODEL] = arrays
    norm = _norm(arrays, received) if packed is None else packed.norm
    reply.content.metric_records[MEASUREMENTS][UPDATE_NORM] = norm


def _norm(trained: ArrayRecord, received: ArrayRecord) -> float:
    """Return the norm of the update from one model to another."""
    squares = [
        float(np.sum((trained[name].numpy().astype(np.float64) - received[name].numpy()) ** 2))
        for name in trained
        if is_trained(name, trained[name].dtype)
    ]
    return float(np.sqrt(sum(squares)))
