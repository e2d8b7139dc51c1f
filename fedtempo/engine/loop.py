"""The only training loop: plan, train, aggregate, evaluate, observe, one round after another."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import msgspec
import numpy as np

from fedtempo.checks import InputError, Integers, Vector
from fedtempo.engine.clients import Clients, Outcome, Round, Start
from fedtempo.engine.divergence import check_numbers
from fedtempo.engine.plan_rules import check_plan, check_probe
from fedtempo.engine.records import End, RoundRecord, Summary, pilot_record, round_record
from fedtempo.engine.server_step import aggregator_of, note_sent, path_lengths, step_factor, to_aggregate
from fedtempo.engine.settings import StopSettings, TrainingSettings
from fedtempo.engine.slow_clients import slow_loss_of
from fedtempo.engine.step_size import try_step_sizes
from fedtempo.engine.upload_sizes import UploadSizes
from fedtempo.fleet import Fleet
from fedtempo.learning.aggregation import blended
from fedtempo.learning.averaging import ServerAverage
from fedtempo.learning.trainer import NO_BUFFERS, Buffers, Evaluation, Parameters
from fedtempo.policies.policy import BufferedPlan, Policy, Probe, Restart, RoundContext, RoundPlan, RoundReport
from fedtempo.randomness import stream
from fedtempo.state import Arrays, Rows, Stateful, read_states, write_states
from fedtempo.theory.bits import WHOLE

QUESTIONS = 100  # that a policy may ask before it plans a round


@dataclass(slots=True)
class LoopState:
    """Where a run is."""

    model: Parameters
    buffers: Buffers
    initial: Parameters  # w₀: who resumes may not know the one that the run started from
    initial_buffers: Buffers
    initial_loss: float | None = None  # None: the run has not begun; ∞ where nobody knows it
    rounds_done: int = 0  # over all phases
    round_index: int = 0  # r, since the last start from w₀
    time: float = 0.0
    pilot_rounds: int = 0
    pilot_time: float = 0.0
    last: Evaluation | None = None
    time_to_loss: float | None = None  # seconds of training to each target
    time_to_accuracy: float | None = None
    step_size: float | None = None  # η₀ that was found; None: not yet, or it is a setting
    direction: Parameters | None = None  # the server's last, for each local step; None: clients do not follow it
    sent: Rows = field(default_factory=Rows)  # the models from which those in flight started whose models are mixed in


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class LoopSettings:
    """What a run is made of, but for those who train."""

    fleet: Fleet
    policy: Policy
    training: TrainingSettings
    stop: StopSettings
    seed: int


class Loop:
    """One run: a policy, a model and those who train it, under their clock.

    ``rounds`` yields the record of each round. Between rounds, ``save`` and ``resume`` carry the run over to another
    process, which then yields what this one would have, unless the policy cannot be carried over.
    """

    def __init__(
        self, settings: LoopSettings, clients: Clients, initial: Parameters, initial_buffers: Buffers = NO_BUFFERS
    ) -> None:
        """Stand at w₀, at time 0."""
        self.fleet, self.policy, self.clients = settings.fleet, settings.policy, clients
        self.training, self.stop, self.seed = settings.training, settings.stop, settings.seed
        self.aggregator = aggregator_of(self.fleet, self.policy, self.training)
        self.average = ServerAverage(self.training.server_average)
        self.sizes = UploadSizes(self.training, self.fleet, initial.size, initial_buffers.size)
        self.state = LoopState(initial.copy(), initial_buffers.copy(), initial, initial_buffers)
        self.ended: End | None = None

    @property
    def model(self) -> Parameters:
        """The global model: the last one, or the running mean."""
        return self.average.model(self.state.model)

    @property
    def buffers(self) -> Buffers:
        """What the global model keeps beside its parameters."""
        return self.average.buffers(self.state.buffers)

    @property
    def rounds_trained(self) -> int:
        """Rounds so far, pilots left out."""
        return self.state.rounds_done - self.state.pilot_rounds

    @property
    def time_trained(self) -> float:
        """Seconds so far, pilots left out."""
        return self.state.time - self.state.pilot_time

    def rounds(self) -> Iterator[RoundRecord]:
        """Run to the end; yield the record of each round."""
        self._begin()
        if self.ended is None and self.training.step_size == "auto" and self.state.step_size is None:
            yield self._try_step_sizes()
        while self.ended is None:
            record = self._round()
            self.ended = self._end()
            yield record

    def summary(self) -> Summary:
        """Return what the run came to, once it has ended."""
        if self.ended is None:
            raise ValueError("a run has a summary once it has ended")
        state, last = self.state, self.state.last
        slow_loss: float | msgspec.UnsetType | None = msgspec.UNSET
        if self.training.slow_share and self.ended != "diverged":
            slow_loss = slow_loss_of(self.model, self.buffers, self.clients, self.fleet, self.training.slow_share)
        return Summary(
            end=self.ended,
            rounds=self.rounds_trained,
            time=self.time_trained,
            pilot_rounds=state.pilot_rounds,
            pilot_time=state.pilot_time,
            loss=None if last is None or not math.isfinite(last.loss) else last.loss,
            accuracy=_accuracy(last),
            time_to_loss=state.time_to_loss,
            time_to_accuracy=state.time_to_accuracy,
            slow_loss=slow_loss,
        )

    @property
    def resumable(self) -> bool:
        """Whether the policy can be carried over too."""
        return self.policy.state is not None

    def save(self) -> Arrays:
        """Return all that a resumed run needs."""
        return write_states(self.parts)

    def resume(self, arrays: Arrays) -> None:
        """Take up what ``save`` returned."""
        read_states(self.parts, arrays)

    @property
    def parts(self) -> dict[str, Stateful]:
        """All that learns or moves on in a run, by name."""
        server: dict[str, Stateful] = {"server": self.aggregator, "average": self.average, "sizes": self.sizes}
        return {"loop": self, **server, "policy": self.policy, **self.clients.parts}

    def _begin(self) -> None:
        """Evaluate w₀, unless the run was begun before; it may be at its end, which may be another now."""
        state = self.state
        if state.initial_loss is None:
            first = self.clients.evaluate(state.initial, state.initial_buffers)
            state.initial_loss = math.inf if first is None else first.loss
            if math.isnan(state.initial_loss) and self.clients.repeatable:
                remedy = "look at the data, the initial weights and the loss"
                raise InputError(name="the loss", rule="be a number at the start", got="nan", remedy=remedy)
        self.ended = self._end()
        if self.ended is not None:
            state.last = self.clients.evaluate(self.model, self.buffers) or state.last

    def _round(self) -> RoundRecord:
        chosen, round_ = self._plan(self.clients.begin(self._start()))
        if isinstance(chosen, BufferedPlan):
            note_sent(self.state.sent, chosen, self._start().model)
            done = round_.train_some(chosen)
        else:
            done = round_.train(chosen)
        report = self._aggregate(chosen, done)
        check_numbers(report, self.state.initial_loss, self.state.rounds_done)
        self.policy.observe(report)
        self.sizes.observe(report)
        return round_record(self.state.time, report, done.step_size)

    def _try_step_sizes(self) -> RoundRecord:
        """Let some clients find η₀, and let the time pass that this takes: a pilot, after which w₀ is as it was."""
        state, begun = self.state, self.clients.begin(self._start(0.0))
        now = begun.conditions
        available = np.arange(len(self.fleet)) if now.available is None else np.flatnonzero(now.available)
        times = self.fleet.compute_time if now.compute_time is None else now.compute_time

        def path_losses(clients: Integers, step_size: float, steps: int) -> Vector:
            return begun.ask(Probe(clients=clients, ask="path_loss", step_size=step_size, local_steps=steps))

        state.step_size, clients = try_step_sizes(times, available, self.training.local_steps, path_losses)
        seconds = begun.seconds_asked
        state.time += seconds
        state.rounds_done += 1
        state.pilot_rounds += 1
        state.pilot_time += seconds
        return pilot_record("step-size", state.time, seconds, {"step_size": state.step_size, "asked": clients.tolist()})

    def _step_size(self) -> float:
        """Return η of this round."""
        return self.training.step_size_of(self.state.round_index, self.state.step_size)

    def _start(self, step_size: float | None = None) -> Start:
        state = self.state
        step_size = self._step_size() if step_size is None else step_size
        return Start(
            model=self.aggregator.ahead(state.model, step_size) if self.policy.server_lookahead else state.model,
            buffers=state.buffers,
            round_index=state.round_index,
            rounds_done=state.rounds_done,
            time=state.time,
            step_size=step_size,
            upload_bits=None if self.training.upload_bits == WHOLE else self.sizes.bits,
            direction=state.direction,
            deviation=self.aggregator.deviation
            if self.training.local_correction and self.aggregator.state.known_share
            else None,
        )

    def _plan(self, begun: Round) -> tuple[RoundPlan | BufferedPlan, Round]:
        """Let the policy plan, and answer its probes; return the plan, and the round that it is for."""
        answers: Vector | None = None
        probes: list[Probe] = []
        rng = stream(self.seed, "policy", self.state.round_index)
        for _ in range(QUESTIONS):
            asked = probes[-1].clients if probes else None
            plan = self.policy.plan(replace(self._context(begun, rng), asked=asked, answers=answers))
            if isinstance(plan, RoundPlan | BufferedPlan):
                check_plan(plan, probes, self.fleet, self.clients.in_flight)
                return plan, begun
            if isinstance(plan, Restart):
                self._start_again()
                begun = begun.start_again(self._start())
                answers, probes, rng = None, [], stream(self.seed, "policy", 0)
            else:
                check_probe(plan, self.fleet, self.clients.in_flight)
                answers = begun.ask(plan)
                probes.append(plan)
        raise InputError(
            name="a policy", rule=f"plan a round after at most {QUESTIONS} probes and restarts", got="more"
        )

    def _context(self, begun: Round, rng: np.random.Generator) -> RoundContext:
        state, now = self.state, begun.conditions
        return RoundContext(
            round_index=state.round_index,
            time=state.time,
            step_size=self._step_size(),
            local_steps=self.training.local_steps,
            rng=rng,
            available=now.available,
            compute_time=now.compute_time,
            upload_time=now.upload_time,
        )

    def _start_again(self) -> None:
        state = self.state
        state.model, state.buffers = state.initial.copy(), state.initial_buffers.copy()
        state.round_index, state.last, state.direction, state.sent = 0, None, None, Rows()
        self.aggregator.reset()
        self.average.reset()

    def _aggregate(self, chosen: RoundPlan | BufferedPlan, done: Outcome) -> RoundReport:
        """Take the server's step, let time pass, and evaluate where that is due."""
        plan, result, answered = done.plan, done.result, ~done.failed
        if chosen.forget is not None:
            self.aggregator.forget(chosen.forget)
        step_size = chosen.step_factor * self._step_size()
        updates, then = to_aggregate(self.state.sent, done, self.state.model, step_size)
        step = self.aggregator.apply(
            self.state.model,
            plan.members[answered],
            updates[answered],
            plan.weights_of(answered),
            step_size,
            then[answered],
            follow_memory=chosen.follow_memory,
            factor=step_factor(chosen, done) * chosen.server_factor,
        )
        if self.training.local_correction:
            self.aggregator.note_paths(plan.members[answered], path_lengths(done, self.training)[answered])
        self.state.model, residual_norm = step.model, np.full(len(answered), np.nan)
        if result.buffers is not None:
            self.state.buffers = blended(self.state.buffers, plan.weights_of(answered), result.buffers[answered])
        residual_norm[answered] = step.residual_norm
        along_memory = self.aggregator.memory and chosen.follow_memory
        self.average.add(self.state.model, self.state.buffers, along_memory=along_memory)
        if self.training.local_direction and answered.any():
            self.state.direction = step.direction / np.float32(path_lengths(done, self.training)[answered].mean())
        self._advance(plan, done.seconds)
        evaluation = self._evaluate(plan, done.seconds)
        return RoundReport(
            plan=plan,
            round_index=self.state.round_index - 1,
            round_time=done.seconds,
            compute_time=done.compute_time,
            upload_time=done.upload_time,
            step_size=done.schedule,
            local_steps=done.local_steps,
            largest_gradient_norm=result.largest_gradient_norm,
            mean_gradient_norm=result.mean_gradient_norm,
            update_norm=result.update_norm,
            mean_loss=result.mean_loss,
            failed=done.failed,
            residual_norm=residual_norm,
            aggregate_norm=step.aggregate_norm,
            direction_norm=step.direction_norm,
            loss=None if evaluation is None else evaluation.loss,
            accuracy=_accuracy(evaluation),
            upload_bits=done.upload_bits,
            noise=result.noise,
        )

    def _advance(self, plan: RoundPlan, seconds: float) -> None:
        state = self.state
        state.time += seconds
        state.rounds_done += 1
        state.round_index += 1
        if plan.phase != "train":
            state.pilot_rounds += 1
            state.pilot_time += seconds

    def _evaluate(self, plan: RoundPlan, seconds: float) -> Evaluation | None:
        state, stop = self.state, self.stop
        due = self.training.looks_after(state.round_index, state.time - seconds, state.time)
        if not (due or plan.evaluate or self._limit is not None):
            return None
        last = state.last = self.clients.evaluate(self.model, self.buffers)
        if plan.phase == "train" and last is not None:
            if stop.target_loss is not None and state.time_to_loss is None and last.loss <= stop.target_loss:
                state.time_to_loss = self.time_trained
            enough = stop.target_accuracy is not None and last.accuracy >= stop.target_accuracy
            if enough and state.time_to_accuracy is None:
                state.time_to_accuracy = self.time_trained
        return last

    @property
    def _limit(self) -> End | None:
        return self.stop.limit_reached(self.rounds_trained, self.time_trained)

    def _end(self) -> End | None:
        """Return why the run ends here, None if it goes on."""
        state, stop = self.state, self.stop
        targets = ((stop.target_loss, state.time_to_loss), (stop.target_accuracy, state.time_to_accuracy))
        wanted = [reached for target, reached in targets if target is not None]
        return "target" if wanted and None not in wanted else self._limit


def _accuracy(evaluation: Evaluation | None) -> float | None:
    """Return it where it is known."""
    return None if evaluation is None or math.isnan(evaluation.accuracy) else evaluation.accuracy
