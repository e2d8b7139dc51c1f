"""Whether a policy has the properties that engines rely on: each is tried on small federations, in seconds."""

import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fedtempo.checks import InputError, Vector
from fedtempo.data.federation import FederatedData
from fedtempo.engine.divergence import DivergedError
from fedtempo.engine.loop import Loop
from fedtempo.engine.records import RoundRecord, encode
from fedtempo.engine.settings import StopSettings, TrainingSettings
from fedtempo.fingerprint import name_of
from fedtempo.learning.threads import one_thread
from fedtempo.policies.foreign import UserPolicy
from fedtempo.policies.policy import (
    SERVER_TRAITS,
    BufferedPlan,
    Policy,
    Probe,
    Restart,
    RoundContext,
    RoundPlan,
    RoundReport,
)
from fedtempo.policies.registry import PolicyLike
from fedtempo.simulator.absences import WithAbsences
from fedtempo.simulator.channel import Channel, StaticChannel, UnknownTimes
from fedtempo.simulator.problem import Problem
from fedtempo.simulator.simulation import RunSettings, make_simulation
from fedtempo.tables.table import Table

CLIENTS, COHORT, ROUNDS = 12, 4, 24
DRAWS = 400  # rounds over which mean weights are compared with the data shares
FAILING = 3  # every so many-th member does not report
BIASED = "not by data share: "
HALF_TO_TWICE = 0.5, 2.0  # of 1, between which the weights of a round must add up to
TOO_FAR = 4.0  # standard errors between a mean weight and its data share


@dataclass(frozen=True, slots=True)
class Finding:
    """One property, and whether it holds."""

    name: str
    holds: bool
    seen: str  # what was seen, in words
    biased: bool = False  # it holds, but clients do not count by their data share


@dataclass(frozen=True, slots=True)
class Conformance:
    """Which properties a policy has."""

    policy: str
    findings: tuple[Finding, ...]

    @property
    def holds(self) -> bool:
        """Whether all of them hold."""
        return all(one.holds for one in self.findings)

    def table(self) -> Table:
        """Return one line for each property."""
        words = {(True, False): "holds", (True, True): "biased", (False, False): "FAILS"}
        rows = [(one.name, words[one.holds, one.biased], one.seen) for one in self.findings]
        return Table.from_rows(["property", "", "seen"], rows, title=f"{self.policy}: what engines rely on")

    def _repr_html_(self) -> str | None:
        return self.table()._repr_html_()

    def __str__(self) -> str:
        """Return the table as Markdown."""
        return str(self.table())


@dataclass(frozen=True, kw_only=True, eq=False)
class Trials:
    """Small runs of one policy."""

    policy: PolicyLike
    options: Mapping[str, object]
    data: FederatedData = field(default_factory=lambda: _data(CLIENTS))
    training: Mapping[str, Any] = field(default_factory=dict)
    channel: Callable[[Channel], Channel] = lambda channel: channel

    def loop(self, rounds: int = ROUNDS, *, seed: int = 0, failing: bool = False) -> Loop:
        """Return a run at its start."""
        rng = np.random.default_rng(1)
        compute, upload = rng.exponential(size=(2, self.data.num_clients)) + 0.1
        channel = self.channel(StaticChannel(compute, upload))
        problem = Problem(self.data, compute_time=compute, upload_time=upload, channel=channel)
        usual = {"cohort_size": COHORT, "local_steps": 3, "batch_size": 8, "step_size": 0.03, "schedule": "constant"}
        training = TrainingSettings(**{**usual, "evaluate_every": 8, **self.training})
        settings = RunSettings(
            policy=self.policy, options=self.options, training=training, stop=StopSettings(max_rounds=rounds), seed=seed
        )
        loop = make_simulation(problem, settings)
        if failing:
            loop.policy = _SomeFail(loop.policy)
        return loop

    def records(self, rounds: int = ROUNDS, *, seed: int = 0, failing: bool = False) -> list[RoundRecord]:
        """Return the records of a run."""
        return list(self.loop(rounds, seed=seed, failing=failing).rounds())


class _SomeFail(Policy):
    """A policy that hears of members who did not report."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        for name in SERVER_TRAITS:
            setattr(self, name, getattr(policy, name))

    @property
    def state(self) -> object:
        return self.policy.state

    @state.setter
    def state(self, state: object) -> None:
        self.policy.state = state

    def plan(self, context: RoundContext) -> RoundPlan | BufferedPlan | Probe | Restart:
        return self.policy.plan(context)

    def observe(self, report: RoundReport) -> None:
        failed = report.failed | (np.arange(len(report.failed)) % FAILING == report.round_index % FAILING)
        self.policy.observe(replace(report, failed=failed))


def check_policy(policy: PolicyLike | str, options: Mapping[str, object] | None = None) -> Conformance:
    """Try whether a policy has the properties that engines rely on.

    - ``policy``: a name, ``module:Class``, a class, or a function from fleet to q.
    - ``options``: its options, by name.
    """
    if isinstance(policy, UserPolicy) and not isinstance(policy, type):
        got = f"a {type(policy).__name__} that is there already"
        raise InputError("policy", "be made anew for each trial", got, "give its class")
    trials = Trials(policy=policy, options=options or {})
    with one_thread():
        first = _tried("it can be made and runs", lambda: f"{len(trials.records())} rounds of {CLIENTS} clients")
        findings = [first]
        if first.holds:
            findings += [_tried(name, partial(one, trials)) for name, one in PROPERTIES.items()]
    return Conformance(policy if isinstance(policy, str) else name_of(policy), tuple(findings))


def _tried(name: str, trial: Callable[[], str]) -> Finding:
    """Return what came of a trial: what it says, or what it raised and where."""
    try:
        with np.errstate(all="ignore"):
            seen = trial()
            return Finding(name, holds=True, seen=seen, biased=seen.startswith(BIASED))
    except (_Broken, InputError, DivergedError) as error:
        return Finding(name, holds=False, seen=str(error))
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        return Finding(name, holds=False, seen=f"{error!r} in {Path(place.filename).name}, line {place.lineno}")


class _Broken(Exception):  # noqa: N818
    """A property that does not hold; the message says how."""


def _one_client(trials: Trials) -> str:
    alone = replace(trials, data=_data(1), training={"cohort_size": 1})
    if any(record.members != [0] for record in alone.records() if record.members):
        raise _Broken("a member that is not in the fleet")
    return "rounds of one client"


def _more_drawn_than_there_are(trials: Trials) -> str:
    replace(trials, training={"cohort_size": 3 * CLIENTS}).records()
    return f"K = {3 * CLIENTS} of {CLIENTS} clients"


def _absences(trials: Trials) -> str:
    some = replace(trials, channel=lambda channel: WithAbsences(channel, present_share=0.4, seed=2))
    some.records(2 * ROUNDS)
    return "on average 60 % of the clients are absent"


def _unknown_times(trials: Trials) -> str:
    replace(trials, channel=UnknownTimes).records()
    return "times of a round are known after it alone"


def _failures(trials: Trials) -> str:
    trials.records(failing=True)
    return "a third of the members do not report"


def _repeatable(trials: Trials) -> str:
    once, again = (list(map(encode, trials.records(seed=3))) for _ in range(2))
    if once != again:
        place = next(number for number, pair in enumerate(zip(once, again, strict=True)) if pair[0] != pair[1])
        raise _Broken(f"round {place + 1} of equal runs differs: draw from context.rng alone")
    return "equal seeds give equal runs"


def _resumable(trials: Trials) -> str:
    whole = list(map(encode, trials.records(seed=4)))
    if not trials.loop().resumable:
        return "it has no state: a run that was stopped starts again"
    for after in (1, 2, 5, 11):
        if (gone_on := list(map(encode, _carried_over(trials, after)))) != whole:
            place = next(number for number, pair in enumerate(zip(whole, gone_on, strict=True)) if pair[0] != pair[1])
            raise _Broken(f"gone on after round {after}, round {place + 1} differs: its state leaves something out")
    return "stopped and gone on, runs end with the same bytes"


def _carried_over(trials: Trials, after: int) -> Iterator[RoundRecord]:
    loop, other = trials.loop(seed=4), trials.loop(seed=4)
    for number, record in enumerate(loop.rounds(), 1):
        yield record
        if number == after:
            other.resume(loop.save())
            break
    yield from other.rounds()


def _weights(trials: Trials) -> str:
    quick = replace(trials, training={"local_steps": 1, "step_size": 1e-4, "evaluate_every": DRAWS})
    loop = quick.loop(DRAWS)
    records = [record for record in loop.rounds() if record.trained]
    if len(loop.clients.in_flight):
        return "not compared: updates arrive while others are in flight"
    weights = np.zeros((len(records), CLIENTS))
    for row, record in zip(weights, records, strict=True):
        np.add.at(row, record.members, record.weights)
    if not np.isfinite(weights).all() or (weights < 0).any():
        raise _Broken("weights that are negative or not finite")
    share: Vector = trials.data.data_share
    error = weights.std(axis=0) / len(records) ** 0.5
    far = np.abs(weights.mean(axis=0) - share) > TOO_FAR * error + 1e-6
    if far.any():
        worst = int(np.argmax(np.abs(weights.mean(axis=0) / share - 1)))
        ratio = weights.mean(axis=0)[worst] / share[worst]
        total = weights.sum(axis=1).mean()
        if not HALF_TO_TWICE[0] <= total <= HALF_TO_TWICE[1]:
            raise _Broken(f"the weights of a round add up to {total:.2f} on the mean, far from 1")
        return f"{BIASED}client {worst} counts {ratio:.2f} × its data share: a choice, say so in its description"
    return "unbiased: each client counts by its data share"


PROPERTIES: dict[str, Callable[[Trials], str]] = {
    "a fleet of one client": _one_client,
    "K above N": _more_drawn_than_there_are,
    "absent clients": _absences,
    "unknown times": _unknown_times,
    "members that fail": _failures,
    "equal runs": _repeatable,
    "resume": _resumable,
    "weights": _weights,
}


def _data(clients: int) -> FederatedData:
    """Return noise with labels: clients of unequal sizes, each with all classes."""
    rng = np.random.default_rng(0)
    sizes = 20 + 10 * np.arange(clients)
    samples = int(sizes.sum())
    inputs, offsets = rng.normal(size=(samples + 20, 5)).astype(np.float32), np.append(0, np.cumsum(sizes))
    labels = np.arange(samples + 20) % 3
    return FederatedData(
        inputs=inputs[:samples],
        labels=labels[:samples],
        offsets=offsets,
        test_inputs=inputs[samples:],
        test_labels=labels[samples:],
        num_classes=3,
        input_shape=(5,),
        name="noise",
    )
