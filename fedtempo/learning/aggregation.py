"""What the server does with the updates of a round."""

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fedtempo.checks import Integers, Vector, check_fraction
from fedtempo.learning.memory import Bits, Memory
from fedtempo.learning.trainer import Parameters, norms


class Step(NamedTuple):
    """The next model, and what led to it."""

    model: Parameters
    aggregate_norm: float  # of η Σ_j weight_j Δ_j/η_j, without memory or momentum
    direction_norm: float  # of d
    residual_norm: Vector  # of Δ_j/η - y_j, for each member


@dataclass(eq=False)
class Aggregator:
    """w ← w + η v with v ← m v + d and d = Σ_j weight_j Δ_j/η_j; weights as in Lemma 1 make d unbiased.

    η_j is the η of when j started. With a memory of each client's last direction y_i, only what is new enters,
    d = Σ p y + Σ_j weight_j (Δ_j/η_j - y_j), as unbiased as without and less noisy (FedVARP). For clients that never
    told, the mean of the others stands in. The memory holds one model for each client that was drawn, with ``bits`` 8
    a quarter of one. What is remembered are directions, not updates, so that old ones keep in step where the step size
    η shrinks.
    """

    data_share: Vector
    momentum: float = 0.0  # m
    memory: bool = False
    bits: Bits = 32  # of a number in the memory
    velocity: Parameters | None = None
    remembered: Memory = field(init=False)  # y_i
    total_remembered: Parameters | None = None  # Σ p y over those who have told
    known_share: float = 0.0  # Σ p over them

    def __post_init__(self) -> None:
        """Check the momentum; begin with an empty memory."""
        check_fraction("momentum", self.momentum)
        self.remembered = Memory(self.bits)

    def apply(
        self,
        model: Parameters,
        members: Integers,
        updates: Parameters,
        weights: Vector,
        step_size: float,
        step_size_then: Vector | None = None,
        *,
        follow_memory: bool = True,
    ) -> Step:
        """Return the next model, with the η of now, and of when each member started if that differs.

        Where the memory is not followed, it is kept up to date, and d is what it would be without.
        """
        then = np.full(len(members), step_size) if step_size_then is None else step_size_then
        scaled = (weights * (step_size / then)).astype(np.float32)
        aggregate = scaled @ updates if len(members) else np.zeros_like(model)
        norm = _norm(aggregate)
        if not (self.memory or self.momentum):
            return Step(model + aggregate, norm, norm / step_size, norms(updates) / then)
        direction = aggregate / np.float32(step_size)
        residuals: Parameters = updates / then.astype(np.float32)[:, np.newaxis]
        if self.memory:
            remembered, residuals = self._with_memory(members, residuals, weights)
            direction = remembered if follow_memory else direction
        step = direction
        if self.momentum:
            self.velocity = step if self.velocity is None else np.float32(self.momentum) * self.velocity + step
            step = self.velocity
        return Step(model + np.float32(step_size) * step, norm, _norm(direction), norms(residuals))

    def forget(self, clients: Integers) -> None:
        """Remember nothing of some clients any longer, such as have gone: the mean of the others stands in."""
        for client in clients.tolist():
            old, share = self.remembered.get(client), np.float32(self.data_share[client])
            if old is not None and self.total_remembered is not None:
                self.total_remembered = self.total_remembered - share * old
                self.known_share = max(self.known_share - float(share), 0.0)
                self.remembered.drop(client)
        if not self.remembered.kept:  # what rounding leaves of sums over nobody is no mean
            self.total_remembered, self.known_share = None, 0.0

    def reset(self) -> None:
        """Forget everything: training starts again from w₀."""
        self.velocity, self.total_remembered, self.known_share = None, None, 0.0
        self.remembered.clear()

    def state(self) -> dict[str, npt.NDArray[np.generic]]:
        """Return all that a resumed run needs, as arrays."""
        arrays: dict[str, npt.NDArray[np.generic]] = {}
        if self.velocity is not None:
            arrays["velocity"] = self.velocity
        if self.total_remembered is not None:
            arrays["total_remembered"], arrays["known_share"] = self.total_remembered, np.array(self.known_share)
            arrays |= {f"remembered_{name}": array for name, array in self.remembered.state().items()}
        return arrays

    def restore(self, arrays: dict[str, npt.NDArray[np.generic]]) -> None:
        """Take up the state that ``state`` returned."""
        self.reset()
        self.velocity = arrays.get("velocity")  # type: ignore[assignment]
        self.total_remembered = arrays.get("total_remembered")  # type: ignore[assignment]
        self.known_share = float(arrays.get("known_share", np.zeros(())))
        start = "remembered_"
        self.remembered.restore({k.removeprefix(start): array for k, array in arrays.items() if k.startswith(start)})

    def _with_memory(self, members: Integers, directions: Parameters, weights: Vector) -> tuple[Parameters, Parameters]:
        """Return d and the residuals Δ_j/η - y_j, and remember the new directions."""
        known = self.known_share
        total = np.zeros(directions.shape[1], np.float32) if self.total_remembered is None else self.total_remembered
        usual = total / np.float32(known) if known else total
        residuals = directions.copy()
        for j, client in enumerate(members.tolist()):
            old, share = self.remembered.get(client), np.float32(self.data_share[client])
            residuals[j] -= usual if old is None else old
            new = self.remembered.keep(client, directions[j])
            total = total + share * (new if old is None else new - old)
            self.known_share += 0.0 if old is not None else float(share)
        self.total_remembered = total
        return usual + weights.astype(np.float32) @ residuals, residuals


def _norm(vector: Parameters) -> float:
    return float(np.linalg.norm(vector.astype(np.float64)))
