"""FedBuff: asynchronous training with a buffer (Nguyen et al., AISTATS 2022).

M clients train at a time, each from the model that was current when it started. The server takes a step whenever K
updates have arrived, w ← w + Σ_j weight_j (1+s_j)^-a Δ_j, where s_j counts the server's steps since client j started
and a = 1/2. Nobody waits for the slowest; its update comes late and counts for less.

Departures from the paper. There a client starts as soon as another has reported; here, at the next step of the server,
hence a little later but from a newer model. M = 2K unless it is given, while the paper's M is far above K: updates
are M/K - 1 steps stale on average, and on one shared link more clients only wait in line. Clients are drawn by data
share unless ``sampling`` is "uniform". The server's step size is 1.

The aggregate is not exactly unbiased. An update counts once for each start, so with draws in proportion to the data
share and weights 1/K (or uniform draws and weights p_i N/K) a client contributes in proportion to its data only if it
can always be drawn. Clients in flight cannot, so slow ones, and with weighted draws large ones, contribute too little.
Stale updates are discounted on top, and nothing makes up for clients that are seldom available.
"""

from dataclasses import dataclass

import numpy as np

from fedtempo.checks import InputError, check_choice, check_count, check_nonnegative
from fedtempo.policies.options import read_options
from fedtempo.policies.policy import BufferedPlan, Policy, PolicySetting, RoundContext, RoundReport


@dataclass(frozen=True, kw_only=True, slots=True)
class FedBuffOptions:
    """Of ``fedbuff``."""

    concurrency: int | None = None  # M, clients in flight; None: 2K
    sampling: str = "weighted"  # draws by data share, or "uniform"
    staleness_exponent: float = 0.5  # a

    def __post_init__(self) -> None:
        """Check the options."""
        if self.concurrency is not None:
            check_count("concurrency", self.concurrency)
        check_nonnegative("staleness_exponent", self.staleness_exponent)
        check_choice("sampling", self.sampling, ("weighted", "uniform"))


@dataclass(eq=False, slots=True)
class FedBuffState:
    """What must survive between rounds."""

    in_flight: int = 0  # clients


class FedBuff(Policy):
    """Keep M clients in flight, and step whenever K updates have arrived."""

    def __init__(self, setting: PolicySetting) -> None:
        """Read the options."""
        options = read_options(FedBuffOptions, setting.options)
        concurrency = 2 * setting.cohort_size if options.concurrency is None else options.concurrency
        if concurrency < setting.cohort_size:
            raise InputError(
                name="concurrency", rule=f"be at least cohort_size, {setting.cohort_size}", got=f"{concurrency}"
            )
        self.staleness_exponent = float(options.staleness_exponent)
        share, size = setting.fleet.data_share, len(setting.fleet)
        self.size, self.concurrency, self.buffer = size, min(concurrency, size), min(setting.cohort_size, size)
        self.chance = share if options.sampling == "weighted" else np.full(size, 1 / size)
        self.weights = share / self.chance / self.buffer
        self.state = FedBuffState()

    def plan(self, context: RoundContext) -> BufferedPlan:
        """Let as many idle clients start as keeps M in flight."""
        idle = context.available_clients(self.size)
        free = min(self.concurrency - self.state.in_flight, len(idle))
        start = idle[:0]
        if free:
            chance = self.chance[idle] / self.chance[idle].sum()
            start = np.sort(context.rng.choice(idle, free, replace=False, p=chance))
        self.state.in_flight += len(start)
        return BufferedPlan(
            start=start,
            weights=self.weights[start],
            wait_for=self.buffer,
            staleness_exponent=self.staleness_exponent,
        )

    def observe(self, report: RoundReport) -> None:
        """Count who is no longer in flight: those who arrived, and those who failed to start."""
        self.state.in_flight -= len(report.plan.members)
