"""How many local steps pay: more make an update reach further, but less and less so, and take longer to compute."""

import math
from dataclasses import dataclass

import numpy as np

from fedtempo.policies.policy import RoundReport
from fedtempo.policies.tempo import constants


@dataclass(eq=False, slots=True)
class LocalStepsState:
    """Running means over updates."""

    lost: float = 0.0  # way that each step after the first takes off the distance
    reached: float = 0.0  # ‖Δ‖/η; 0: nothing is known
    compute: float = 0.0  # seconds
    upload: float = 0.0  # seconds, over the whole link


class LocalSteps:
    """Chooses E by the coherence length E_c of local paths, learned from updates as they come.

    A path of E steps with mean gradient norm g is η E g long, and brings the model ‖Δ‖ far. As gradients shrink and
    turn on the way, that is about η g E E_c/(E + E_c - 1). Updates that take E τ₁ seconds to compute and t to upload
    then make most way in a second with E = √(E_c t/τ₁). In a synchronous round τ₁ is that of the slowest and t the sum.
    With server momentum m each update goes on for 1/(1 - m) steps, and the path bends so much sooner: (1 - m) E_c.
    """

    def __init__(self, state: LocalStepsState, *, synchronous: bool, server_momentum: float = 0.0) -> None:
        """Go on from what was learned."""
        self.state, self.synchronous, self.server_momentum = state, synchronous, server_momentum

    @property
    def bend(self) -> float | None:
        """1/E_c, 0 where paths are straight; None where nothing is known."""
        state = self.state
        return state.lost / ((1 - self.server_momentum) * state.reached) if state.reached else None

    def best(self, usual: int) -> int:
        """Return E, where other policies run the usual number of steps."""
        state = self.state
        if not state.reached:
            return max(usual, constants.FEWEST_STEPS)
        gain, price = (1 - self.server_momentum) * state.reached * state.upload, state.lost * state.compute
        steps = math.sqrt(usual * gain / price) if price > 0 else math.inf
        return max(round(min(steps, constants.MOST_STEPS * usual)), constants.FEWEST_STEPS)

    def observe(self, report: RoundReport, total_bandwidth: float) -> None:
        """Learn how far the updates of a round came for the way that they went, and how long that took."""
        rounding = 0.0 if report.noise_of_uploads is None else report.noise_of_uploads
        steps, reached = report.local_steps, report.update_norm / (report.step_size * np.sqrt(1 + rounding))
        lost = (steps * report.mean_gradient_norm - reached) / np.maximum(steps - 1, 1)
        whole = np.isfinite(lost + reached + report.compute_time + report.upload_time)
        useful = ~report.failed & (steps > 1) & whole
        if not useful.any():
            return
        compute, upload = report.compute_time[useful], report.upload_time[useful] / total_bandwidth
        state = self.state
        past = constants.PATHS_OF_THE_PAST ** int(useful.sum()) if state.reached else 0.0
        seen = LocalStepsState(
            lost=max(float(lost[useful].mean()), 0.0),
            reached=float(reached[useful].mean()),
            compute=float(compute.max() if self.synchronous else compute.mean()),
            upload=float(upload.sum() if self.synchronous else upload.mean()),
        )
        state.lost = past * state.lost + (1 - past) * seen.lost
        state.reached = past * state.reached + (1 - past) * seen.reached
        state.compute = past * state.compute + (1 - past) * seen.compute
        state.upload = past * state.upload + (1 - past) * seen.upload
