"""Keeping M clients in flight: what FedBuff, FedAsync, CA²FL, FADAS and routed asynchronous SGD have in common."""

from dataclasses import dataclass

import numpy as np

from fedtempo.checks import InputError, Integers, Vector, check_choice, check_count
from fedtempo.fleet import Fleet
from fedtempo.policies.policy import Policy, PolicySetting, RoundContext, RoundReport


@dataclass(frozen=True, kw_only=True, slots=True)
class FlightOptions:
    """Of policies that keep clients in flight."""

    concurrency: int | None = None  # M, clients in flight; None: 2K
    sampling: str = "weighted"  # draws by data share, or "uniform"

    def __post_init__(self) -> None:
        """Check the options."""
        if self.concurrency is not None:
            check_count("concurrency", self.concurrency)
        check_choice("sampling", self.sampling, ("weighted", "uniform"))


@dataclass(eq=False, slots=True)
class FlightState:
    """What must survive between rounds."""

    in_flight: int = 0  # clients


class KeepsInFlight(Policy):
    """Starts as many idle clients as keeps M in flight; a step comes after every ``buffer`` arrivals.

    Clients are drawn by ``chance``. Weights p/(buffer × chance) would make the aggregate unbiased if every client could
    always be drawn.
    """

    state: FlightState

    def __init__(self, setting: PolicySetting, *, concurrency: int | None, buffer: int) -> None:
        """Take M, 2K where none is given, and the arrivals of a step."""
        wanted = 2 * setting.cohort_size if concurrency is None else concurrency
        if wanted < buffer:
            raise InputError(name="concurrency", rule=f"be at least cohort_size, {buffer}", got=f"{wanted}")
        self.fleet: Fleet = setting.fleet
        self.size = len(setting.fleet)
        self.concurrency, self.buffer = min(wanted, self.size), min(buffer, self.size)
        self.state = FlightState()

    def starters(self, context: RoundContext, chance: Vector) -> Integers:
        """Draw as many idle clients as are missing in flight, in proportion to their chances, and count them."""
        idle = context.available_clients(self.size)
        free = min(self.concurrency - self.state.in_flight, len(idle))
        if free <= 0:
            return idle[:0]
        part = chance[idle] / chance[idle].sum()
        start = np.sort(context.rng.choice(idle, free, replace=False, p=part))
        self.state.in_flight += len(start)
        return start

    def observe(self, report: RoundReport) -> None:
        """Count who is no longer in flight: those who arrived, and those who failed to start."""
        self.state.in_flight -= len(report.plan.members)


class Buffered(KeepsInFlight):
    """A step after every K arrivals, each of which counts p/(K × chance); chances are data shares, or uniform."""

    def __init__(self, setting: PolicySetting, options: FlightOptions) -> None:
        """Take the options."""
        super().__init__(setting, concurrency=options.concurrency, buffer=setting.cohort_size)
        share = self.fleet.data_share
        self.chance = share if options.sampling == "weighted" else np.full(self.size, 1 / self.size)
        self.weights = share / self.chance / self.buffer
