"""The only training loop: plan, train, aggregate, evaluate, observe, one round after another."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from fedtempo.checks import InputError, Integers, Vector
from fedtempo.engine.clients import Arrays, Clients, Conditions, Start
from fedtempo.engine.settings import StopSettings, TrainingSettings
from fedtempo.fleet import Fleet
from fedtempo.learning.aggregation import Aggregator
from fedtempo.learning.trainer import Evaluation, Parameters
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
from fedtempo.state import read_state, write_state

HOPELESS = 1000.0  # times the loss of w₀, or its size above it: no run comes back from there
SMALL_LOSS = 0.01  # that of w₀ counts as so much at least
QUESTIONS = 100  # that a policy may ask before it plans a round


class DivergedError(ArithmeticError):
    """Training left the numbers; the message names the round, ``records`` hold what came before."""

    records: tuple[dict[str, Any], ...] = ()


class Loop:
    """One run: a policy, a model and those who train it, under their clock.

    ``rounds`` yields one record for each round and one at the end. Between rounds, ``state`` and ``restore`` carry the
    run over to another process, which then yields what this one would have; for that the policy needs both as well.
    """

    def __init__(
        self,
        *,
        clients: Clients,
        initial: Parameters,
        fleet: Fleet,
        policy: Policy,
        training: TrainingSettings,
        stop: StopSettings,
        seed: int,
    ) -> None:
        """Start at w₀, at time 0."""
        self.clients, self.fleet, self.policy = clients, fleet, policy
        self.training, self.stop, self.seed = training, stop, seed
        memory = training.server_memory or policy.server_memory
        self.aggregator = Aggregator(
            fleet.data_share, momentum=training.server_momentum, memory=memory, bits=policy.memory_bits
        )
        self.initial = initial
        self.model = self.initial.copy()
        first = clients.evaluate(self.initial)
        self.initial_loss = math.inf if first is None else first.loss
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
            "loss": None if self.last is None or not math.isfinite(self.last.loss) else self.last.loss,
            "accuracy": _accuracy(self.last),
            "time_to_loss": self.reached["loss"],
            "time_to_accuracy": self.reached["accuracy"],
        }

    @property
    def resumable(self) -> bool:
        """Whether the policy can be carried over too."""
        return self.policy.state is not None

    def state(self) -> tuple[dict[str, Any], Arrays]:
        """Return all that a resumed run needs: JSON values, and arrays."""
        values = {name: getattr(self, name) for name in STATE} | {
            "initial_loss": self.initial_loss,
            "last": None if self.last is None else [self.last.loss, self.last.accuracy],
        }
        parts = {
            "server_": self.aggregator.state(),
            "clients_": self.clients.state(),
            "policy_": write_state(self.policy.state),
        }
        models = {"model": self.model, "initial": self.initial}  # who resumes may not know the one it started from
        return values, models | {start + k: v for start, part in parts.items() for k, v in part.items()}

    def restore(self, values: dict[str, Any], arrays: Arrays) -> None:
        """Take up what ``state`` returned."""
        for name in STATE:
            setattr(self, name, values[name])
        self.last = None if values["last"] is None else Evaluation(*values["last"])
        self.model = arrays["model"]  # type: ignore[assignment]
        self.initial = arrays.get("initial", self.initial)  # type: ignore[assignment]
        self.initial_loss = values.get("initial_loss", self.initial_loss)
        for start, part in (("server_", self.aggregator), ("clients_", self.clients)):
            part.restore({k.removeprefix(start): v for k, v in arrays.items() if k.startswith(start)})
        learned = {k.removeprefix("policy_"): v for k, v in arrays.items() if k.startswith("policy_")}
        self.policy.state = read_state(type(self.policy.state), learned)
        self._check_end()  # which may be another now
        if self.ended is not None:
            self.last = self.clients.evaluate(self.model) or self.last

    def _round(self) -> dict[str, Any]:
        chosen = self._plan(self.clients.look(self._start()))
        start = self._start(chosen.step_factor)
        if isinstance(chosen, BufferedPlan):
            done = self.clients.train_some(chosen, start)
        else:
            done = self.clients.train(chosen, start)
        plan, failed = done.plan, done.failed
        if chosen.forget is not None:
            self.aggregator.forget(chosen.forget)
        step = self.aggregator.apply(
            self.model,
            plan.members[~failed],
            done.result.update[~failed],
            plan.weights_of(~failed),
            start.step_size,
            done.schedule[~failed],
            follow_memory=chosen.follow_memory,
        )
        self.model, residual_norm = step.model, np.full(len(failed), np.nan)
        residual_norm[~failed] = step.residual_norm
        self._advance(plan, done.seconds)
        evaluation = self._evaluate(plan, done.seconds)
        report = RoundReport(
            plan=plan,
            round_index=self.round_index - 1,
            round_time=done.seconds,
            compute_time=done.compute_time,
            upload_time=done.upload_time,
            step_size=done.schedule,
            local_steps=done.local_steps,
            largest_gradient_norm=done.result.largest_gradient_norm,
            mean_gradient_norm=done.result.mean_gradient_norm,
            update_norm=done.result.update_norm,
            mean_loss=done.result.mean_loss,
            failed=failed,
            residual_norm=residual_norm,
            aggregate_norm=step.aggregate_norm,
            direction_norm=step.direction_norm,
            loss=None if evaluation is None else evaluation.loss,
            accuracy=_accuracy(evaluation),
        )
        self._check_numbers(report)
        self.policy.observe(report)
        return _record(self.time, report, done.step_size)

    def _start(self, step_factor: float = 1.0) -> Start:
        return Start(
            model=self.model,
            round_index=self.round_index,
            rounds_done=self.rounds_done,
            time=self.time,
            step_size=step_factor * self.training.step_size_of(self.round_index),
        )

    def _plan(self, now: Conditions) -> RoundPlan | BufferedPlan:
        """Let the policy plan, and answer its probes."""
        answers: Vector | None = None
        probes: list[Probe] = []
        rng = stream(self.seed, "policy", self.round_index)
        for _ in range(QUESTIONS):
            context = RoundContext(
                round_index=self.round_index, time=self.time, step_size=self.training.step_size_of(self.round_index),
                local_steps=self.training.local_steps, rng=rng, available=now.available,
                compute_time=now.compute_time, upload_time=now.upload_time, answers=answers,
            )  # fmt: skip
            plan = self.policy.plan(context)
            if isinstance(plan, RoundPlan | BufferedPlan):
                self._check_plan(plan, probes)
                return plan
            if isinstance(plan, Restart):
                self.model, self.round_index, self.last = self.initial.copy(), 0, None
                self.aggregator.reset()
                now = self.clients.start_again()
                answers, probes, rng = None, [], stream(self.seed, "policy", 0)
            elif isinstance(plan, Probe):
                self._check_clients("clients", plan.clients)
                answers = self.clients.ask(plan, self._start())
                probes.append(plan)
            else:
                raise InputError(
                    name="plan",
                    rule="return a BufferedPlan, a RoundPlan, a Probe or a Restart",
                    got=f"{type(plan).__name__}",
                )
        raise InputError(
            name="a policy", rule=f"plan a round after at most {QUESTIONS} probes and restarts", got="more"
        )

    def _check_plan(self, plan: RoundPlan | BufferedPlan, probes: list[Probe]) -> None:
        if isinstance(plan, BufferedPlan):
            self._check_buffered(plan, probes)
            return
        if flying := len(self.clients.in_flight):
            raise InputError(name="a RoundPlan", rule="wait until nobody is in flight", got=f"{flying} who are")
        self._check_clients("members", plan.members)
        for computed in [probe.clients for probe in probes if probe.ask == "update_norm"][-1:]:
            if not (plan.local_steps is None and plan.step_size is None and plan.step_factor == 1):
                raise InputError(
                    name="local_steps and step_size",
                    rule="be None, step_factor 1 after a probe of update norms",
                    got="a change",
                )
            if not np.isin(plan.members, computed).all():
                raise InputError(
                    name="members", rule="be among the clients that the probe asked to compute", got="others"
                )
        if plan.bandwidth is not None:
            total, cap = self.fleet.total_bandwidth, self.fleet.bandwidth_cap
            if plan.bandwidth.sum() > total * (1 + 1e-9):
                raise InputError(name="bandwidth", rule=f"add up to {total:g} at most", got=f"{plan.bandwidth.sum():g}")
            if cap is not None and (plan.bandwidth > cap[plan.members] * (1 + 1e-9)).any():
                raise InputError(name="bandwidth", rule="keep to the caps of the members", got="more")

    def _check_buffered(self, plan: BufferedPlan, probes: list[Probe]) -> None:
        self._check_clients("start", plan.start)
        if self.fleet.bandwidth_cap is not None:
            raise InputError(
                name="a BufferedPlan",
                rule="have a link without caps",
                got="a fleet with bandwidth_cap",
                remedy="leave it out",
            )
        if probes:
            raise InputError(name="a BufferedPlan", rule="come without a probe", got="one before it")
        if not (plan.start.size or len(self.clients.in_flight)):
            raise InputError(name="start", rule="name somebody where nobody is in flight", got="nobody")

    def _check_clients(self, name: str, clients: Integers) -> None:
        if clients.size and clients.max() >= len(self.fleet):
            raise InputError(
                name=name, rule=f"lie below {len(self.fleet)}, the number of clients", got=f"{clients.max()}"
            )
        flying = self.clients.in_flight
        if len(flying) and (busy := np.intersect1d(clients, flying)).size:
            raise InputError(name=name, rule="not be in flight", got=f"{str(busy.tolist())[:60]}")

    def _advance(self, plan: RoundPlan, seconds: float) -> None:
        self.time += seconds
        self.rounds_done += 1
        self.round_index += 1
        if plan.phase != "train":
            self.pilot_rounds += 1
            self.pilot_time += seconds

    def _evaluate(self, plan: RoundPlan, seconds: float) -> Evaluation | None:
        due = self.training.looks_after(self.round_index, self.time - seconds, self.time)
        if not (due or plan.evaluate or self._limit_reached() is not None):
            return None
        self.last = self.clients.evaluate(self.model)
        if plan.phase == "train" and self.last is not None:
            spent, stop = self.time - self.pilot_time, self.stop
            if stop.target_loss is not None and self.reached["loss"] is None and self.last.loss <= stop.target_loss:
                self.reached["loss"] = spent
            enough = stop.target_accuracy is not None and self.last.accuracy >= stop.target_accuracy
            if enough and self.reached["accuracy"] is None:
                self.reached["accuracy"] = spent
        return self.last

    def _check_numbers(self, report: RoundReport) -> None:
        said = None
        first = self.initial_loss
        if report.loss is not None and not report.loss <= first + (HOPELESS - 1) * max(abs(first), SMALL_LOSS):
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


STATE = ("rounds_done", "round_index", "time", "pilot_rounds", "pilot_time", "reached")


def _accuracy(evaluation: Evaluation | None) -> float | None:
    """Return it where somebody told it."""
    return None if evaluation is None or math.isnan(evaluation.accuracy) else evaluation.accuracy


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
        "local_steps": report.local_steps.tolist(),
        **dict(zip(MEASURED, numbers, strict=True)),
        "failed": plan.members[report.failed].tolist(),
        "aggregate_norm": report.aggregate_norm,
    }
    return record if plan.note is None else record | {"note": dict(plan.note)}
