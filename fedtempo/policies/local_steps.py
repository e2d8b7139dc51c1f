"""How many local steps pay: more make an update reach further, but less and less so, and take longer to compute."""

import math
from typing import Any

import numpy as np

from fedtempo.policies.policy import RoundReport

SHARE_OF_THE_PAST = 0.95  # in the running means, for each update
FEWEST, MOST = 2, 10.0  # steps, and times the usual number: one step tells nothing of how a path bends


class LocalSteps:
    """Chooses E by the coherence length E_c of local paths, learned from updates as they come.

    A path of E steps with mean gradient norm g is η E g long, and brings the model ‖Δ‖ far. As gradients shrink and
    turn on the way, that is about η g E E_c/(E + E_c - 1). Updates that take E τ₁ seconds to compute and t to upload
    then make most way in a second with E = √(E_c t/τ₁). In a synchronous round τ₁ is that of the slowest and t the sum.
    With server momentum m each update goes on for 1/(1 - m) steps, and the path bends so much sooner: (1 - m) E_c.
    """

    def __init__(self, *, synchronous: bool, server_momentum: float = 0.0) -> None:
        """Start with nothing known."""
        self.synchronous, self.server_momentum = synchronous, server_momentum
        self.means = dict.fromkeys(MEANS, 0.0)

    def best(self, usual: int) -> int:
        """Return E, given the number of steps that others run."""
        of = self.means
        if not of["reached"]:
            return max(usual, FEWEST)
        gain, price = (1 - self.server_momentum) * of["reached"] * of["upload"], of["lost"] * of["compute"]
        steps = math.sqrt(usual * gain / price) if price > 0 else math.inf
        return max(round(min(steps, MOST * usual)), FEWEST)

    def observe(self, report: RoundReport, total_bandwidth: float) -> None:
        """Learn how far the updates of a round came for the way that they went, and how long that took."""
        steps, reached = report.local_steps, report.update_norm / report.step_size
        lost = (steps * report.mean_gradient_norm - reached) / np.maximum(steps - 1, 1)
        told = ~report.failed & (steps > 1) & np.isfinite(lost + reached + report.compute_time + report.upload_time)
        if not told.any():
            return
        compute, upload = report.compute_time[told], report.upload_time[told] / total_bandwidth
        past = SHARE_OF_THE_PAST ** int(told.sum()) if self.means["reached"] else 0.0
        seen = {
            "lost": max(float(lost[told].mean()), 0.0),
            "reached": float(reached[told].mean()),
            "compute": float(compute.max() if self.synchronous else compute.mean()),
            "upload": float(upload.sum() if self.synchronous else upload.mean()),
        }
        self.means = {name: past * self.means[name] + (1 - past) * seen[name] for name in MEANS}

    def state(self) -> dict[str, Any]:
        """Return what was learned."""
        return dict(self.means)

    def restore(self, state: dict[str, Any]) -> None:
        """Take it up."""
        self.means = dict(state)


MEANS = ("lost", "reached", "compute", "upload")  # lost: way that each step after the first takes off the distance
