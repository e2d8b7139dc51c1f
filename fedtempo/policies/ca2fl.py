"""CA²FL: FedBuff with cached update calibration.

Y. Wang, Y. Cao, J. Wu, R. Chen, J. Chen, "Tackling the Data Heterogeneity in Asynchronous Federated Learning with
Cached Update Calibration", ICLR 2024. The server keeps the last update h_i of each client and steps whenever K updates
have arrived,

    w ← w + v,      v = h + 1/K Σ_j (Δ_j - h_j),

with the mean h of all h_i; then h_j ← Δ_j. Stale updates count in full, since the calibration makes up for what stale
and missing clients would have said. ``memory_bits`` 8 is the paper's form with less memory.

Departures from the paper. There h = Σ h_i/N, with h_i = 0 until client i has reported; here the mean is by data share,
as the loss is, and the mean of those who have reported stands in for the others: with zeros the first steps would be
N/K times too short in the part that h stands for. What is kept are directions Δ/η, the same where η is constant.
Clients are drawn by data share, M = 2K in flight as in the paper's experiments, and start at the next step of the
server.

The mean of v is that of all clients where every client has reported, whoever is in flight, but for how far h_i is off.
"""

from dataclasses import dataclass

from fedtempo.checks import InputError
from fedtempo.policies.in_flight import Buffered, FlightOptions
from fedtempo.policies.options import read_options
from fedtempo.policies.policy import BufferedPlan, MemoryBits, PolicySetting, RoundContext


@dataclass(frozen=True, kw_only=True, slots=True)
class CA2FLOptions(FlightOptions):
    """Of ``ca2fl``."""

    memory_bits: MemoryBits = 32  # of a number in h_i; 8: a quarter of the memory

    def __post_init__(self) -> None:
        """Check the options."""
        FlightOptions.__post_init__(self)
        if self.memory_bits not in (8, 32):
            raise InputError(name="memory_bits", rule="be one of 8, 32", got=repr(self.memory_bits))


class CA2FL(Buffered):
    """Keep M clients in flight, and step along the memory and what K updates say beyond it."""

    server_memory = True

    def __init__(self, setting: PolicySetting) -> None:
        """Read the options."""
        options = read_options(CA2FLOptions, setting.options)
        super().__init__(setting, options)
        self.memory_bits = options.memory_bits

    def plan(self, context: RoundContext) -> BufferedPlan:
        """Let as many idle clients start as keeps M in flight."""
        start = self.starters(context, self.chance)
        return BufferedPlan(start=start, weights=self.weights[start], wait_for=self.buffer, staleness_exponent=0.0)
