"""Asynchronous training: the clock of clients in flight, staleness, and FedBuff on top of both."""

import heapq
from collections import deque

import numpy as np
import pytest

from fedtempo import InputError
from fedtempo.api.simulate import simulate
from fedtempo.data.federation import FederatedData
from fedtempo.data.synthetic import synthetic_data
from fedtempo.engine.records import RECORDS, Header
from fedtempo.engine.run import run_into
from fedtempo.engine.run_folder import RunFolder
from fedtempo.policies.fedbuff import FedBuff
from fedtempo.policies.policy import BufferedPlan, PolicySetting, Probe, Restart, RoundContext, RoundPlan
from fedtempo.simulator.absences import WithAbsences
from fedtempo.simulator.channel import ChannelState, StaticChannel
from support.simulations import goes_on_alike, loop_of

SIZE = 12


@pytest.fixture(scope="module")
def data():
    return synthetic_data(alpha=1.0, beta=1.0, num_clients=SIZE, num_samples=1500, seed=1)


@pytest.fixture(scope="module")
def times():
    return {"compute_time": np.linspace(0.1, 2.0, SIZE), "upload_time": np.linspace(1.5, 0.2, SIZE)}


def run(data, times, policy=FedBuff, *, rounds=6, **more):
    return simulate(data, **times, policy=policy, **{"cohort_size": 3, "local_steps": 5, "max_rounds": rounds} | more)


class Scripted:
    """A policy that returns what it was given, one thing after another, and remembers what it saw."""

    def __init__(self, *plans):
        self.plans, self.available, self.reports = iter(plans), [], []

    def plan(self, context):
        self.available.append(context.available)
        plan = next(self.plans)
        return BufferedPlan(**{"weights": 0.5} | plan) if isinstance(plan, dict) else plan

    def observe(self, report):
        self.reports.append(report)


class Random:
    """A policy that starts some idle clients at random, and waits for some; it remembers what it planned."""

    def __init__(self):
        self.planned = []

    def plan(self, context):
        idle = context.available_clients(SIZE)
        number = int(context.rng.integers(1, 5)) if len(idle) == SIZE else int(context.rng.integers(0, 4))
        start = context.rng.permutation(idle)[:number]
        self.planned.append((start.tolist(), int(context.rng.integers(1, 4))))
        return BufferedPlan(start=start, weights=0.1, wait_for=self.planned[-1][1])

    def observe(self, report):
        pass


class Restless:
    """A channel with other times in each round."""

    def at(self, round_index, time):
        tau, t = np.random.default_rng(round_index).exponential(size=(2, SIZE))
        return ChannelState(np.floor(2 * tau), t)  # some compute in no time, and many are ready together


def replay(planned, channel, total_bandwidth, download_time):
    """Play the plans event by event: computing ends, an upload ends; yield who arrived, and when the last one did.

    A client computes for as long as it takes when it starts, and uploads for as long as it takes when it uploads.
    """
    clock, computing, line, started = 0.0, [], deque(), 0
    for round_index, (start, wait_for) in enumerate(planned):
        state, arrived, sending = channel.at(round_index, clock), set(), None
        for client in start:
            started += 1
            ready = clock + download_time[client] + state.compute_time[client]
            heapq.heappush(computing, (ready, started, client))
        while len(arrived) < wait_for and (computing or line or sending):
            if sending is None and line:
                client = line.popleft()
                sending = clock + state.upload_time[client] / total_bandwidth, client
            elif sending is None or (computing and computing[0][0] <= sending[0]):
                clock, _, client = heapq.heappop(computing)
                line.append(client)
            else:
                clock, client = sending
                arrived.add(client)
                sending = None
        yield arrived, clock


@pytest.mark.parametrize("seed", range(3))
def test_the_clock_is_that_of_a_simulation_event_by_event(data, times, seed):
    policy, download = Random(), np.linspace(0.0, 1.0, SIZE)
    channel = Restless()
    result = run(
        data, times, policy, rounds=60, channel=channel, total_bandwidth=1.7, download_time=download, seed=seed,
        local_steps=1, evaluate_every=60,
    )  # fmt: skip
    expected = list(replay(policy.planned, channel, 1.7, download))
    assert [set(record["members"]) for record in result.records] == [arrived for arrived, _ in expected]
    np.testing.assert_allclose([record["time"] for record in result.records], [clock for _, clock in expected])
    assert max(max(record["note"]["staleness"]) for record in result.records) >= 3, "a case worth playing"


def test_staleness_and_weights_by_hand(data):
    """Client 0 uploads from 1 to 2 s, client 1 from 2 to 4 s, client 2, which starts at 2 s, from 4 to 5 s."""
    times = {"compute_time": [1.0, 1.5, 0.5] + [9.0] * 9, "upload_time": [1.0, 2.0, 1.0] + [9.0] * 9}
    scripted = Scripted(
        {"start": [0, 1], "weights": [0.5, 0.3], "wait_for": 1},
        {"start": [2], "weights": [0.2], "wait_for": 2, "staleness_exponent": 2.0, "note": {"mine": 7}},
    )
    result = run(data, times, scripted, rounds=2, schedule="constant")
    first, second = result.records
    assert (first["time"], first["members"], first["weights"]) == (2.0, [0], [0.5])
    assert first["note"] == {"staleness": [0]}
    assert (second["time"], second["members"], second["weights"]) == (5.0, [1, 2], [0.3 / 4, 0.2])
    assert second["note"] == {"mine": 7, "staleness": [1, 0]}
    assert second["compute_time"] == [1.5, 0.5]
    assert second["failed"] == []
    # Client 1 computed from w₀, with the batches of round 0, as it does in a round with everyone.
    full = run(data, times, "full", rounds=1, schedule="constant").records[0]
    assert second["update_norm"][0] == full["update_norm"][1]
    assert scripted.available[0] is None
    assert np.flatnonzero(~scripted.available[1]).tolist() == [1]


class Together:
    """A policy for synchronous rounds with the cohorts of another run."""

    def __init__(self, records):
        self.records = records

    def plan(self, context):
        record = self.records[context.round_index]
        return RoundPlan(members=record["members"], weights=record["weights"])

    def observe(self, report):
        pass


@pytest.mark.parametrize("server", [{}, {"server_momentum": 0.5, "server_memory": True}])
def test_a_buffer_that_waits_for_everyone_is_a_synchronous_round_on_a_shared_link(data, times, server):
    buffered = run(data, times, options={"concurrency": 3}, **server)
    together = run(data, times, Together(buffered.records), link="shared", **server)
    np.testing.assert_array_equal(buffered.model, together.model)
    for ours, theirs in zip(map(dict, buffered.records), map(dict, together.records), strict=True):
        assert ours.pop("note") == {"staleness": [0, 0, 0]}
        for name in ("time", "round_time"):
            assert ours.pop(name) == pytest.approx(theirs.pop(name))
        assert ours == theirs


@pytest.mark.parametrize("concurrency", [3, 5, 6, 12])
def test_updates_are_as_old_as_the_flight_is_large(data, times, concurrency):
    """Of M clients in flight K arrive in each step, so each takes part in M/K steps on average."""
    result = run(data, times, rounds=300, options={"concurrency": concurrency}, local_steps=1, evaluate_every=300)
    staleness = np.array([record["note"]["staleness"] for record in result.records])
    assert staleness.shape == (300, 3)
    assert staleness.mean() == pytest.approx(concurrency / 3 - 1, abs=0.05)
    for record in result.records:
        np.testing.assert_allclose(record["weights"], (1 + np.array(record["note"]["staleness"])) ** -0.5 / 3)


@pytest.mark.parametrize("sampling", ["weighted", "uniform"])
def test_the_expected_weight_of_a_client_that_is_never_busy_is_its_data_share(small_fleet, sampling):
    setting = PolicySetting(fleet=small_fleet, cohort_size=1, options={"concurrency": 1, "sampling": sampling})
    policy, rng, total, draws = FedBuff(setting), np.random.default_rng(0), np.zeros(4), 4000
    for _ in range(draws):
        plan = policy.plan(RoundContext(round_index=0, time=0.0, step_size=0.1, local_steps=1, rng=rng))
        assert plan.weights[0] == pytest.approx(
            1.0 if sampling == "weighted" else 4 * small_fleet.data_share[plan.start]
        )
        total[plan.start] += plan.weights
        policy.state.in_flight = 0  # it has arrived
    np.testing.assert_allclose(total / draws, small_fleet.data_share, atol=0.04)


class Watched(FedBuff):
    """FedBuff that looks at what it knows and decides."""

    def __init__(self, setting):
        super().__init__(setting)
        self.busy = set()

    def plan(self, context):
        if self.busy:
            assert not context.available[list(self.busy)].any()
        plan = super().plan(context)
        started = set(plan.start.tolist())
        assert started <= set(context.available_clients(SIZE).tolist())
        assert not started & self.busy
        self.busy |= started
        assert len(self.busy) == self.state.in_flight <= self.concurrency
        self.full = len(self.busy) == self.concurrency or len(started) == len(context.available_clients(SIZE))
        return plan

    def observe(self, report):
        super().observe(report)
        assert self.full, "it starts as many as it may"
        assert not report.failed.any()
        assert set(report.plan.members.tolist()) <= self.busy
        self.busy -= set(report.plan.members.tolist())


def absences(times, present_share):
    return WithAbsences(StaticChannel(**times), present_share=present_share, seed=3)


def test_nobody_starts_who_is_absent_or_in_flight(data, times):
    result = run(data, times, Watched, rounds=80, channel=absences(times, 0.1), evaluate_every=80)
    assert {len(record["members"]) for record in result.records} == {1, 2, 3}, "few were available at times"


class Absences:
    """A channel in which some clients are absent."""

    def __init__(self, times, *absent):
        self.times, self.absent = times, absent

    def at(self, round_index, time):
        available = np.ones(SIZE, dtype=bool)
        available[self.absent[round_index]] = False
        return ChannelState(**self.times, available=available)


def test_who_is_absent_at_its_start_fails_takes_no_time_and_does_not_count(data, times):
    scripted = Scripted(
        {"start": [0, 4], "wait_for": 1},
        {"start": [3, 2], "wait_for": 2},
        {"start": [2], "wait_for": 1},
    )
    channel = Absences(times, [0, 4], [3, 5], [2])
    result = run(data, times, scripted, rounds=2, channel=channel)
    assert scripted.reports[0].failed.all()
    assert result.records[0]["round_time"] == 0.0
    assert result.records[0]["update_norm"] == [None, None]
    assert result.records[0]["aggregate_norm"] == 0.0
    assert result.records[1]["failed"] == [3]
    assert result.records[1]["members"] == [3, 2]
    assert result.records[1]["round_time"] == pytest.approx(times["compute_time"][2] + times["upload_time"][2])
    assert result.records[1]["aggregate_norm"] == pytest.approx(0.5 * result.records[1]["update_norm"][1])


def test_a_restart_ends_the_flight(data, times):
    scripted = Scripted(
        {"start": [0, 1, 2], "wait_for": 1}, Restart(), {"start": [0, 1, 2], "wait_for": 1},
        {"start": [], "weights": [], "wait_for": 9}, RoundPlan(members=[5], weights=[0.5]),
    )  # fmt: skip
    first, again, rest, synchronous = run(data, times, scripted, rounds=4).records
    assert again["loss"] == first["loss"]
    assert again["round"] == 0
    assert again["time"] == pytest.approx(2 * first["time"])
    assert scripted.available[2] is None
    assert sorted(first["members"] + rest["members"]) == [0, 1, 2]
    assert scripted.available[4] is None, "all have landed, so a synchronous round may follow"
    assert synchronous["members"] == [5]


def test_a_run_carried_over_at_any_round_goes_on_as_if_nothing_had_happened(data, times):
    server = {"server_momentum": 0.5, "server_memory": True}

    def start():
        return loop_of(data, times, FedBuff, channel=absences(times, 0.7), rounds=8, **server)

    running = start()
    assert sum(len(running.clients.in_flight) for _ in running.rounds()), "there is something to carry over"
    goes_on_alike(start)


class StoppedError(Exception):
    """What a run is stopped with."""


def test_a_run_that_was_stopped_ends_with_the_same_bytes(data, times, tmp_path, monkeypatch):
    monkeypatch.setattr("fedtempo.engine.run.CHECKPOINT_SECONDS", 0.0)
    header = Header(
        experiment="small", preset=None, policy="fedbuff", seed=0, config={"stop": {"max_rounds": 8}},
        data_checksum="none", samples=[1],
    )  # fmt: skip

    def stop(loop, record):
        if record.round == 4:
            raise StoppedError

    def go(folder, progress=lambda loop, record: None):
        loop = loop_of(data, times, FedBuff, rounds=8, options={"concurrency": 7})
        run_into(RunFolder(tmp_path / folder, header), loop, progress)
        return (tmp_path / folder / RECORDS).read_bytes()

    with pytest.raises(StoppedError):
        go("stopped", stop)
    rounds = []
    resumed = go("stopped", lambda loop, record: rounds.append(record.round))
    assert rounds == [5, 6, 7]
    assert resumed == go("whole")


@pytest.mark.parametrize(("clients", "cohort_size"), [(1, 1), (1, 3), (2, 1), (2, 5)])
def test_small_fleets_and_buffers(clients, cohort_size):
    inputs, labels = np.random.default_rng(0).random((20, 3), dtype=np.float32), np.arange(20) % 2
    offsets = np.linspace(0, 20, clients + 1).astype(np.int64)
    data = FederatedData(inputs, labels, offsets, inputs, labels, 2, (3,), "noise")
    result = simulate(data, compute_time=1.0, upload_time=1.0, policy=FedBuff, cohort_size=cohort_size, max_rounds=5)
    assert all(len(record["members"]) == min(clients, cohort_size) for record in result.records)
    if clients == 1:
        assert [record["round_time"] for record in result.records] == [2.0] * 5
        assert all(record["weights"] == [1.0] for record in result.records)


def test_the_loss_falls_and_the_time_of_a_step_too(data, times):
    buffered = run(data, times, rounds=40, seed=1)
    together = run(data, times, rounds=40, seed=1, options={"concurrency": 3})
    assert buffered.records[-1]["loss"] < 0.8 * buffered.records[0]["loss"]
    assert buffered.summary["time"] < together.summary["time"], "computing goes on while others upload"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"concurrency": 2}, "concurrency must be at least cohort_size, 3"),
        ({"concurrency": 4.5}, "concurrency must be a whole number"),
        ({"concurency": 4}, "did you mean 'concurrency'"),
        ({"sampling": "fair"}, "sampling must be one of weighted, uniform"),
        ({"staleness_exponent": -1.0}, "staleness_exponent must be zero or positive"),
    ],
)
def test_bad_options_are_refused(data, times, options, said):
    with pytest.raises(InputError, match=said):
        run(data, times, options=options)


BEGUN = {"start": [0, 1, 2], "wait_for": 1}


@pytest.mark.parametrize(
    ("plans", "said"),
    [
        ([{"start": [0, 50], "wait_for": 1}], "start must lie below 12"),
        ([{"start": [3, 3], "wait_for": 1}], "start must be distinct clients"),
        ([{"start": [3], "weights": [0.5, 0.5], "wait_for": 1}], "one entry for each of 1 members"),
        ([{"start": [3], "wait_for": 0}], "wait_for must be a whole number of at least 1"),
        ([{"start": [3], "wait_for": 1, "staleness_exponent": -0.5}], "staleness_exponent must be zero or positive"),
        ([{"start": [3], "wait_for": 1, "staleness_limit": 0.0}], "staleness_limit must be positive"),
        ([{"start": [], "wait_for": 1}], "nobody is in flight, got nobody"),
        ([BEGUN, {"start": [1], "wait_for": 1}], r"start must not be in flight, got \[1\]"),
        ([BEGUN, Probe(clients=[1, 5], ask="loss")], r"clients must not be in flight, got \[1\]"),
        ([BEGUN, RoundPlan(members=[5], weights=[1.0])], "RoundPlan must wait until nobody is in flight, got 2"),
        ([Probe(clients=[5], ask="loss"), BEGUN], "must come without a probe"),
        ([Probe(clients=[0, 1, 2], ask="update_norm"), BEGUN], "must come without a probe"),
    ],
)
def test_a_plan_that_cannot_be_is_refused(data, times, plans, said):
    with pytest.raises(InputError, match=said):
        run(data, times, Scripted(*plans), rounds=len(plans))


def test_links_with_caps_are_refused(data, times):
    with pytest.raises(InputError, match="a link without caps"):
        run(data, times, bandwidth_cap=np.full(SIZE, 0.5))
