"""What a server makes of the mean update Δ of a step, besides adding it: Adam, Yogi, FedExP.

Adam and Yogi are those of FedOpt (Reddi et al., ICLR 2021): Δ takes the place of a gradient, with
m ← β₁ m + (1 - β₁) Δ and w ← w + s m/(√v + τ). Adam has v ← β₂ v + (1 - β₂) Δ², Yogi v ← v - (1 - β₂) Δ² sign(v - Δ²).
As there, v starts at τ², nothing is corrected for the start, and β₂ = 0.99, τ = 10⁻³.

FedExP (Jhunjhunwala et al., ICLR 2023) adds Δ max(1, Σ_j u_j ‖Δ_j‖²/(2 ‖Σ_j u_j Δ_j‖²)), with u the weights over their
sum: steps are longer where updates cancel each other.
"""

from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

import numpy as np

from fedtempo.checks import Vector
from fedtempo.learning.trainer import Parameters, norms

ServerOptimiser: TypeAlias = Literal["sgd", "adam", "yogi", "fedexp"]
SERVER_OPTIMISERS: tuple[ServerOptimiser, ...] = get_args(ServerOptimiser)
FIRST_DECAY, SECOND_DECAY, ADAPTIVITY = 0.9, 0.99, 1e-3  # β₁, β₂ and τ of FedOpt
ADAPTIVE_STEP = 0.01  # s of Adam and Yogi: among the best on most tasks of their paper


@dataclass(slots=True)
class MomentsState:
    """Running means of Δ and of its square."""

    first: Parameters | None = None  # m
    second: Parameters | None = None  # v


class Moments:
    """Adam or Yogi."""

    def __init__(self, kind: ServerOptimiser, decay: float) -> None:
        """Take β₁."""
        self.kind, self.decay = kind, np.float32(decay)

    def direction(self, state: MomentsState, mean: Parameters) -> Parameters:
        """Return m/(√v + τ) after a step with this Δ."""
        square, past, tau = mean * mean, np.float32(SECOND_DECAY), np.float32(ADAPTIVITY)
        first = np.zeros_like(mean) if state.first is None else state.first
        second = np.full_like(mean, tau * tau) if state.second is None else state.second
        state.first = np.asarray(self.decay * first + (1 - self.decay) * mean, dtype=np.float32)
        change = square - second if self.kind == "adam" else -square * np.sign(second - square)
        state.second = np.asarray(second + (1 - past) * change, dtype=np.float32)
        result: Parameters = np.asarray(state.first / (np.sqrt(state.second) + tau), dtype=np.float32)
        return result


def extrapolation(updates: Parameters, weights: Vector) -> float:
    """Return FedExP's factor of a step: 1 where updates agree, more where they cancel each other."""
    total = float(np.abs(weights).sum())
    if not total:
        return 1.0
    shares = weights / total
    square = float(norms((shares.astype(np.float32) @ updates)[None])[0]) ** 2
    mean_square = float(np.abs(shares) @ norms(updates) ** 2)
    return max(1.0, mean_square / (2 * square)) if square > 0 and np.isfinite(mean_square) else 1.0
