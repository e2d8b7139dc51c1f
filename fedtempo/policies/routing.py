"""Asynchronous SGD with optimised routing: a step after every arrival, the next client drawn by a queueing network.

A. Alahyane, C. Comte, M. Jonckheere, E. Moulines, "Optimizing Asynchronous Federated Learning: A Delicate Trade-Off
Between Model-Parameter Staleness and Update Frequency", 2025, and Alahyane, Comte and Jonckheere, "Optimization
Trade-offs in Asynchronous Federated Learning: A Stochastic Networks Approach", 2026, on Generalized AsyncSGD (Leconte
et al., AISTATS 2024). M tasks are in flight; whenever one is done, w ← w + (p_i/q_i) Δ_i, and the next goes to a client
drawn from q. As q minimises the time of an update times their bound on how many are needed
(fedtempo/theory/routing.py), fast clients and such with short uploads are drawn more often than their data alone would
say, and count for less.

Departures from the papers:

- There a task waits in line at its client; here a client that is in flight is not drawn, so only idle ones start, and
  slow clients contribute a little less than their share. Clients in flight wait for the one link that all share.
- Their network has exponential times; here only means count, as mean value analysis has it.
- Gradients are taken to be alike in norm, and the step size to be of the order of their bound's largest:
  ``staleness`` κ = 1/4 follows from it, and 0 leaves staleness out. The tuned step size is that of the run.
- M is an option, 2K unless it is given; the papers also choose it. A step follows a path of E local steps.
"""

from dataclasses import dataclass

import numpy as np

from fedtempo.checks import Vector, check_count, check_nonnegative
from fedtempo.policies.in_flight import KeepsInFlight
from fedtempo.policies.options import read_options
from fedtempo.policies.policy import BufferedPlan, PolicySetting, RoundContext, RoundReport
from fedtempo.policies.times import ClientTimes, TimesState
from fedtempo.theory.routing import SHARE_OF_STALENESS, optimal_routing


@dataclass(frozen=True, kw_only=True, slots=True)
class RoutingOptions:
    """Of ``routing``."""

    concurrency: int | None = None  # M, clients in flight; None: 2K
    staleness: float = SHARE_OF_STALENESS  # κ: what a step of staleness costs, as a share of the noise of draws

    def __post_init__(self) -> None:
        """Check the options."""
        if self.concurrency is not None:
            check_count("concurrency", self.concurrency)
        check_nonnegative("staleness", self.staleness)


class Routes:
    """The q for the times that were asked for last: found anew where they are others, as on changing channels."""

    def __init__(self, data_share: Vector, in_flight: int, staleness: float) -> None:
        """Take p, M and κ."""
        self.data_share, self.in_flight, self.staleness = data_share, in_flight, staleness
        self.times: tuple[Vector, Vector] | None = None
        self.sampling_prob = data_share

    def at(self, compute: Vector, upload: Vector) -> Vector:
        """Return q for these times."""
        if self.times is None or not all(map(np.array_equal, self.times, (compute, upload))):
            self.times = compute.copy(), upload.copy()
            self.sampling_prob = optimal_routing(self.data_share, compute, upload, self.in_flight, self.staleness)
        return self.sampling_prob


@dataclass(eq=False, slots=True)
class RoutingState:
    """What must survive between rounds."""

    times: TimesState
    in_flight: int = 0  # clients


class Routing(KeepsInFlight):
    """Keep M clients in flight, drawn from the q of the least time, and step after every arrival."""

    state: RoutingState  # type: ignore[assignment]

    def __init__(self, setting: PolicySetting) -> None:
        """Read the options."""
        options = read_options(RoutingOptions, setting.options)
        super().__init__(setting, concurrency=options.concurrency, buffer=1)
        self.routes = Routes(self.fleet.data_share, self.concurrency, float(options.staleness))
        self.state = RoutingState(TimesState.nominal(self.fleet))

    @property
    def times(self) -> ClientTimes:
        """How long clients take, as far as that is known."""
        return ClientTimes(self.state.times)

    def plan(self, context: RoundContext) -> BufferedPlan:
        """Let as many idle clients start as keeps M in flight."""
        self.times.look(context)
        fleet, known = self.fleet, self.state.times
        compute = known.compute if fleet.download_time is None else known.compute + fleet.download_time
        q = self.routes.at(compute, known.upload / fleet.total_bandwidth)
        start = self.starters(context, q)
        return BufferedPlan(
            start=start,
            weights=fleet.data_share[start] / q[start],
            wait_for=1,
            staleness_exponent=0.0,
        )

    def observe(self, report: RoundReport) -> None:
        """Learn times, and count who is no longer in flight."""
        super().observe(report)
        self.times.observe(report)
