"""A model as the ready app sends it: an array, one more where it has buffers, and ballast to make uploads larger."""

import numpy as np
from flwr.app import Array, ArrayRecord, Message

from fedtempo.checks import Vector
from fedtempo.flower.strategy.layout import ALL_BUFFERS
from fedtempo.flower.strategy.messages import ARRAYS
from fedtempo.learning.trainer import NO_BUFFERS, Buffers, Evaluation, Parameters, Trainer, buffered
from fedtempo.randomness import stream

MODEL, BALLAST = "model", "ballast"


def pack(model: Vector | Parameters, ballast: int = 0, *salt: int, buffers: Buffers = NO_BUFFERS) -> ArrayRecord:
    """Return a model as the app sends it, with so many bytes of ballast.

    Ballast is whole numbers, which nobody trains; nothing compresses it, and with a salt of its own for each reply
    Flower cannot take it for something that the server has already.
    """
    arrays = {MODEL: Array(model)} | ({ALL_BUFFERS: Array(buffers)} if buffers.size else {})
    if ballast:
        arrays[BALLAST] = Array(stream(0, "ballast", *salt).integers(256, size=ballast, dtype=np.uint8))
    return ArrayRecord(arrays)


def unpack(message: Message) -> tuple[Parameters, Buffers]:
    """Return the model in a message, and its buffers."""
    return read(message.content.array_records[ARRAYS])


def read(arrays: ArrayRecord) -> tuple[Parameters, Buffers]:
    """Return a model and its buffers."""
    buffers: Buffers = arrays[ALL_BUFFERS].numpy() if ALL_BUFFERS in arrays else NO_BUFFERS
    return arrays[MODEL].numpy(), buffers


def evaluate(trainer: Trainer, arrays: ArrayRecord) -> Evaluation:
    """Return how good a model is."""
    (model, buffers), with_buffers = read(arrays), buffered(trainer)
    return trainer.evaluate(model) if with_buffers is None else with_buffers.evaluate(model, buffers)
