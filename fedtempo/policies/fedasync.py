"""FedAsync: the server mixes in each model as it arrives.

C. Xie, S. Koyejo, I. Gupta, "Asynchronous Federated Optimization", 2019. M clients train at a time. After every arrival
w ← (1 - a_s) w + a_s w_i, where w_i is the model that client i has trained, s the number of the server's steps since it
started, and a_s = α (1 + s)^-a the polynomial staleness function. An old model thus pulls the server back towards where
the client started from. α = 0.6 and a = 1/2, as in the paper's experiments.

Departures from the paper. The paper draws devices at random, all of equal data; here by data share, so that each
arrival counts the same. It simulates staleness; here it comes from who is in flight, M = 2K unless it is given. The
term ρ/2 ‖w - w'‖² about the model that a client started from is ``proximal`` of the settings of training, 0 unless set;
with the paper's ρ = 0.005 it shortens E steps of η by ηρE/2 of their length. α does not fall during the run; a falling
``schedule`` falls on clients' steps alone, since a share of a model has no step size.

The aggregate is nearly unbiased: clients in flight cannot be drawn, and the models of slow ones count for less.
"""

from dataclasses import dataclass

import numpy as np

from fedtempo.checks import check_count, check_fraction, check_nonnegative, check_positive
from fedtempo.policies.in_flight import KeepsInFlight
from fedtempo.policies.options import read_options
from fedtempo.policies.policy import BufferedPlan, PolicySetting, RoundContext


@dataclass(frozen=True, kw_only=True, slots=True)
class FedAsyncOptions:
    """Of ``fedasync``."""

    concurrency: int | None = None  # M, clients in flight; None: 2K
    mixing: float = 0.6  # α
    staleness_exponent: float = 0.5  # a

    def __post_init__(self) -> None:
        """Check the options."""
        if self.concurrency is not None:
            check_count("concurrency", self.concurrency)
        check_positive("mixing", check_fraction("mixing", self.mixing))
        check_nonnegative("staleness_exponent", self.staleness_exponent)


class FedAsync(KeepsInFlight):
    """Keep M clients in flight, and mix in the model of each as it arrives."""

    def __init__(self, setting: PolicySetting) -> None:
        """Read the options."""
        options = read_options(FedAsyncOptions, setting.options)
        super().__init__(setting, concurrency=options.concurrency, buffer=1)
        self.mixing, self.staleness_exponent = float(options.mixing), float(options.staleness_exponent)

    def plan(self, context: RoundContext) -> BufferedPlan:
        """Let as many idle clients start as keeps M in flight."""
        start = self.starters(context, self.fleet.data_share)
        return BufferedPlan(
            start=start,
            weights=np.full(len(start), self.mixing),
            wait_for=1,
            staleness_exponent=self.staleness_exponent,
            mix_models=True,
        )
