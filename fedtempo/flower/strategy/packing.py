"""Updates of few bits as Flower sends them: one array of bytes in the place of all arrays that are trained.

The client takes its update, trained model less received one, rounds and packs it (learning/quantisation.py), and sends
the bytes. Statistics of batch normalisation, counters and whatever else nobody trains travel as they are.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self, cast

import numpy as np
from flwr.app import Array, ArrayRecord

from fedtempo.checks import InputError
from fedtempo.flower.strategy.layout import Layout
from fedtempo.flower.strategy.messages import (
    CLIENT,
    NOISE_METRICS,
    ROUND_INDEX,
    UPLOAD_BITS,
    UPLOAD_KEY,
    ConfigValue,
    MessageConfig,
)
from fedtempo.learning.quantisation import BLOCK, Quantiser
from fedtempo.learning.trainer import Buffers, Parameters, norms

UPLOAD = "fedtempo-upload"  # the array that holds the bytes
LARGEST_NOISE = 1.001 * BLOCK / 27  # of ω: n s²/(3 · 3² ‖x‖²) at two bits, and no s is above the norm of its block


@dataclass(frozen=True, slots=True)
class PackedUpload:
    """What a client sends in the place of its model."""

    arrays: ArrayRecord
    noise: Mapping[str, float]  # ω at each size, as metrics
    packing: "Packing"
    numbers: int

    @property
    def norm(self) -> float:
        """The norm of the update as it arrives."""
        update = self.packing.unpack(self.arrays[UPLOAD].numpy().tobytes(), self.numbers)
        return float(norms(update[None])[0])


@dataclass(frozen=True, kw_only=True, slots=True)
class Packing:
    """How a client is to pack its update, and the server reads it."""

    bits: int
    key: tuple[int, ...]  # of the quantiser
    client: int
    round_index: int

    @classmethod
    def read(cls, config: MessageConfig) -> Self:
        """Return what the config of a message asks for."""
        bits, client, index = (int(cast("int", config[name])) for name in (UPLOAD_BITS, CLIENT, ROUND_INDEX))
        return cls(bits=bits, key=tuple(cast("list[int]", config[UPLOAD_KEY])), client=client, round_index=index)

    def pack(self, received: ArrayRecord, trained: ArrayRecord) -> PackedUpload | None:
        """Return the update from one model to another; None where it has none, and the server is to say so."""
        layout = Layout.of(received)
        try:
            update = layout.update(layout.initial_model, trained)
        except InputError:
            return None
        if not np.isfinite(update).all():
            return None
        sent = self._quantiser.pack(update, self.bits, self.client, self.round_index)
        noise = self._quantiser.noise(update, self.client, self.round_index)
        others = {name: array for name, array in trained.items() if name not in layout.trained}
        return PackedUpload(
            arrays=ArrayRecord({UPLOAD: Array(np.frombuffer(sent, dtype=np.uint8)), **others}),
            noise=dict(zip(NOISE_METRICS, noise.tolist(), strict=True)),
            packing=self,
            numbers=update.size,
        )

    def unpack(self, data: bytes, numbers: int) -> Parameters:
        """Return the update that travelled; refuse bytes that no client has packed so."""
        return self._quantiser.unpack(data, self.bits, numbers, self.client, self.round_index)

    @property
    def _quantiser(self) -> Quantiser:
        return Quantiser.with_key(self.key)


def packing_config(bits: int | None, key: list[int]) -> dict[str, ConfigValue]:
    """Return what a client gets in the config of its message, beside its number and the round's; {}: nothing."""
    return {} if bits is None else {UPLOAD_BITS: bits, UPLOAD_KEY: key}


def unpack_upload(layout: Layout, arrays: ArrayRecord, packing: Packing) -> tuple[Parameters, Buffers]:
    """Return the update and the buffers that a client sent; refuse what nobody has packed so."""
    if UPLOAD not in arrays:
        model, _ = layout.read(arrays)  # what is wrong with a model comes first: clients send it as it is then
        if not np.isfinite(model).all():
            raise InputError(name="an update", rule="be finite", got="infinite numbers, or none")
        raise InputError(
            name="an upload",
            rule=f"be packed with {packing.bits} bits a number",
            got="whole arrays",
            remedy="the ClientApp needs the mod tempo_client() of this version",
        )
    layout.check_names(arrays, {UPLOAD, *layout.first} - set(layout.trained))
    packed = arrays[UPLOAD].numpy()
    if not isinstance(packed, np.ndarray) or packed.dtype != np.uint8 or packed.ndim != 1:
        raise InputError(name="an upload", rule="be one row of bytes", got="something else")
    return packing.unpack(packed.tobytes(), layout.num_parameters), layout.buffers(arrays)


def noise_in(numbers: Mapping[str, float]) -> list[float]:
    """Return ω at each size as a client reports it; NaN where it does not, or where it cannot be."""
    found = [numbers.get(name, np.nan) for name in NOISE_METRICS]
    return [one if 0 <= one <= LARGEST_NOISE else np.nan for one in found]
