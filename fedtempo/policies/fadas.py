"""FADAS: asynchronous training with AMSGrad on the server, and shorter steps where updates are stale.

Y. Wang, S. Wang, S. Lu, J. Chen, "FADAS: Towards Federated Adaptive Asynchronous Optimization", ICML 2024. M clients
train at a time. Whenever K updates have arrived, with Δ their mean,

    m ← β₁ m + (1 - β₁) Δ,   v ← β₂ v + (1 - β₂) Δ²,   v̂ ← max(v̂, v),   w ← w + s_t m/(√v̂ + ε),

and the step is shorter where the stalest of these updates has waited for τ_max > τ_c steps of the server. β₁ = 0.9,
β₂ = 0.99, ε = 10⁻⁸; ``server_step_size`` of the settings of training is s, 0.01 unless it is set, and a
``server_momentum`` there is β₁.

Departures from the paper. There s_t = min(s, 1/τ_max), which has no effect for the s below 1/τ_max that networks are
trained with; here s_t = s τ_c/τ_max, the same for s = 1/τ_c. τ_c is M/K unless it is given: M/K - 1 is the mean
staleness. Clients are drawn by data share, M = 2K unless it is given, and start at the next step of the server.

The aggregate is nearly unbiased, as FedBuff's is; the step that AMSGrad makes of it is not linear in it.
"""

from dataclasses import dataclass

from fedtempo.checks import check_positive
from fedtempo.policies.in_flight import Buffered, FlightOptions
from fedtempo.policies.options import read_options
from fedtempo.policies.policy import BufferedPlan, PolicySetting, RoundContext


@dataclass(frozen=True, kw_only=True, slots=True)
class FADASOptions(FlightOptions):
    """Of ``fadas``."""

    delay_threshold: float | None = None  # τ_c, steps of the server; None: M/K

    def __post_init__(self) -> None:
        """Check the options."""
        FlightOptions.__post_init__(self)
        if self.delay_threshold is not None:
            check_positive("delay_threshold", self.delay_threshold)


class FADAS(Buffered):
    """Keep M clients in flight, and step by AMSGrad whenever K updates have arrived."""

    server_optimiser = "amsgrad"

    def __init__(self, setting: PolicySetting) -> None:
        """Read the options."""
        options = read_options(FADASOptions, setting.options)
        super().__init__(setting, options)
        usual = self.concurrency / self.buffer
        self.delay_threshold = usual if options.delay_threshold is None else float(options.delay_threshold)

    def plan(self, context: RoundContext) -> BufferedPlan:
        """Let as many idle clients start as keeps M in flight."""
        start = self.starters(context, self.chance)
        return BufferedPlan(
            start=start,
            weights=self.weights[start],
            wait_for=self.buffer,
            staleness_exponent=0.0,
            staleness_limit=self.delay_threshold,
        )
