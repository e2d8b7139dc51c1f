"""Who is available and who reports: what unbiased weights must make up for where clients come, go and fail."""

from dataclasses import dataclass

import numpy as np

from fedtempo.checks import Integers, Vector
from fedtempo.policies.policy import Policy, RoundContext, RoundReport

TRIALS_TO_FADE = 400  # counts of so many are halved: how often a client is available, or reports, may change
LEAST_RESPONSE = 0.1  # a client seen in fewer rounds than this is not made up for in full: its weight would explode


@dataclass(eq=False, slots=True)
class AvailabilityState:
    """What was seen of each client."""

    rounds: float  # in which somebody may have been absent, and all before
    absent: Vector  # rounds without the client
    drawn: Vector  # how often it was
    failed: Vector  # draws without a report
    never_available: Integers  # clients
    any_failed: bool  # if nobody did so far, a large fleet need not be looked through

    @classmethod
    def at_first(cls, size: int) -> "AvailabilityState":
        """Start with everyone always available."""
        absent, drawn, failed = np.zeros((3, size))
        return cls(0.0, absent, drawn, failed, np.arange(size), any_failed=False)


class Availability:
    """The response probability ρ_i of each client, learned: that it is available, times that it reports if drawn.

    A client drawn from those who are available, with weight p/(K q ρ), adds p Δ to the aggregate in expectation, as if
    it were always available. Who is in flight counts as absent, since it cannot be drawn. Both factors start at 1 and
    are (successes + 1)/(trials + 1).
    """

    def __init__(self, state: AvailabilityState) -> None:
        """Go on from what was seen."""
        self.state = state

    def look(self, context: RoundContext) -> None:
        """Note who is available; once a round."""
        state = self.state
        state.rounds += 1
        if state.rounds >= TRIALS_TO_FADE:
            state.rounds /= 2
            state.absent /= 2
        if context.available is None:
            state.never_available = state.never_available[:0]
            return
        absent = np.flatnonzero(~context.available)  # seldom many, so that large fleets take little time
        state.absent[absent] += 1
        state.never_available = state.never_available[~context.available[state.never_available]]

    def count_absent(self, clients: Integers) -> None:
        """Note that some who seemed to be available in this round were not."""
        self.state.absent[clients] += 1

    def observe(self, report: RoundReport) -> None:
        """Note who reported."""
        state, members, failed = self.state, report.plan.members, report.failed
        state.drawn[members] += 1
        state.any_failed |= bool(failed.any())
        if not state.any_failed:
            return
        state.failed[members] += failed
        often = members[state.drawn[members] >= TRIALS_TO_FADE]
        state.drawn[often] /= 2
        state.failed[often] /= 2

    def response(self, clients: Integers) -> Vector:
        """Return ρ of some clients."""
        state = self.state
        available = 1 - state.absent[clients] / (state.rounds + 1)
        reports = 1 - state.failed[clients] / (state.drawn[clients] + 1)
        return np.maximum(available * reports, LEAST_RESPONSE)

    def note(self, context: RoundContext, data_share: Vector) -> dict[str, object] | None:
        """Return for the records what no weight makes up for, as shares of the data.

        That of clients that were never available so far, and of those that were drawn and never reported.
        """
        state, note = self.state, dict[str, object]()
        if context.available is not None:
            note["never_there"] = float(data_share[state.never_available].sum())
        failing = np.flatnonzero(state.failed) if state.any_failed else np.empty(0, dtype=np.int64)
        if (silent := failing[state.failed[failing] == state.drawn[failing]]).size:
            note["never_answered"] = float(data_share[silent].sum())
        return note or None


class LearnsAvailability(Policy):
    """A policy that learns who is available and who reports, and nothing else."""

    state: AvailabilityState

    @property
    def availability(self) -> Availability:
        """What was learned, ready for use."""
        return Availability(self.state)

    def observe(self, report: RoundReport) -> None:
        """Learn who reported."""
        self.availability.observe(report)
