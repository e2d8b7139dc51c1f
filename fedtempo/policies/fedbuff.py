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

from fedtempo.checks import check_nonnegative
from fedtempo.policies.in_flight import Buffered, FlightOptions
from fedtempo.policies.options import read_options
from fedtempo.policies.policy import BufferedPlan, PolicySetting, RoundContext


@dataclass(frozen=True, kw_only=True, slots=True)
class FedBuffOptions(FlightOptions):
    """Of ``fedbuff``."""

    staleness_exponent: float = 0.5  # a

    def __post_init__(self) -> None:
        """Check the options."""
        FlightOptions.__post_init__(self)
        check_nonnegative("staleness_exponent", self.staleness_exponent)


class FedBuff(Buffered):
    """Keep M clients in flight, and step whenever K updates have arrived."""

    def __init__(self, setting: PolicySetting) -> None:
        """Read the options."""
        options = read_options(FedBuffOptions, setting.options)
        super().__init__(setting, options)
        self.staleness_exponent = float(options.staleness_exponent)

    def plan(self, context: RoundContext) -> BufferedPlan:
        """Let as many idle clients start as keeps M in flight."""
        start = self.starters(context, self.chance)
        return BufferedPlan(
            start=start,
            weights=self.weights[start],
            wait_for=self.buffer,
            staleness_exponent=self.staleness_exponent,
        )
