"""FedBuff: asynchronous training with a buffer (Nguyen et al., AISTATS 2022).

M clients train at a time, each from the model that was current when it started. The server takes a step whenever K
updates have arrived, w ← w + Σ_j weight_j (1+s_j)^-a Δ_j, where s_j counts the server's steps since client j started
and a = 1/2. Nobody waits for the slowest; its update comes late and counts for less.

Departures from the paper. There a client starts as soon as another has reported; here, at the next step of the server,
hence a little later but from a newer model. M = 2K unless it is given, while the paper's M is far above K: updates
are M/K - 1 steps old on average, and on one shared link more clients only wait in line. Clients are drawn by data share
unless ``sampling`` is "uniform". The server's step size is 1.

The aggregate is not exactly unbiased. An update counts once for each start, so with draws in proportion to the data
share and weights 1/K (or uniform draws and weights p_i N/K) a client contributes in proportion to its data only if it
can always be drawn. Clients in flight cannot, so slow ones, and with weighted draws large ones, contribute too little.
Stale updates are discounted on top, and nothing makes up for clients that are seldom there.
"""

from typing import Any

import numpy as np

from fedtempo.checks import InputError, check_choice, check_count, check_nonnegative
from fedtempo.policies.options import checked_options
from fedtempo.policies.policy import BufferedPlan, PolicySetting, RoundContext, RoundReport

OPTIONS = {"concurrency": None, "sampling": "weighted", "staleness_exponent": 0.5}


class FedBuff:
    """Keep M clients in flight, and step whenever K updates have arrived."""

    def __init__(self, setting: PolicySetting) -> None:
        """Read the options: ``concurrency`` M, ``sampling`` "weighted" or "uniform", ``staleness_exponent`` a."""
        options = checked_options(setting, OPTIONS)
        concurrency = options["concurrency"]
        if concurrency is None:
            concurrency = 2 * setting.cohort_size
        elif check_count("concurrency", concurrency) < setting.cohort_size:
            raise InputError(
                name="concurrency", rule=f"be at least cohort_size, {setting.cohort_size}", got=f"{concurrency}"
            )
        self.staleness_exponent = check_nonnegative("staleness_exponent", options["staleness_exponent"])
        sampling = check_choice("sampling", options["sampling"], ("weighted", "uniform"))
        share, size = setting.fleet.data_share, len(setting.fleet)
        self.size, self.concurrency, self.buffer = size, min(concurrency, size), min(setting.cohort_size, size)
        self.chance = share if sampling == "weighted" else np.full(size, 1 / size)
        self.weights = share / self.chance / self.buffer
        self.in_flight = 0

    def plan(self, context: RoundContext) -> BufferedPlan:
        """Fill up the flight with clients that are there and idle."""
        idle = context.there(self.size)
        free = min(self.concurrency - self.in_flight, len(idle))
        start = idle[:0]
        if free:
            chance = self.chance[idle] / self.chance[idle].sum()
            start = np.sort(context.rng.choice(idle, free, replace=False, p=chance))
        self.in_flight += len(start)
        return BufferedPlan(
            start=start,
            weights=self.weights[start],
            wait_for=self.buffer,
            staleness_exponent=self.staleness_exponent,
        )

    def observe(self, report: RoundReport) -> None:
        """Count who is no longer in flight: those who arrived, and those who failed to start."""
        self.in_flight -= len(report.plan.members)

    def state(self) -> dict[str, Any]:
        """Return how many are in flight."""
        return {"in_flight": self.in_flight}

    def restore(self, state: dict[str, Any]) -> None:
        """Take it up."""
        self.in_flight = state["in_flight"]
