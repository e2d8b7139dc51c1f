"""What tempo knows while it plans: the fleet, its own form, and all that it has learned."""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fedtempo.checks import Integers, Vector
from fedtempo.fleet import Fleet
from fedtempo.policies.availability import Availability, AvailabilityState
from fedtempo.policies.policy import RoundContext, RoundReport
from fedtempo.policies.tempo import constants
from fedtempo.policies.tempo.caution import Caution, CautionState
from fedtempo.policies.tempo.departures import Departures, DeparturesState
from fedtempo.policies.tempo.local_steps import LocalSteps, LocalStepsState
from fedtempo.policies.tempo.novelty import Novelty, NoveltyState
from fedtempo.policies.tempo.options import Form
from fedtempo.policies.tempo.upload_noise import UploadNoise, UploadNoiseState
from fedtempo.policies.times import ClientTimes, TimesState
from fedtempo.theory.turns import Turns, TurnsState


@dataclass(eq=False, slots=True)
class StepsState:
    """Of asynchronous steps."""

    sampling_prob: Vector | None = None  # q, as it was last solved for
    upload_bits: Integers | None = None  # of each client, with it; None: the engine's
    steps_with_it: int = 0
    holding: float = 1.0  # how far the memory held when q was solved for: factor of the server's step
    arrivals: int = 1  # K of the last step
    of_a_mean: int = 0  # K where a step is a mean; 0: not chosen yet
    local_steps: int | None = None  # E where tempo chooses it; None: the engine's
    to_fill: int = 1  # clients in flight that keep the link busy
    mean_compute: float = 0.0  # seconds, of an update
    mean_upload: float = 0.0  # seconds, over the whole link; 0: nothing is known
    longest_compute: float = 0.0  # seconds, of any client
    longest_upload: float = 0.0  # seconds, over the whole link


@dataclass(eq=False, slots=True)
class RoundsState:
    """Of synchronous rounds."""

    cost: Vector | None = None  # seconds that each client adds to a round
    fixed_cost: float = 0.0  # seconds of a round besides these
    theta: float = 0.0  # θ of the last optimum, from which the next is found


@dataclass(eq=False, slots=True)
class TempoState:
    """All that tempo has learned."""

    availability: AvailabilityState
    departures: DeparturesState
    times: TimesState
    novelty: NoveltyState
    local_steps: LocalStepsState
    turns: TurnsState
    caution: CautionState
    steps: StepsState
    rounds: RoundsState
    upload_noise: UploadNoiseState
    in_flight: dict[int, float]  # clients, and when they started, seconds
    expected_noise: float  # squared norm of the sampling noise in the next step

    @classmethod
    def at_first(cls, fleet: Fleet, form: Form, upload_noise: Vector) -> "TempoState":
        """Start with nothing known but nominal times, and what noise of uploads to expect; empty: none is chosen."""
        size = len(fleet)
        return cls(
            availability=AvailabilityState.at_first(size),
            departures=DeparturesState.at_first(size),
            times=TimesState.nominal(fleet),
            novelty=NoveltyState.at_first(size),
            local_steps=LocalStepsState(),
            turns=TurnsState.at_first(size),
            caution=CautionState.at_first(form),
            steps=StepsState(),
            rounds=RoundsState(),
            upload_noise=UploadNoiseState.at_first(size, upload_noise),
            in_flight={},
            expected_noise=0.0,
        )


class Seconds(NamedTuple):
    """How long each client takes."""

    compute: Vector  # whatever delays nobody else, downloads included
    upload: Vector  # with the whole link
    fixed: Vector | float = 0.0  # of ``compute`` what the number of local steps does not change


class Knowledge:
    """The learners around the parts of tempo's state, and what follows from several of them."""

    def __init__(self, fleet: Fleet, form: Form, state: TempoState, upload_shares: Vector) -> None:
        """Look at a state; ``upload_shares``: the time of an upload of each size over that of 32 bits."""
        self.upload_shares = upload_shares
        self.fleet, self.form, self.state = fleet, form, state
        self.availability = Availability(state.availability)
        self.departures = Departures(state.departures)
        self.times = ClientTimes(state.times)
        self.novelty = Novelty(fleet.data_share, state.novelty, grows=form.memory)
        self.paths = LocalSteps(state.local_steps, synchronous=not form.overlap, server_momentum=form.momentum)
        self.turns = Turns(state.turns)
        self.caution = Caution(form, state.caution)
        self.upload_noise = UploadNoise(state.upload_noise)

    @property
    def follows_memory(self) -> bool:
        """Whether steps go along the memory."""
        return self.state.caution.follows_memory

    def look(self, context: RoundContext) -> None:
        """Note who is available, and current times; once a round."""
        self.availability.look(context)
        self.times.look(context)

    def observe(self, report: RoundReport) -> None:
        """Learn what was new, how long it took, and who reported."""
        for client in report.plan.members.tolist():
            self.state.in_flight.pop(client, None)
        self.availability.observe(report)
        self.departures.observe(report)
        self.times.observe(report)
        self.novelty.observe(report, self.state.expected_noise)
        self.state.novelty.clock += self.state.steps.holding
        self.upload_noise.observe(report)
        if self.form.choose_local_steps or self.form.memory:
            self.paths.observe(report, self.fleet.total_bandwidth)

    @property
    def holding(self) -> float:
        """How far the memory as a whole still holds: the share of a whole step that the server takes along it.

        Directions that drift at random agree with those remembered by exp(-f/2), f being how far they are off. What
        those who report again are off by does no harm, or caution sees it; what all would be off beyond it does.
        """
        if not (self.form.memory and self.follows_memory):
            return 1.0
        unseen = self.novelty.forecast - self.novelty.surprise
        return max(math.exp(-max(unseen, 0.0) / 2), constants.LEAST_HOLDING)

    @property
    def steps_are_means(self) -> bool:
        """Whether there is a memory that is not followed."""
        return self.form.memory and not self.follows_memory

    @property
    def shortens_paths(self) -> bool:
        """Whether fewer local steps may pay, by how paths bend: where steps are means of plain paths."""
        return self.steps_are_means and self.form.plain_paths

    def local_steps(self, context: RoundContext) -> int | None:
        """Return E where options leave it to tempo, None for the engine's."""
        return self.paths.best(context.local_steps) if self.form.choose_local_steps else None

    def seconds(self, context: RoundContext, steps: int | None) -> Seconds:
        """Return how long clients compute so many local steps, and how long they upload with the whole link."""
        fleet, times = self.fleet, self.state.times
        tau, t = times.compute, times.upload / fleet.total_bandwidth
        if steps is not None:
            tau = tau * (steps / context.local_steps)
        fixed = np.zeros(len(fleet)) if fleet.download_time is None else fleet.download_time
        if fleet.bandwidth_cap is not None:  # what a slow link of its own adds hinders nobody else, as computing
            fixed = fixed + (times.upload / np.minimum(fleet.bandwidth_cap, fleet.total_bandwidth) - t)
        return Seconds(tau + fixed, t, fixed)

    def forget_the_gone(self, draws: int, context: RoundContext) -> Integers | None:
        """Return whom the server is to forget after so many draws.

        What clients that left for good reported last would mislead for ever.
        """
        if not self.form.memory:
            return None
        gone = self.departures.gone(context, draws * self.fleet.data_share, self.state.in_flight)
        clients = np.flatnonzero(gone & (self.state.novelty.reported_in >= 0))
        self.novelty.forget(clients)
        return clients if clients.size else None

    def note(self, context: RoundContext) -> dict[str, object]:
        """Return what goes into the records."""
        note = self.availability.note(context, self.fleet.data_share) or {}
        return {**note, "follows_memory": self.follows_memory} if self.form.memory else note
