"""What the server does with the updates of a round."""

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from fedtempo.checks import Integers, Vector, check_fraction
from fedtempo.learning.memory import Bits, Memory, MemoryState
from fedtempo.learning.server_optimisers import (
    ADAPTIVE,
    ADAPTIVE_STEP,
    FIRST_DECAY,
    Moments,
    MomentsState,
    ServerOptimiser,
    extrapolation,
)
from fedtempo.learning.trainer import Buffers, Parameters, norms


class Step(NamedTuple):
    """The next model, and what led to it."""

    model: Parameters
    aggregate_norm: float  # of η Σ_j weight_j Δ_j/η_j, without memory or momentum
    direction_norm: float  # of d
    residual_norm: Vector  # of Δ_j/η - y_j, for each member
    direction: Parameters  # d


@dataclass(slots=True)
class AggregatorState:
    """What the server keeps from step to step."""

    velocity: Parameters | None = None  # v
    moments: MomentsState = field(default_factory=MomentsState)  # of Adam, Yogi and AMSGrad
    remembered: MemoryState = field(default_factory=MemoryState)  # y_i
    total_remembered: Parameters | None = None  # Σ p y over those who have reported
    known_share: float = 0.0  # Σ p over them
    paths: dict[int, float] = field(default_factory=dict)  # steps of η that led to each y_i, where anybody asks
    total_path: float = 0.0  # Σ p times these


class Aggregator:
    """w ← w + η v with v ← m v + d and d = Σ_j weight_j Δ_j/η_j; weights as in Lemma 1 make d unbiased.

    η_j is the η of when j started. With a memory of each client's last direction y_i, only what is new enters,
    d = Σ p y + Σ_j weight_j (Δ_j/η_j - y_j), as unbiased as without and less noisy (FedVARP). For clients that never
    reported, the mean of the others stands in. The memory holds one model for each client that was drawn, with ``bits``
    8 a quarter of one. What is remembered are directions, not updates, so that old ones keep in step where the step
    size η shrinks.

    The server's own step size s multiplies the step. Other optimisers take η d for the mean update Δ
    (server_optimisers.py); m is then the β₁ of Adam, Yogi and AMSGrad.
    """

    def __init__(
        self,
        data_share: Vector,
        *,
        momentum: float = 0.0,
        memory: bool = False,
        bits: Bits = 32,
        optimiser: ServerOptimiser = "sgd",
        step_size: float = 0.0,
    ) -> None:
        """Take m, whether to remember, in so many bits a number, and s, 0 for the usual; begin with an empty memory."""
        self.data_share, self.momentum, self.memory = data_share, check_fraction("momentum", momentum), memory
        self.remembered, self.optimiser = Memory(bits), optimiser
        self.moments = Moments(optimiser, momentum or FIRST_DECAY) if optimiser in ADAPTIVE else None
        self.step_size = step_size or (1.0 if self.moments is None else ADAPTIVE_STEP)
        self.plain = not (memory or momentum) and optimiser == "sgd" and self.step_size == 1
        self.state = AggregatorState()

    @property
    def state(self) -> AggregatorState:
        """All that a later step depends on."""
        return self._state

    @state.setter
    def state(self, state: AggregatorState) -> None:
        self._state, self.remembered.state = state, state.remembered

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
        factor: float = 1.0,
    ) -> Step:
        """Return the next model, with the η of now, and of when each member started if that differs.

        Where the memory is not followed, it is kept up to date, and d is what it would be without. ``factor``: of the
        length of this step alone.
        """
        then = np.full(len(members), step_size) if step_size_then is None else step_size_then
        scaled = (weights * (step_size / then)).astype(np.float32)
        aggregate = scaled @ updates if len(members) else np.zeros_like(model)
        norm = _norm(aggregate)
        direction = aggregate / np.float32(step_size)
        if self.plain and factor == 1:
            return Step(model + aggregate, norm, norm / step_size, norms(updates) / then, direction)
        residuals: Parameters = updates / then.astype(np.float32)[:, np.newaxis]
        if self.memory:
            remembered, residuals = self._with_memory(members, residuals, weights)
            direction = remembered if follow_memory else direction
        change = self._change(direction, step_size)
        if self.optimiser == "fedexp":
            change = np.float32(extrapolation(updates, weights * (step_size / then))) * change
        change = change if factor == 1 else np.float32(factor) * change
        return Step(model + change, norm, _norm(direction), norms(residuals), direction)

    def ahead(self, model: Parameters, step_size: float) -> Parameters:
        """Return the model after a step with d = 0: where momentum alone leads."""
        if self.moments is not None:
            return model + np.float32(self.step_size) * self.moments.ahead(self.state.moments)
        if self.state.velocity is None:
            return model
        return model + np.float32(self.step_size * step_size * self.momentum) * self.state.velocity

    def _change(self, direction: Parameters, step_size: float) -> Parameters:
        """Return what is added to the model for d, with the η of now."""
        state = self.state
        if self.moments is not None:
            return np.float32(self.step_size) * self.moments.direction(state.moments, np.float32(step_size) * direction)
        step = direction
        if self.momentum:
            step = step if state.velocity is None else np.float32(self.momentum) * state.velocity + step
            state.velocity = step
        return np.float32(self.step_size * step_size) * step

    def note_paths(self, members: Integers, paths: Vector) -> None:
        """Remember how many steps of η led to each update of the last step, which ``deviation`` asks for."""
        state = self.state
        for client, path in zip(members.tolist(), paths.tolist(), strict=True):
            state.total_path += float(self.data_share[client]) * (path - state.paths.get(client, 0.0))
            state.paths[client] = path

    def deviation(self, clients: Integers) -> Parameters:
        """Return c - c_i of some clients, as rows, c_i = -y_i over the steps of its path; 0 where one never reported.

        c is -Σ p y over Σ p times the steps: a client counts by its data and by its steps.
        """
        state = self.state
        if state.total_remembered is None or not state.known_share:
            raise ValueError("deviations are those of a memory in which somebody is")
        usual = state.total_remembered / np.float32(state.total_path)
        found = np.zeros((len(clients), usual.size), dtype=np.float32)
        for row, client in zip(found, clients.tolist(), strict=True):
            own = self.remembered.direction(client)
            if own is not None:
                row[:] = own / np.float32(state.paths[client]) - usual
        return found

    def forget(self, clients: Integers) -> None:
        """Remember nothing of some clients any longer, such as have gone: the mean of the others stands in."""
        state = self.state
        for client in clients.tolist():
            old, share = self.remembered.direction(client), np.float32(self.data_share[client])
            if old is not None and state.total_remembered is not None:
                state.total_remembered = state.total_remembered - share * old
                state.known_share = max(state.known_share - float(share), 0.0)
                self.remembered.drop(client)
                state.total_path -= float(share) * state.paths.pop(client, 0.0)
        if not len(self.remembered):  # what rounding leaves of sums over nobody is no mean
            state.total_remembered, state.known_share, state.total_path = None, 0.0, 0.0

    def reset(self) -> None:
        """Forget everything: training starts again from w₀."""
        self.state = AggregatorState()

    def _with_memory(self, members: Integers, directions: Parameters, weights: Vector) -> tuple[Parameters, Parameters]:
        """Return d and the residuals Δ_j/η - y_j, and remember the new directions."""
        state = self.state
        known, total = state.known_share, state.total_remembered
        if total is None:
            total = np.zeros(directions.shape[1], np.float32)
        usual = total / np.float32(known) if known else total
        residuals = directions.copy()
        for j, client in enumerate(members.tolist()):
            old, share = self.remembered.direction(client), np.float32(self.data_share[client])
            residuals[j] -= usual if old is None else old
            new = self.remembered.keep(client, directions[j])
            total = total + share * (new if old is None else new - old)
            state.known_share += 0.0 if old is not None else float(share)
        state.total_remembered = total
        return usual + weights.astype(np.float32) @ residuals, residuals


def blended(buffers: Buffers, weights: Vector, reported: Buffers) -> Buffers:
    """Return buffers moved towards those that clients report, as rows, by their weights and never beyond.

    Buffers are no parameters: weights of updates may add up to more than 1, and sums of variances by such weights could
    become negative.
    """
    positive = np.maximum(weights, 0.0)
    shares = positive / max(positive.sum(), 1.0)
    return buffers + sum(share * (one - buffers) for share, one in zip(shares.tolist(), reported, strict=True))


def _norm(vector: Parameters) -> float:
    return float(np.linalg.norm(vector.astype(np.float64)))
