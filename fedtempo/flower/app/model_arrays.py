"""A model as the ready app sends it: one array, and ballast where uploads are to be larger."""

import numpy as np
from flwr.app import Array, ArrayRecord, Message

from fedtempo.flower.strategy.messages import ARRAYS
from fedtempo.learning.trainer import Parameters
from fedtempo.randomness import stream

MODEL, BALLAST = "model", "ballast"


def pack(model: Parameters, ballast: int = 0, *salt: int) -> ArrayRecord:
    """Return a model as the app sends it, with so many bytes of ballast.

    Ballast is whole numbers, which nobody trains; nothing compresses it, and with a salt of its own for each reply
    Flower cannot take it for something that the server has already.
    """
    arrays = {MODEL: Array(model)}
    if ballast:
        arrays[BALLAST] = Array(stream(0, "ballast", *salt).integers(256, size=ballast, dtype=np.uint8))
    return ArrayRecord(arrays)


def unpack(message: Message) -> Parameters:
    """Return the model in a message."""
    model: Parameters = message.content.array_records[ARRAYS][MODEL].numpy()
    return model
