"""Real clients: Flower nodes that train and upload under the wall clock."""

import math
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from logging import INFO
from typing import Any

import numpy as np
import numpy.typing as npt
from flwr.app import ArrayRecord, MessageType
from flwr.supercore import log

from fedtempo.checks import Integers, Vector
from fedtempo.engine.clients import Arrays, Conditions, Outcome, Start
from fedtempo.engine.settings import TrainingSettings
from fedtempo.fleet import Fleet
from fedtempo.flower.link.shaped import Link, Upload
from fedtempo.flower.strategy.evaluation import EVALUATION_LOSSES, averaged, loss_of
from fedtempo.flower.strategy.judge import Job, Judge
from fedtempo.flower.strategy.layout import Layout
from fedtempo.flower.strategy.messages import (
    ARRAYS,
    ASK,
    BANDWIDTH,
    CLIENT,
    COHORT,
    COHORT_SIZE,
    FETCH,
    KEEP,
    MEASURED_NAMES,
    ROUND,
    ROUND_INDEX,
    STEP_SIZE,
    STEPS,
)
from fedtempo.flower.strategy.messenger import POLL_SECONDS, Messenger, Reply
from fedtempo.flower.strategy.roster import Newcomers
from fedtempo.learning.trainer import Evaluation, LocalResult, Parameters, norms
from fedtempo.policies.policy import BufferedPlan, Probe, RoundPlan
from fedtempo.theory.bandwidth import LinkMode, allocate_to_one_cohort

PROBE_SHARE = 0.5  # of the deadline, to answer what a policy asks; the rest is for those who are chosen then
SHORTEST_UPLOAD = 1e-3  # s
BUFFER = "buffer:"  # before the names of buffers, in the state
MOST_ROUNDS_OF_NOBODY = 5  # one after another in which so many different clients failed, or all who are there: an end


class FlowerClients:
    """The fleet of a real run."""

    repeatable = False

    def __init__(
        self,
        *,
        messenger: Messenger,
        layout: Layout,
        fleet: Fleet,
        training: TrainingSettings,
        evaluate: Callable[[Parameters, int], Evaluation | None],
        config: Mapping[str, Any],
        deadline: float,
        link: Link | None = None,
        newcomers: Newcomers | None = None,
    ) -> None:
        """Start with nobody in flight."""
        self.messenger, self.layout, self.fleet, self.training = messenger, layout, fleet, training
        self._evaluate, self.config, self.deadline, self.link = evaluate, dict(config), deadline, link
        self.newcomers = newcomers
        self.flying: dict[str, Job] = {}  # by the id of the message
        self.lost: list[int] = []  # in flight when an earlier process died
        self.judge = Judge(layout)
        self.round = 0  # that is under way, or was the last
        self.looked = self.began = self.ended = 0.0  # on the monotonic clock: when work on the round and its time began
        self.metrics: dict[str, float] = {}  # of the last round: what clients told of their own, on average
        self.rounds_of_nobody, self.failing = 0, set[int]()  # since an update was taken: rounds, and who failed in them
        self.mode: LinkMode = training.link  # of the last uploads
        self.link_free = -math.inf  # when the last upload ended, on the link's clock
        self.kept: dict[int, dict[str, float]] = {}  # what clients measured that keep an update until it is fetched

    @property
    def in_flight(self) -> Integers:
        """Who has started and is still to arrive."""
        return np.array([*(job.client for job in self.flying.values()), *self.lost], dtype=np.int64)

    def look(self, start: Start) -> Conditions:
        """Tell who is there; the clock of the round starts.

        While clients are in flight it goes on: they do, too, when the server evaluates or saves between rounds.
        """
        self.round, self.looked, self.kept = start.rounds_done + 1, time.monotonic(), {}
        self.began = self.ended if self.flying else self.looked
        while not (now := self._conditions()).available.any() and not len(self.in_flight):  # type: ignore[union-attr]
            if time.monotonic() > self.looked + self.deadline:
                raise RuntimeError(f"some node must be connected, got none for {self.deadline:g} s{self._others()}")
            time.sleep(POLL_SECONDS)
        return now

    def ask(self, probe: Probe, start: Start) -> Vector:
        """Ask for losses, or for the norms of updates that clients keep."""
        clients, seconds = probe.clients.tolist(), PROBE_SHARE * self.deadline
        arrays = self.layout.pack(start.model)
        if probe.ask == "loss":
            sent = self.messenger.send(clients, MessageType.EVALUATE, arrays, [self._config(start, c) for c in clients])
            replies = self.messenger.collect(sent, seconds)
            return np.array([_loss(replies.get(client)) for client in clients])
        jobs = self._jobs(probe.clients, None, start)
        configs = [self._config(start, job.client, job) | {ASK: KEEP} for job in jobs]
        replies = self.messenger.collect(self.messenger.send(clients, MessageType.TRAIN, arrays, configs), seconds)
        self.kept = {client: reply.numbers() for client, reply in replies.items() if reply.error is None}
        for client, numbers in self.kept.items():
            if numbers.get("compute-seconds", 0.0) > replies[client].at - self.looked:
                del numbers["compute-seconds"]  # nobody computes for longer than it takes to answer
        return np.array([self.kept.get(client, {}).get("update-norm", np.nan) for client in clients])

    def train(self, plan: RoundPlan, start: Start) -> Outcome:
        """Send all members their work, and wait for them until the deadline."""
        jobs = self._jobs(plan.members, plan, start)
        own_shares = plan.bandwidth is not None or self.fleet.bandwidth_cap is not None
        sent = self._send(jobs, start, "paper" if own_shares else self.training.link, at_once=True)
        limit = self.deadline if plan.deadline is None else min(plan.deadline, self.deadline)
        replies = self.messenger.collect(
            {message: job.client for message, job in sent.items()}, self.began + limit - time.monotonic()
        )
        for job in jobs:
            self._take(job, replies.get(job.client))
        self.judge.refuse_absurd(jobs)
        return self._outcome(plan, jobs)

    def train_some(self, plan: BufferedPlan, start: Start) -> Outcome:
        """Send some clients their work, and wait for the first updates of all that are in flight."""
        jobs = self._jobs(plan.start, plan, start)
        for job, weight in zip(jobs, plan.weights.tolist(), strict=True):
            job.weight, job.version = weight, start.round_index
        self.flying |= self._send(jobs, start, "shared")
        landed = [
            Job(client, 1.0, 1, start.step_size, start.step_size, start.model, 0.0, failure="lost")
            for client in self.lost
        ]
        self.lost, arrivals, unjudged = [], 0, list[Job]()
        while self.flying and arrivals < plan.wait_for:
            now = time.monotonic()
            next_end = min(job.expires for job in self.flying.values())
            sent = {message: job.client for message, job in self.flying.items()}
            found: dict[str, Reply | None] = {
                reply.message_id: reply for reply in self.messenger.arrived(sent, max(next_end - now, 0.0))
            }
            late = [message for message, job in self.flying.items() if job.expires <= time.monotonic()]
            self.messenger.forget(late)
            for message, reply in (dict.fromkeys(late) | found).items():
                job = self.flying.pop(message)
                self._take(job, reply)
                landed.append(job)
                unjudged += [] if job.update is None else [job]
            if self.judge.can_judge(len(unjudged)) or not self.flying:
                self.judge.refuse_absurd(unjudged)
                arrivals += sum(job.update is not None for job in unjudged)
                unjudged = []
        staleness = [start.round_index - job.version for job in landed]
        arrived = RoundPlan(
            members=np.array([job.client for job in landed], dtype=np.int64),
            weights=np.array([job.weight for job in landed]) * (1.0 + np.array(staleness)) ** -plan.staleness_exponent,
            note={**(plan.note or {}), "staleness": staleness},
        )
        return self._outcome(arrived, landed)

    def start_again(self) -> Conditions:
        """Forget who is in flight; their replies are not asked for any longer."""
        self.messenger.forget(self.flying)
        self.flying, self.lost, self.kept, self.judge = {}, [], {}, Judge(self.layout)
        self.layout.start_again()
        return self._conditions()

    def evaluate(self, model: Parameters) -> Evaluation | None:
        """Return how good a model is, by whatever the user has chosen."""
        return self._evaluate(model, self.round)

    def state(self) -> Arrays:
        """Return who is in flight: a new process reports them as lost."""
        buffers = {BUFFER + name: values for name, values in self.layout.buffers.items()}
        return {"in_flight": self.in_flight, **self.judge.state(), **buffers}

    def restore(self, arrays: Arrays) -> None:
        """Take it up."""
        self.flying, self.lost = {}, arrays["in_flight"].tolist()
        self.judge.restore(arrays)
        self.layout.buffers = {name: np.asarray(arrays[BUFFER + name], np.float64) for name in self.layout.buffers}
        log(INFO, "the run goes on from its checkpoint")

    def _others(self) -> str:
        """Say who is there instead of the nodes that are known."""
        others = sorted(set(self.messenger.grid.get_node_ids()) - set(self.messenger.client_of))
        known = sorted(self.messenger.client_of)
        return f"; nodes {others} are there, but the clients of this run are nodes {known}" if others else ""

    def _conditions(self) -> Conditions:
        for node, client in (self.newcomers.take() if self.newcomers else {}).items():
            self.messenger.assign(node, client)
        idle = self.messenger.online()
        idle[self.in_flight] = False
        return Conditions(available=idle)

    def _jobs(self, clients: Integers, plan: RoundPlan | BufferedPlan | None, start: Start) -> list[Job]:
        steps = np.full(len(clients), self.training.local_steps)
        sizes = np.full(len(clients), start.step_size)
        if plan is not None and plan.local_steps is not None:
            steps = np.broadcast_to(plan.local_steps, steps.shape)
        if isinstance(plan, RoundPlan) and plan.step_size is not None:
            sizes = np.broadcast_to(plan.step_size, sizes.shape)
        shares = self._shares(clients, plan if isinstance(plan, RoundPlan) else None, steps)
        return [
            Job(*values, start.step_size, start.model, time.monotonic() + self.deadline)
            for values in zip(clients.tolist(), shares.tolist(), steps.tolist(), sizes.tolist(), strict=True)
        ]

    def _shares(self, clients: Integers, plan: RoundPlan | None, steps: npt.NDArray[Any]) -> Vector:
        """Return the share of the bandwidth that each upload is to have: of a round by the mode of the link."""
        total, fleet = self.fleet.total_bandwidth, self.fleet
        if plan is not None and plan.bandwidth is not None:
            return plan.bandwidth
        if plan is not None and self.training.link == "paper" and len(clients):
            ready = fleet.compute_time[clients] * (steps / self.training.local_steps)
            cap = None if fleet.bandwidth_cap is None else fleet.bandwidth_cap[clients]
            return allocate_to_one_cohort(ready, fleet.upload_time[clients], total, cap)[1]
        if plan is not None and self.training.link == "equal":
            alike = np.full(len(clients), total / max(len(clients), 1))
            return alike if fleet.bandwidth_cap is None else np.minimum(alike, fleet.bandwidth_cap[clients])
        return np.full(len(clients), total)

    def _send(self, jobs: list[Job], start: Start, mode: LinkMode, *, at_once: bool = False) -> dict[str, Job]:
        """Allot the link, and send each member the model, or ask for what it keeps."""
        clients = [job.client for job in jobs]
        self.mode = mode
        if self.link is not None and jobs:
            self.link.allot(clients, mode, [job.share for job in jobs] if mode == "paper" else None)
        fetched = [job for job in jobs if job.client in self.kept]
        trained = [job for job in jobs if job.client not in self.kept]
        cohort: dict[str, Any] = {COHORT: secrets.token_hex(8), COHORT_SIZE: len(trained)} if at_once else {}
        for job in jobs:
            job.sent, job.fetched = time.monotonic(), job.client in self.kept
        sent: dict[str, Job] = {}
        for some, arrays, extra in ((fetched, None, {ASK: FETCH}), (trained, self.layout.pack(start.model), cohort)):
            configs = [self._config(start, job.client, job) | extra for job in some]
            ids = self.messenger.send([job.client for job in some], MessageType.TRAIN, arrays, configs)
            sent |= dict(zip(ids, some, strict=True))
        return sent

    def _config(self, start: Start, client: int, job: Job | None = None) -> dict[str, Any]:
        config = self.config | {ROUND: start.rounds_done + 1, ROUND_INDEX: start.round_index, CLIENT: client}
        if job is not None:
            config |= {STEPS: job.steps, STEP_SIZE: job.step_size, BANDWIDTH: job.share}
        return config

    def _take(self, job: Job, reply: Reply | None) -> None:
        """Note what a client sent; refuse what must not reach the model."""
        if reply is None:
            job.failure = f"no reply within {time.monotonic() - job.sent:.3g} s"
            return
        job.arrived = reply.at
        if reply.error is not None:
            job.failure = reply.error
            return
        job.numbers = (self.kept[job.client] if job.fetched else {}) | reply.numbers()
        self.judge.read(job, reply.content.array_records.get(ARRAYS, ArrayRecord()))

    def _check_somebody_answered(self, jobs: list[Job]) -> None:
        if not jobs:
            return
        if any(job.update is not None for job in jobs):
            self.rounds_of_nobody, self.failing = 0, set()
            return
        self.rounds_of_nobody += 1
        self.failing |= {job.client for job in jobs}
        enough = min(int(self.messenger.online().sum()), MOST_ROUNDS_OF_NOBODY)
        if self.rounds_of_nobody >= MOST_ROUNDS_OF_NOBODY and len(self.failing) >= enough:
            raise RuntimeError(
                f"some client must answer, got failures alone in {self.rounds_of_nobody} rounds one after another; the "
                f"last from client {jobs[-1].client}: {jobs[-1].failure}"
            )

    def _outcome(self, plan: RoundPlan, jobs: list[Job]) -> Outcome:
        seconds = self._seconds(jobs)
        self._check_somebody_answered(jobs)
        uploads = self._uploads(jobs)
        failed = np.array([job.update is None for job in jobs], dtype=bool)
        update = np.zeros((len(jobs), self.layout.size), dtype=np.float32)
        for row, job in zip(update, jobs, strict=True):
            if job.update is not None:
                row[:] = job.update

        def told(name: str) -> Vector:  # negative: not told, or by one who was refused
            return np.array([-1.0 if job.update is None else float(job.numbers.get(name, -1.0)) for job in jobs])

        work = np.array([job.steps / self.training.local_steps for job in jobs])
        seconds_told = np.array([job.seconds_told() for job in jobs])
        compute_time = np.where(seconds_told >= 0, seconds_told / work, self.fleet.compute_time[plan.members])
        upload_time = self.fleet.upload_time[plan.members].copy()
        served = self._served(uploads) if self.link else _without_computing(jobs, compute_time * work)
        for number, job in enumerate(jobs):
            if job.client in served:
                upload_time[number] = served[job.client] * job.share
        own = {job.client: job.numbers for job in jobs if job.update is not None}
        self.metrics = averaged(own, self.fleet, but_for=MEASURED_NAMES)
        self.layout.blend(plan.weights[~failed], [job.buffers for job in jobs if job.update is not None])
        # Who does not measure gradients walked at least so far on average.
        least = norms(update) / np.array([job.path for job in jobs])
        largest, mean = told("largest-gradient-norm"), told("mean-gradient-norm")
        believed = self.judge.believe(np.maximum(largest, mean))
        result = LocalResult(
            update=update,
            largest_gradient_norm=np.where(believed & (largest >= mean), largest, least),
            mean_gradient_norm=np.where(believed & (mean >= 0), mean, least),
            mean_loss=np.array([loss_of(job.numbers) for job in jobs]),
        )
        return Outcome(
            plan=replace(plan, note=self._note(plan, jobs, uploads)),
            result=result,
            step_size=np.array([job.step_size for job in jobs]),
            schedule=np.array([job.schedule for job in jobs]),
            local_steps=np.array([job.steps for job in jobs], dtype=np.int64),
            compute_time=compute_time,
            upload_time=upload_time,
            failed=failed,
            seconds=seconds,
        )

    def _seconds(self, jobs: Sequence[Job]) -> float:
        """Return what the round took, but for the time in which all was there already and the server was busy."""
        self.ended = time.monotonic()
        waited_for = [job for job in jobs if job.sent]  # others were lost with an earlier process
        ready = max((job.arrived or self.ended for job in waited_for), default=self.looked)
        return self.ended - self.began - max(self.looked - max(ready, self.began), 0.0)

    def _uploads(self, jobs: Sequence[Job]) -> dict[int, Upload]:
        """Return the uploads of those who answered; the others lose their shares, which the next cohort needs."""
        if self.link is None:
            return {}
        found = self.link.measured([job.client for job in jobs])
        return {job.client: found[job.client] for job in jobs if job.arrived is not None and job.client in found}

    def _served(self, uploads: Mapping[int, Upload]) -> dict[int, float]:
        """Return the seconds of each upload, on a shared link without those that it waited for others to end."""
        served = {}
        for client, upload in sorted(uploads.items(), key=lambda item: item[1].end):
            began = max(upload.start, self.link_free) if self.mode == "shared" else upload.start
            served[client] = max(upload.end - began, 0.0) or upload.end - upload.start
            self.link_free = upload.end
        return served

    def _note(self, plan: RoundPlan, jobs: list[Job], uploads: Mapping[int, Upload]) -> dict[str, Any] | None:
        """Return for the records what a simulated run has no use for."""
        note = dict(plan.note or {})
        failures = {str(job.client): job.failure for job in jobs if job.failure is not None}
        if failures:
            note["failures"] = failures
        if uploads:
            note["uploads"] = {
                str(job.client): {
                    "share": job.share,
                    "seconds": uploads[job.client].end - uploads[job.client].start,
                    "end": uploads[job.client].end - self.began,
                    "bytes": uploads[job.client].size,
                }
                for job in jobs
                if job.client in uploads
            }
        return note or None


def _loss(reply: Reply | None) -> float:
    return math.nan if reply is None or reply.error is not None else loss_of(reply.numbers(), EVALUATION_LOSSES)


def _without_computing(jobs: Sequence[Job], computing: Vector) -> dict[int, float]:
    """Return what is left of the time from message to reply, where no link measures: the upload, and the engine."""
    return {
        job.client: max(job.arrived - job.sent - (0.0 if job.fetched else seconds), SHORTEST_UPLOAD)
        for job, seconds in zip(jobs, computing.tolist(), strict=True)
        if job.arrived is not None and job.update is not None
    }
