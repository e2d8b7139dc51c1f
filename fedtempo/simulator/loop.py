"""The only training loop: plan, time, train, aggregate, evaluate, observe, one round after another."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from fedtempo.checks import InputError, Integers, Vector
from fedtempo.data.federation import FederatedData
from fedtempo.fleet import Fleet
from fedtempo.learning.aggregation import Aggregator
from fedtempo.learning.batches import Batches
from fedtempo.learning.trainer import Evaluation, LocalResult, LocalWork, Trainer
from fedtempo.policies.policy import Policy, Restart, RoundContext, RoundPlan, RoundReport
from fedtempo.randomness import stream
from fedtempo.simulator.channel import Channel, ChannelState
from fedtempo.simulator.clock import RoundTiming, time_round
from fedtempo.simulator.settings import StopSettings, TrainingSettings

HOPELESS = 1000.0  # times the loss of w₀: no run comes back from there


class DivergedError(ArithmeticError):
    """Training left the numbers; the message names the round."""


class Simulation:
    """One run: a policy, a model and a fleet under a simulated clock.

    ``rounds`` yields one record for each round and one at the end. Between rounds, ``state`` and ``restore`` carry the
    run over to another process, which then yields what this one would have.
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
        self.aggregator = Aggregator(fleet.data_share, momentum=training.server_momentum, memory=training.server_memory)
        self.initial = trainer.initial_model(stream(seed, "initial model"))
        self.model = self.initial.copy()
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
            yield self._round()
            self._check_end()
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

    def state(self) -> tuple[dict[str, Any], dict[str, npt.NDArray[np.generic]]]:
        """Return all that a resumed run needs: JSON values, and arrays."""
        policy_state: dict[str, Any] = getattr(self.policy, "state", dict)()
        values = {name: getattr(self, name) for name in STATE} | {
            "policy": policy_state,
            "last": None if self.last is None else [self.last.loss, self.last.accuracy],
        }
        return values, {"model": self.model, **{f"server_{k}": v for k, v in self.aggregator.state().items()}}

    def restore(self, values: dict[str, Any], arrays: dict[str, npt.NDArray[np.generic]]) -> None:
        """Take up what ``state`` returned."""
        for name in STATE:
            setattr(self, name, values[name])
        self.last = None if values["last"] is None else Evaluation(*values["last"])
        self.model = arrays["model"]  # type: ignore[assignment]
        self.aggregator.restore({k.removeprefix("server_"): v for k, v in arrays.items() if k.startswith("server_")})
        if values["policy"]:
            self.policy.restore(values["policy"])  # type: ignore[attr-defined]

    def _round(self) -> dict[str, Any]:
        now = self.channel.at(self.rounds_done, self.time)
        plan, probed, probe_time = self._plan(now)
        steps = self._for_each(plan, plan.local_steps, self.training.local_steps).astype(np.int64)
        sizes = self._for_each(plan, plan.step_size, self.training.step_size_of(self.round_index))
        result = self._train(plan.members, steps, sizes) if probed is None else _select(probed, plan.members)
        timing = self._time(plan, now, steps if probed is None else 0 * steps)
        failed = timing.late if now.available is None else timing.late | ~now.available[plan.members]
        self.model, aggregate_norm = self.aggregator.apply(
            self.model, plan.members[~failed], result.update[~failed], plan.weights[~failed]
        )
        elapsed = probe_time + timing.round_time
        self._advance(plan, elapsed)
        evaluation = self._evaluate(plan)
        report = RoundReport(
            plan=plan,
            round_index=self.round_index - 1,
            round_time=elapsed,
            compute_time=np.where(failed, np.nan, now.compute_time[plan.members]),
            upload_time=np.where(failed, np.nan, now.upload_time[plan.members]),
            largest_gradient_norm=np.where(failed, np.nan, result.largest_gradient_norm),
            mean_gradient_norm=np.where(failed, np.nan, result.mean_gradient_norm),
            update_norm=np.where(failed, np.nan, result.update_norm),
            mean_loss=np.where(failed, np.nan, result.mean_loss),
            failed=failed,
            aggregate_norm=aggregate_norm,
            loss=None if evaluation is None else evaluation.loss,
            accuracy=None if evaluation is None else evaluation.accuracy,
        )
        self._check_numbers(report)
        self.policy.observe(report)
        return _record(self.time, report, sizes)

    @staticmethod
    def _for_each(plan: RoundPlan, chosen: npt.ArrayLike | None, usual: float) -> Vector:
        return np.broadcast_to(np.asarray(usual if chosen is None else chosen, dtype=np.float64), plan.members.shape)

    def _plan(self, now: ChannelState) -> tuple[RoundPlan, tuple[Integers, LocalResult] | None, float]:
        """Let the policy plan, and answer its probes; return the plan, updates that a probe left, and its seconds."""
        answers, probed, seconds = None, None, 0.0
        rng = stream(self.seed, "policy", self.round_index)
        while True:
            context = RoundContext(
                round_index=self.round_index, time=self.time, step_size=self.training.step_size_of(self.round_index),
                local_steps=self.training.local_steps, rng=rng, available=now.available,
                compute_time=now.compute_time, upload_time=now.upload_time, answers=answers,
            )  # fmt: skip
            plan = self.policy.plan(context)
            if isinstance(plan, RoundPlan):
                return plan, probed, seconds
            if isinstance(plan, Restart):
                self.model, self.round_index = self.initial.copy(), 0
                self.aggregator.reset()
                rng = stream(self.seed, "policy", 0)
                continue
            clients, steps = plan.clients, np.full(len(plan.clients), self.training.local_steps)
            if plan.ask == "loss":
                # One pass over the local data counts as so many batches, at the speed of training.
                answers = self.trainer.client_losses(self.model, clients)
                passes = np.diff(self.batches.offsets)[clients] / self.training.batch_size
                seconds += float(self._ready_time(now, clients, passes).max())
            else:
                sizes = np.full(len(clients), self.training.step_size_of(self.round_index))
                result = self._train(clients, steps, sizes)
                answers, probed = result.update_norm, (clients, result)
                seconds += float(self._ready_time(now, clients, steps).max())

    def _train(self, members: Integers, steps: Integers, sizes: Vector) -> LocalResult:
        rows = self.batches.draw(members, self.round_index, int(steps.max(initial=1)))
        work = LocalWork(
            start=np.zeros(len(members), dtype=np.int64), rows=rows, local_steps=steps, step_size=sizes,
            weight_decay=self.training.weight_decay,
        )  # fmt: skip
        return self.trainer.train(self.model[None], work)

    def _ready_time(self, now: ChannelState, members: Integers, steps: npt.NDArray[Any]) -> Vector:
        """Return when members can upload: download, and computing in proportion to their local steps."""
        computing = now.compute_time[members] * (steps / self.training.local_steps)
        download = self.fleet.download_time
        return computing if download is None else computing + download[members]

    def _time(self, plan: RoundPlan, now: ChannelState, steps: npt.NDArray[Any]) -> RoundTiming:
        cap = self.fleet.bandwidth_cap
        return time_round(
            self._ready_time(now, plan.members, steps),
            now.upload_time[plan.members],
            total_bandwidth=self.fleet.total_bandwidth,
            link=self.training.link,
            duplicates=self.training.duplicates,
            counts=plan.counts,
            bandwidth=plan.bandwidth,
            bandwidth_cap=None if cap is None else cap[plan.members],
            deadline=plan.deadline,
        )

    def _advance(self, plan: RoundPlan, seconds: float) -> None:
        self.time += seconds
        self.rounds_done += 1
        self.round_index += 1
        if plan.phase != "train":
            self.pilot_rounds, self.pilot_time = self.rounds_done, self.time

    def _evaluate(self, plan: RoundPlan) -> Evaluation | None:
        if not plan.evaluate and self.round_index % self.training.evaluate_every:
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
        worst = report.loss if report.loss is not None else self.initial_loss
        if not (worst <= HOPELESS * self.initial_loss and math.isfinite(report.aggregate_norm)):
            raise DivergedError(
                f"training diverged in round {self.rounds_done}: the loss is {worst:.3g}, at first it was "
                f"{self.initial_loss:.3g}; use a smaller step_size"
            )

    def _check_end(self) -> None:
        stop, rounds, time = self.stop, self.rounds_done - self.pilot_rounds, self.time - self.pilot_time
        targets = {"loss": stop.target_loss, "accuracy": stop.target_accuracy}
        wanted = [name for name, target in targets.items() if target is not None]
        if wanted and all(self.reached[name] is not None for name in wanted):
            self.ended = "target"
        elif stop.max_rounds is not None and rounds >= stop.max_rounds:
            self.ended = "max_rounds"
        elif stop.max_time is not None and time >= stop.max_time:
            self.ended = "max_time"


STATE = ("rounds_done", "round_index", "time", "pilot_rounds", "pilot_time", "reached", "ended")


def _select(probed: tuple[Integers, LocalResult], members: Integers) -> LocalResult:
    """Return what the probe left of some of the clients that it asked."""
    clients, result = probed
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
    plan, numbers = report.plan, {}
    for name in (
        "compute_time",
        "upload_time",
        "largest_gradient_norm",
        "mean_gradient_norm",
        "update_norm",
        "mean_loss",
    ):
        numbers[name] = [None if math.isnan(x) else x for x in getattr(report, name).tolist()]
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
        **numbers,
        "failed": plan.members[report.failed].tolist(),
        "aggregate_norm": report.aggregate_norm,
    }
    return record if plan.note is None else record | {"note": dict(plan.note)}
