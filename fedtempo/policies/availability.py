"""Who is there and who answers: what unbiased weights must make up for where clients come, go and fail."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from fedtempo.checks import Integers, Vector
from fedtempo.policies.policy import RoundContext, RoundReport

TRIALS_TO_FADE = 400  # counts of so many are halved: how often a client is there, or answers, may change
MISSED_BY_THE_GONE = 3.0  # draws, or failures in a row, after which a client may have left for good
LEAST_RESPONSE = 0.1  # a client seen in fewer rounds than this is not made up for in full: its weight would explode


class Presence:
    """The response probability ρ_i of each client, learned: that it is there, times that it answers if it is drawn.

    A client drawn from those who are there, with weight p/(K q ρ), adds p Δ to the aggregate in expectation, as if
    it were always there. Who is in flight counts as absent, since it cannot be drawn. Both factors start at 1 and are
    (successes + 1)/(trials + 1).
    """

    def __init__(self, size: int) -> None:
        """Start with everyone always there."""
        self.rounds = 0.0  # in which somebody may have been absent, and all before
        self.absent, self.drawn, self.failed = np.zeros(size), np.zeros(size), np.zeros(size)
        self.silent = np.zeros(size)  # failures in a row
        self.all_answered = True  # so far: then a large fleet need not be looked through
        self.missed = np.zeros(size)  # draws, by those who were away meanwhile
        self.never_there: Integers = np.arange(size)

    def look(self, context: RoundContext) -> None:
        """Note who is there; once a round."""
        self.rounds += 1
        if self.rounds >= TRIALS_TO_FADE:
            self.rounds /= 2
            self.absent /= 2
        if context.available is None:
            self.never_there = self.never_there[:0]
            return
        away = np.flatnonzero(~context.available)  # seldom many, so that large fleets take little time
        self.absent[away] += 1
        self.never_there = self.never_there[~context.available[self.never_there]]

    def look_again(self, away: Integers) -> None:
        """Note that some who seemed to be there in this round were not."""
        self.absent[away] += 1

    def gone(self, context: RoundContext, draws: Vector, flying: Iterable[int]) -> npt.NDArray[np.bool_]:
        """Return who may have left for good, ``draws`` of each having been due since this was last asked."""
        gone = self.silent >= MISSED_BY_THE_GONE
        if context.available is not None:
            away = ~context.available
            away[list(flying)] = False
            self.missed = np.where(away, self.missed + draws, 0.0)
            gone |= self.missed >= MISSED_BY_THE_GONE
        return gone

    def observe(self, report: RoundReport) -> None:
        """Note who answered."""
        members, failed = report.plan.members, report.failed
        self.drawn[members] += 1
        self.all_answered &= not failed.any()
        if self.all_answered:
            return
        self.failed[members] += failed
        often = members[self.drawn[members] >= TRIALS_TO_FADE]
        self.drawn[often] /= 2
        self.failed[often] /= 2
        self.silent[members] = np.where(failed, self.silent[members] + 1, 0)

    def response(self, clients: Integers) -> Vector:
        """Return ρ of some clients."""
        there = 1 - self.absent[clients] / (self.rounds + 1)
        answers = 1 - self.failed[clients] / (self.drawn[clients] + 1)
        return np.maximum(there * answers, LEAST_RESPONSE)

    def note(self, context: RoundContext, data_share: Vector) -> dict[str, Any] | None:
        """Return for the records what no weight makes up for, as shares of the data.

        That of clients that were never there so far, and of those that were drawn and never answered.
        """
        note = {} if context.available is None else {"never_there": float(data_share[self.never_there].sum())}
        silent = np.empty(0, dtype=np.int64) if self.all_answered else np.flatnonzero(self.silent)
        if (mute := silent[self.failed[silent] == self.drawn[silent]]).size:
            note["never_answered"] = float(data_share[mute].sum())
        return note or None

    def state(self) -> dict[str, Any]:
        """Return what was seen: of the many zeros nothing."""
        state: dict[str, Any] = {"rounds": self.rounds, "never_there": self.never_there.tolist()}
        for name in COUNTS:
            counts = getattr(self, name)
            seen = np.flatnonzero(counts)
            state[name] = [seen.tolist(), counts[seen].tolist()]
        return state

    def restore(self, state: dict[str, Any]) -> None:
        """Take up what ``state`` returned."""
        self.rounds = state["rounds"]
        for name in COUNTS:
            clients, counts = state[name]
            getattr(self, name)[:] = 0
            getattr(self, name)[clients] = counts
        self.all_answered = not self.failed.any()
        self.never_there = np.array(state["never_there"], dtype=np.int64)


COUNTS = ("absent", "drawn", "failed", "missed", "silent")


class Attentive:
    """A policy that learns who is there and who answers, and nothing else."""

    presence: Presence

    def observe(self, report: RoundReport) -> None:
        """Learn who answered."""
        self.presence.observe(report)

    def state(self) -> dict[str, Any]:
        """Return what was learned."""
        return {"presence": self.presence.state()}

    def restore(self, state: dict[str, Any]) -> None:
        """Take it up."""
        self.presence.restore(state["presence"])
