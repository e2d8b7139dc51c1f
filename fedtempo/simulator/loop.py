"""The only training loop: plan, time, train, aggregate, evaluate, observe, one round after another."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fedtempo.checks import InputError, Integers, Vector
from fedtempo.data.federation import FederatedData
from fedtempo.fleet import Fleet
from fedtempo.learning.aggregation import Aggregator
from fedtempo.learning.batches import Batches
from fedtempo.learning.trainer import Evaluation, LocalResult, LocalWork, Trainer
from fedtempo.policies.policy import (
    MEASURED,
    BufferedPlan,
    Policy,
    Probe,
    Restart,
    RoundContext,
    RoundPlan,
    RoundReport,
)
from fedtempo.randomness import stream
from fedtempo.simulator.channel import Channel, ChannelState
from fedtempo.simulator.clock import time_round
from fedtempo.simulator.flight import Flight
from fedtempo.simulator.settings import StopSettings, TrainingSettings

HOPELESS = 1000.0  # times the loss of w₀: no run comes back from there
QUESTIONS = 100  # that a policy may ask before it plans a round


class DivergedError(ArithmeticError):
    """Training left the numbers; the message names the round, ``records`` hold what came before."""

    records: tuple[dict[str, Any], ...] = ()


class Simulation:
    """One run: a policy, a model and a fleet under a simulated clock.

    ``rounds`` yields one record for each round and one at the end. Between rounds, ``state`` and ``restore`` carry the
    run over to another process, which then yields what this one would have; for that the policy needs both as well.
    """

    def __init__(
        self,
        *,
        data: FederatedData,
        trainer: Trainer,
        fleet: Fleet,
        channel: Channel,
        policy: Policy,
        training: TrainingSettings,
        stop: StopSettings,
        seed: int,
    ) -> None:
        """Start at w₀, at time 0."""
        if data.num_clients != len(fleet):
            raise InputError(
                f"the fleet must have a client for each part of the data, got {len(fleet)} and {data.num_clients}"
            )
        self.trainer, self.fleet, self.channel, self.policy = trainer, fleet, channel, policy
        self.training, self.stop, self.seed = training, stop, seed
        self.batches = Batches(data.offsets, batch_size=training.batch_size, seed=seed)
        memory = training.server_memory or getattr(policy, "server_memory", False)
        self.aggregator = Aggregator(fleet.data_share, momentum=training.server_momentum, memory=memory)
        self.initial = trainer.initial_model(stream(seed, "initial model"))
        self.model = self.initial.copy()
        self.flight = Flight.of_nobody(self.model.size)  # whom asynchronous plans started and who is still to arrive
        self.initial_loss = trainer.evaluate(self.initial).loss
        self.rounds_done = 0  # over all phases
        self.round_index = 0  # r, since the last start from w₀
        self.time = 0.0
        self.pilot_rounds, self.pilot_time = 0, 0.0
        self.last: Evaluation | None = None
        self.reached: dict[str, float | None] = {"loss": None, "accuracy": None}  # seconds of training to each target
        self.ended: str | None = None

    def rounds(self) -> Iterator[dict[str, Any]]:
        """Run to the end; yield the record of each round, then the summary."""
        while self.ended is None:
            record = self._round()
            self._check_end()
            yield record
        yield self.summary()

    def summary(self) -> dict[str, Any]:
        """Return what the run came to."""
        return {
            "end": self.ended,
            "rounds": self.rounds_done - self.pilot_rounds,
            "time": self.time - self.pilot_time,
            "pilot_rounds": self.pilot_rounds,
            "pilot_time": self.pilot_time,
            "loss": None if self.last is None else self.last.loss,
            "accuracy": None if self.last is None else self.last.accuracy,
            "time_to_loss": self.reached["loss"],
            "time_to_accuracy": self.reached["accuracy"],
        }

    @property
    def resumable(self) -> bool:
        """Whether the policy can be carried over too."""
        return hasattr(self.policy, "state") and hasattr(self.policy, "restore")

    def state(self) -> tuple[dict[str, Any], dict[str, npt.NDArray[np.generic]]]:
        """Return all that a resumed run needs: JSON values, and arrays."""
        values = {name: getattr(self, name) for name in STATE} | {
            "policy": self.policy.state(),  # type: ignore[attr-defined]
            "last": None if self.last is None else [self.last.loss, self.last.accuracy],
        }
        parts = {"server_": self.aggregator.state(), "flight_": self.flight.state()}
        return values, {"model": self.model} | {start + k: v for start, part in parts.items() for k, v in part.items()}

    def restore(self, values: dict[str, Any], arrays: dict[str, npt.NDArray[np.generic]]) -> None:
        """Take up what ``state`` returned."""
        for name in STATE:
            setattr(self, name, values[name])
        self.last = None if values["last"] is None else Evaluation(*values["last"])
        self.model = arrays["model"]  # type: ignore[assignment]
        server, flight = (
            {k.removeprefix(start): v for k, v in arrays.items() if k.startswith(start)}
            for start in ("server_", "flight_")
        )
        self.aggregator.restore(server)
        self.flight = Flight(**flight) if flight else Flight.of_nobody(self.model.size)  # type: ignore[arg-type]
        self.policy.restore(values["policy"])  # type: ignore[attr-defined]

    def _round(self) -> dict[str, Any]:
        now = self.channel.at(self.rounds_done, self.time)
        plan, asked = self._plan(now)
        done = self._buffer(plan, now, asked) if isinstance(plan, BufferedPlan) else self._together(plan, now, asked)
        plan, failed = done.plan, done.failed
        step = self.aggregator.apply(
            self.model,
            plan.members[~failed],
            done.result.update[~failed],
            plan.weights_of(~failed),
            self.training.step_size_of(self.round_index),
            done.schedule[~failed],
        )
        self.model, residual_norm = step.model, np.full(len(failed), np.nan)
        residual_norm[~failed] = step.residual_norm
        self._advance(plan, done.seconds)
        evaluation = self._evaluate(plan)
        report = RoundReport(
            plan=plan,
            round_index=self.round_index - 1,
            round_time=done.seconds,
            compute_time=done.compute_time,
            upload_time=done.upload_time,
            step_size=done.schedule,
            largest_gradient_norm=done.result.largest_gradient_norm,
            mean_gradient_norm=done.result.mean_gradient_norm,
            update_norm=done.result.update_norm,
            mean_loss=done.result.mean_loss,
            failed=failed,
            residual_norm=residual_norm,
            aggregate_norm=step.aggregate_norm,
            direction_norm=step.direction_norm,
            loss=None if evaluation is None else evaluation.loss,
            accuracy=None if evaluation is None else evaluation.accuracy,
        )
        self._check_numbers(report)
        self.policy.observe(report)
        return _record(self.time, report, done.step_size)

    def _together(self, plan: RoundPlan, now: ChannelState, asked: "Asked") -> "Outcome":
        """Let all members train, and wait for all of them."""
        steps = self._for_each(plan, plan.local_steps, self.training.local_steps).astype(np.int64)
        sizes = self._for_each(plan, plan.step_size, self.training.step_size_of(self.round_index))
        if asked.result is None:
            result = self._train(plan.members, steps, sizes)
        else:
            result = _select(asked.computed, asked.result, plan.members)
        round_time, failed = self._time(plan, now, steps, asked)
        times = now.compute_time[plan.members], now.upload_time[plan.members]
        schedule = self._for_each(plan, None, self.training.step_size_of(self.round_index))
        return Outcome(plan, result, sizes, schedule, *times, failed, asked.seconds + round_time)

    def _buffer(self, plan: BufferedPlan, now: ChannelState, asked: "Asked") -> "Outcome":
        """Let some clients start, and wait for the first updates of all that are in flight."""
        clients, steps = plan.start, np.full(len(plan.start), self.training.local_steps)
        sizes = np.full(len(clients), self.training.step_size_of(self.round_index))
        ready = self.time + self._ready_time(now, clients, steps, asked)
        result = self._train(clients, steps, sizes)
        started = Flight(
            client=clients, weight=plan.weights, version=np.full(len(clients), self.round_index), step_size=sizes,
            compute_time=now.compute_time[clients], upload_time=now.upload_time[clients],
            ready=ready if now.available is None else np.where(now.available[clients], ready, np.inf),
            update=result.update, largest_gradient_norm=result.largest_gradient_norm,
            mean_gradient_norm=result.mean_gradient_norm, mean_loss=result.mean_loss,
        )  # fmt: skip
        flight = self.flight.joined_by(started)
        landed, failed, self.flight, end = flight.wait(plan.wait_for, self.time, self.fleet.total_bandwidth)
        staleness = self.round_index - landed.version
        arrived = RoundPlan(
            members=landed.client,
            weights=landed.weight * (1.0 + staleness) ** -plan.staleness_exponent,
            note={**(plan.note or {}), "staleness": staleness.tolist()},
        )
        times = landed.compute_time, landed.upload_time
        sizes = landed.step_size
        return Outcome(arrived, landed.result, sizes, sizes, *times, failed, end - self.time)

    @staticmethod
    def _for_each(plan: RoundPlan, chosen: npt.ArrayLike | None, usual: float) -> Vector:
        return np.full(len(plan.members), usual if chosen is None else chosen, dtype=np.float64)

    def _plan(self, now: ChannelState) -> tuple[RoundPlan | BufferedPlan, "Asked"]:
        """Let the policy plan, and answer its probes."""
        answers, asked = None, Asked()
        rng = stream(self.seed, "policy", self.round_index)
        for _ in range(QUESTIONS):
            context = RoundContext(
                round_index=self.round_index, time=self.time, step_size=self.training.step_size_of(self.round_index),
                local_steps=self.training.local_steps, rng=rng, available=self._available(now),
                compute_time=now.compute_time if now.told else None,
                upload_time=now.upload_time if now.told else None, answers=answers,
            )  # fmt: skip
            plan = self.policy.plan(context)
            if isinstance(plan, RoundPlan | BufferedPlan):
                self._check_plan(plan, asked)
                return plan, asked
            if isinstance(plan, Restart):
                self.model, self.round_index, self.last = self.initial.copy(), 0, None
                self.aggregator.reset()
                self.flight = Flight.of_nobody(self.model.size)
                answers, asked, rng = None, Asked(seconds=asked.seconds), stream(self.seed, "policy", 0)
            elif isinstance(plan, Probe):
                self._check_clients("clients", plan.clients)
                answers = self._ask(plan, now, asked)
            else:
                raise InputError(
                    f"plan must return a BufferedPlan, a RoundPlan, a Probe or a Restart, got {type(plan).__name__}"
                )
        raise InputError(f"a policy must plan a round after at most {QUESTIONS} probes and restarts, got more")

    def _available(self, now: ChannelState) -> npt.NDArray[np.bool_] | None:
        """Return who is there and not in flight."""
        if not len(self.flight):
            return now.available
        idle = np.ones(len(self.fleet), dtype=bool) if now.available is None else now.available.copy()
        idle[self.flight.client] = False
        return idle

    def _ask(self, probe: Probe, now: ChannelState, asked: "Asked") -> Vector:
        """Return the answers, and note in ``asked`` what they took."""
        clients, steps = probe.clients, np.full(len(probe.clients), self.training.local_steps)
        if probe.ask == "loss":
            # One pass over the local data counts as so many batches, at the speed of training.
            answers = self.trainer.client_losses(self.model, clients)
            work: npt.NDArray[Any] = np.diff(self.batches.offsets)[clients] / self.training.batch_size
        else:
            work = steps
            sizes = np.full(len(clients), self.training.step_size_of(self.round_index))
            asked.computed, asked.result = clients, self._train(clients, steps, sizes)
            answers = asked.result.update_norm
        asked.seconds += float(self._ready_time(now, clients, work, asked).max())
        asked.have_the_model = np.union1d(asked.have_the_model, clients)
        return answers

    def _check_plan(self, plan: RoundPlan | BufferedPlan, asked: "Asked") -> None:
        if isinstance(plan, BufferedPlan):
            self._check_buffered(plan, asked)
            return
        if len(self.flight):
            raise InputError(f"a RoundPlan must wait until nobody is in flight, got {len(self.flight)} who are")
        self._check_clients("members", plan.members)
        if asked.result is not None and not (plan.local_steps is None and plan.step_size is None):
            raise InputError("local_steps and step_size must be None after a probe of update norms, got a change")
        if plan.bandwidth is not None:
            total, cap = self.fleet.total_bandwidth, self.fleet.bandwidth_cap
            if plan.bandwidth.sum() > total * (1 + 1e-9):
                raise InputError(f"bandwidth must add up to {total:g} at most, got {plan.bandwidth.sum():g}")
            if cap is not None and (plan.bandwidth > cap[plan.members] * (1 + 1e-9)).any():
                raise InputError("bandwidth must keep to the caps of the members, got more")

    def _check_buffered(self, plan: BufferedPlan, asked: "Asked") -> None:
        self._check_clients("start", plan.start)
        if self.fleet.bandwidth_cap is not None:
            raise InputError(
                "a BufferedPlan must have a link without caps, got a fleet with bandwidth_cap; leave it out"
            )
        if asked.seconds or asked.result is not None:
            raise InputError("a BufferedPlan must come without a probe, got one before it")
        if not (plan.start.size or len(self.flight)):
            raise InputError("start must name somebody where nobody is in flight, got nobody")

    def _check_clients(self, name: str, clients: Integers) -> None:
        if clients.size and clients.max() >= len(self.fleet):
            raise InputError(f"{name} must lie below {len(self.fleet)}, the number of clients, got {clients.max()}")
        if len(self.flight) and (busy := np.intersect1d(clients, self.flight.client)).size:
            raise InputError(f"{name} must not be in flight, got {str(busy.tolist())[:60]}")

    def _train(self, members: Integers, steps: Integers, sizes: Vector) -> LocalResult:
        if not len(members):
            return LocalResult.of_nobody(self.model.size)
        rows = self.batches.draw(members, self.round_index, int(steps.max(initial=1)))
        work = LocalWork(
            start=np.zeros(len(members), dtype=np.int64), rows=rows, local_steps=steps, step_size=sizes,
            weight_decay=self.training.weight_decay,
        )  # fmt: skip
        return self.trainer.train(self.model[None], work)

    def _ready_time(self, now: ChannelState, clients: Integers, steps: npt.NDArray[Any], asked: "Asked") -> Vector:
        """Return when clients are done: those who need it download, then all compute in proportion to their steps."""
        ready: Vector = now.compute_time[clients] * (steps / self.training.local_steps)
        if self.fleet.download_time is None:
            return ready
        return ready + np.where(np.isin(clients, asked.have_the_model), 0.0, self.fleet.download_time[clients])

    def _time(
        self, plan: RoundPlan, now: ChannelState, steps: Integers, asked: "Asked"
    ) -> tuple[float, npt.NDArray[np.bool_]]:
        """Return the seconds of the round and who failed: the absent, who take no time, and the late."""
        there = np.ones(len(plan.members), dtype=bool) if now.available is None else now.available[plan.members]
        members = plan.members[there]

        def of(values: npt.NDArray[Any] | None) -> Any:  # noqa: ANN401
            return None if values is None else values[members]

        still_to_do = steps[there] if asked.result is None else np.zeros(len(members))
        timing = time_round(
            self._ready_time(now, members, still_to_do, asked),
            of(now.upload_time),
            total_bandwidth=self.fleet.total_bandwidth,
            link=self.training.link,
            duplicates=self.training.duplicates,
            counts=None if plan.counts is None else plan.counts[there],
            bandwidth=None if plan.bandwidth is None else plan.bandwidth[there],
            bandwidth_cap=of(self.fleet.bandwidth_cap),
            deadline=plan.deadline,
        )
        failed = ~there
        failed[there] = timing.late
        return timing.round_time, failed

    def _advance(self, plan: RoundPlan, seconds: float) -> None:
        self.time += seconds
        self.rounds_done += 1
        self.round_index += 1
        if plan.phase != "train":
            self.pilot_rounds += 1
            self.pilot_time += seconds

    def _evaluate(self, plan: RoundPlan) -> Evaluation | None:
        due = self.round_index % self.training.evaluate_every == 0
        if not (due or plan.evaluate or self._limit_reached() is not None):
            return None
        self.last = self.trainer.evaluate(self.model)
        if plan.phase == "train":
            spent, stop = self.time - self.pilot_time, self.stop
            if stop.target_loss is not None and self.reached["loss"] is None and self.last.loss <= stop.target_loss:
                self.reached["loss"] = spent
            enough = stop.target_accuracy is not None and self.last.accuracy >= stop.target_accuracy
            if enough and self.reached["accuracy"] is None:
                self.reached["accuracy"] = spent
        return self.last

    def _check_numbers(self, report: RoundReport) -> None:
        said = None
        if report.loss is not None and not report.loss <= HOPELESS * self.initial_loss:
            said = f"the loss is {report.loss:.3g}, at first it was {self.initial_loss:.3g}"
        elif not math.isfinite(report.aggregate_norm):
            said = "the updates are no longer finite numbers"
        if said is not None:
            raise DivergedError(f"training diverged in round {self.rounds_done}: {said}; use a smaller step_size")

    def _check_end(self) -> None:
        targets = {"loss": self.stop.target_loss, "accuracy": self.stop.target_accuracy}
        wanted = [name for name, target in targets.items() if target is not None]
        if wanted and all(self.reached[name] is not None for name in wanted):
            self.ended = "target"
        else:
            self.ended = self._limit_reached()

    def _limit_reached(self) -> str | None:
        stop = self.stop
        if stop.max_rounds is not None and self.rounds_done - self.pilot_rounds >= stop.max_rounds:
            return "max_rounds"
        if stop.max_time is not None and self.time - self.pilot_time >= stop.max_time:
            return "max_time"
        return None


STATE = ("rounds_done", "round_index", "time", "pilot_rounds", "pilot_time", "reached", "ended")


@dataclass(eq=False, slots=True)
class Asked:
    """What a policy's probes did before the round."""

    seconds: float = 0.0
    have_the_model: Integers = field(default_factory=lambda: np.empty(0, dtype=np.int64))  # it was sent with the probe
    computed: Integers = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    result: LocalResult | None = None  # of those who computed


class Outcome(NamedTuple):
    """Who took part in a round and what came of it, one entry for each member of the plan."""

    plan: RoundPlan
    result: LocalResult
    step_size: Vector  # that it trained with
    schedule: Vector  # η of the schedule when it started
    compute_time: Vector
    upload_time: Vector
    failed: npt.NDArray[np.bool_]
    seconds: float


def _select(clients: Integers, result: LocalResult, members: Integers) -> LocalResult:
    """Return what the probe left of some of the clients that it asked."""
    order = np.argsort(clients)
    places = order[np.searchsorted(clients, members, sorter=order).clip(max=len(clients) - 1)]
    if not np.array_equal(clients[places], members):
        raise InputError("members must be among the clients that the probe asked to compute, got others")
    return LocalResult(
        update=result.update[places],
        largest_gradient_norm=result.largest_gradient_norm[places],
        mean_gradient_norm=result.mean_gradient_norm[places],
        mean_loss=result.mean_loss[places],
    )


def _record(time: float, report: RoundReport, sizes: Vector) -> dict[str, Any]:
    """Return the record of a round: JSON values only, and nothing that differs between equal runs."""
    plan, measured = report.plan, np.array([getattr(report, name) for name in MEASURED])
    numbers = measured.tolist()
    if np.isnan(measured).any():
        numbers = [[None if math.isnan(x) else x for x in line] for line in numbers]
    record = {
        "round": report.round_index,
        "phase": plan.phase,
        "time": time,
        "round_time": report.round_time,
        "loss": report.loss,
        "accuracy": report.accuracy,
        "members": plan.members.tolist(),
        "counts": [1] * len(plan.members) if plan.counts is None else plan.counts.tolist(),
        "weights": plan.weights.tolist(),
        "step_size": sizes.tolist(),
        **dict(zip(MEASURED, numbers, strict=True)),
        "failed": plan.members[report.failed].tolist(),
        "aggregate_norm": report.aggregate_norm,
    }
    return record if plan.note is None else record | {"note": dict(plan.note)}
