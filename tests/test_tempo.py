"""Tempo: it learns, it is unbiased where it says so, it goes on after a stop, and it does not diverge."""

import json
import math
from collections import deque
from dataclasses import replace

import numpy as np
import pytest
from test_rivals_biased import report_of

from fedtempo import Fleet, InputError, simulate
from fedtempo.data.federation import FederatedData
from fedtempo.data.synthetic import synthetic_data
from fedtempo.engine.loop import DivergedError
from fedtempo.engine.settings import StopSettings, TrainingSettings
from fedtempo.learning.aggregation import Aggregator
from fedtempo.learning.softmax import SoftmaxTrainer
from fedtempo.policies import tempo
from fedtempo.policies.novelty import Novelty
from fedtempo.policies.policy import BufferedPlan, PolicySetting, RoundContext, RoundPlan
from fedtempo.policies.tempo import Tempo
from fedtempo.simulator.api import assemble
from fedtempo.simulator.channel import StaticChannel
from fedtempo.simulator.markov import FadingChannel, WithAbsences
from fedtempo.theory.inclusion import inclusion_with_sum

SIZE = 10
OPTIONS: dict[str, dict] = {
    "plain": {}, "rounds": {"overlap": False}, "no memory": {"memory": False}, "small memory": {"memory_bits": 8},
    "unbiased": {"largest_factor": math.inf}, "steps": {"choose_local_steps": True},
}  # fmt: skip
EACH = pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)


@pytest.fixture(scope="module")
def data():
    return synthetic_data(alpha=1.0, beta=1.0, num_clients=SIZE, num_samples=1000, seed=1)


@pytest.fixture(scope="module")
def times():
    return {"compute_time": np.linspace(0.1, 2.0, SIZE), "upload_time": np.linspace(1.5, 0.2, SIZE)}


def run(data, times, policy="tempo", *, rounds=40, **more):
    usual = {"cohort_size": 3, "local_steps": 5, "max_rounds": rounds, "evaluate_every": rounds, "schedule": "constant"}
    return simulate(data, **times, policy=policy, **usual | {"step_size": 0.02} | more)


def start_loss(data):
    """The loss of w₀ = 0, which gives each class the same chance."""
    return math.log(data.num_classes)


@EACH
def test_the_loss_falls(data, times, options):
    assert run(data, times, options=options).summary["loss"] < 0.75 * start_loss(data)


@EACH
def test_the_loss_falls_where_clients_come_and_go(data, times, options):
    channel = WithAbsences(StaticChannel(**times), present_share=np.linspace(0.3, 1.0, SIZE), seed=3, absence_rounds=4)
    result = run(data, times, options=options, channel=channel)
    assert result.summary["loss"] < 0.8 * start_loss(data)
    for round_index, record in enumerate(result.records):
        assert record["failed"] == [], "it starts nobody who is away"
        if options == {"overlap": False}:
            assert channel.at(round_index, 0.0).available[record["members"]].all()
    assert "never_there" in result.records[0]["note"]


@EACH
def test_the_loss_falls_under_fading(data, times, options):
    channel = FadingChannel(**times, correlation=0.5, seed=3)
    assert run(data, times, options=options, channel=channel).summary["loss"] < 0.75 * start_loss(data)


class Blind(Tempo):
    """Tempo that does not see who is away, only who is in flight: some whom it starts fail."""

    def __init__(self, setting):
        super().__init__(setting)
        self.busy = np.zeros(SIZE, dtype=bool)

    def plan(self, context):
        plan = super().plan(replace(context, available=~self.busy if self.busy.any() else None))
        if isinstance(plan, BufferedPlan):
            self.busy[plan.start] = True
        return plan

    def observe(self, report):
        super().observe(report)
        self.busy[report.plan.members] = False
        assert self.flying == self.busy.sum()


@EACH
def test_failures_are_borne_and_learned(data, times, options):
    channel = WithAbsences(StaticChannel(**times), present_share=[0.4] * 3 + [1.0] * 7, seed=3)
    made = []

    def make(setting):
        made.append(Blind(setting))
        return made[0]

    class Made(Blind):
        def __new__(cls, setting):
            return make(setting)

    result = run(data, times, Made, options=options, channel=channel, rounds=60)
    failed = np.bincount([client for record in result.records for client in record["failed"]], minlength=SIZE)
    assert failed[:3].sum() > 0
    assert failed[3:].sum() == 0
    assert made[0].presence.failed.tolist() == failed.tolist()
    assert result.summary["loss"] < 0.8 * start_loss(data)


def noise(clients):
    inputs, labels = np.random.default_rng(0).random((20, 3), dtype=np.float32), np.arange(20) % 2
    offsets = np.linspace(0, 20, clients + 1).astype(np.int64)
    return FederatedData(inputs, labels, offsets, inputs, labels, 2, (3,), "noise")


@EACH
@pytest.mark.parametrize(("clients", "cohort_size"), [(1, 1), (1, 3), (2, 1), (2, 5), (4, 3)])
def test_small_fleets(clients, cohort_size, options):
    result = run(
        noise(clients), {"compute_time": 1.0, "upload_time": 1.0}, options=options, cohort_size=cohort_size, rounds=15,
    )  # fmt: skip
    assert result.summary["rounds"] == 15
    assert math.isfinite(result.summary["loss"])
    assert {client for record in result.records for client in record["members"]} == set(range(clients))
    assert all(record["members"] for record in result.records)


@pytest.mark.parametrize("options", [mine for name, mine in OPTIONS.items() if name != "no memory"])
def test_a_single_client_trains_with_all_its_weight(options):
    for record in run(noise(1), {"compute_time": 1.0, "upload_time": 1.0}, options=options, rounds=8).records:
        assert record["weights"] == pytest.approx([1.0])


@pytest.mark.parametrize(
    "options",
    [
        {"memory": 1}, {"memory": "yes"}, {"memory": None}, {"overlap": 0}, {"overlap": "auto"}, {"largest_factor": 0},
        {"largest_factor": -1.0}, {"largest_factor": math.nan}, {"largest_factor": "inf"}, {"largest_factor": True},
        {"floor": -0.1}, {"floor": 1.5}, {"floor": "low"}, {"floor": True}, {"signal_factor": 0},
        {"signal_factor": math.inf}, {"signal_factor": [1]}, {"flor": 0.1}, {"something": 1},
    ],
)  # fmt: skip
def test_options_that_are_refused(data, times, options):
    (name,) = options
    with pytest.raises(InputError, match=name):
        run(data, times, options=options, rounds=1)


def test_unknown_options_bring_the_nearest_name(data, times):
    with pytest.raises(InputError, match="did you mean 'floor'"):
        run(data, times, options={"flor": 0.1}, rounds=1)


@pytest.mark.parametrize("options", [{"floor": 0.0}, {"floor": 1.0}, {"overlap": True, "signal_factor": 3}])
def test_options_at_their_bounds(data, times, options):
    for more in ({}, {"overlap": False}):
        assert math.isfinite(run(data, times, options=options | more, rounds=10).summary["loss"])


def simulation(data, times, options, *, rounds=12, **training):
    channel = WithAbsences(FadingChannel(**times, correlation=0.5, seed=2), present_share=0.7, seed=3)
    return assemble(
        data=data, trainer=SoftmaxTrainer(data), fleet=Fleet(data.data_share, 1.0, **times), channel=channel,
        policy="tempo", options=options, seed=0, stop=StopSettings(max_rounds=rounds),
        training=TrainingSettings(**{"cohort_size": 3, "local_steps": 3, "step_size": 0.02} | training),
    )  # fmt: skip


@EACH
@pytest.mark.parametrize("momentum", [0.0, 0.5])
def test_a_run_carried_over_goes_on_as_if_nothing_had_happened(data, times, options, momentum):
    carried_over(lambda: simulation(data, times, options, server_momentum=momentum), (1, 2, 5, 9))


def test_a_run_that_swings_is_carried_over_with_its_caution(data, times):
    carried_over(lambda: simulation(data, times, {}, rounds=40, step_size=0.5, server_momentum=0.9), (13, 24, 31))


def test_a_large_fleet_is_carried_over_between_two_solutions():
    large = synthetic_data(alpha=1.0, beta=1.0, num_clients=250, num_samples=5000, seed=1)
    times = {"compute_time": np.linspace(0.1, 2.0, 250), "upload_time": np.linspace(1.5, 0.2, 250)}
    carried_over(lambda: simulation(large, times, {}, rounds=25), (4, 5, 11, 18))


@pytest.mark.parametrize("options", [{}, {"largest_factor": math.inf}], ids=["in turn", "by chance"])
def test_a_fleet_of_which_not_everyone_is_looked_at_is_carried_over(monkeypatch, options):
    monkeypatch.setattr("fedtempo.policies.tempo.LARGE_FLEET", {True: 100, False: 100})
    monkeypatch.setattr("fedtempo.theory.turns.NEAR", 40)
    large = synthetic_data(alpha=1.0, beta=1.0, num_clients=250, num_samples=5000, seed=1)
    times = {"compute_time": np.linspace(0.1, 2.0, 250), "upload_time": np.linspace(1.5, 0.2, 250)}
    carried_over(lambda: simulation(large, times, options, rounds=25), (4, 5, 11, 18))


def carried_over(new, stops):
    whole = list(new().rounds())
    for stop in stops:
        first = new()
        rounds = first.rounds()
        begun = [next(rounds) for _ in range(stop)]
        values, arrays = first.state()
        second = new()
        second.restore(
            json.loads(json.dumps(values, allow_nan=False)), {name: array.copy() for name, array in arrays.items()}
        )
        assert begun + list(second.rounds()) == whole


def test_the_same_seed_gives_the_same_run_and_another_seed_another(data, times):
    first, again, other = (run(data, times, rounds=10, seed=seed).records for seed in (0, 0, 1))
    assert first == again
    assert first != other


def setting(share, **more):
    fleet = {"gradient_bound": 1.0, "compute_time": 0.0, "upload_time": 1.0} | more.pop("fleet", {})
    return PolicySetting(fleet=Fleet(np.asarray(share), **fleet), **{"cohort_size": 3} | more)


def context(available=None, rng=None, round_index=0):
    rng = rng or np.random.default_rng(0)
    return RoundContext(
        round_index=round_index, time=0.0, step_size=0.1, local_steps=1, rng=rng, available=available
    )  # fmt: skip


def test_a_capped_link_brings_synchronous_rounds(data, times):
    plan = Tempo(setting(np.full(4, 0.25), fleet={"bandwidth_cap": 0.5})).plan(context())
    assert isinstance(plan, RoundPlan)
    assert isinstance(Tempo(setting(np.full(4, 0.25))).plan(context()), BufferedPlan)
    result = run(data, times, bandwidth_cap=0.5)
    assert all("staleness" not in record.get("note", {}) for record in result.records)
    assert result.summary["loss"] < 0.8 * start_loss(data)
    assert all("staleness" in record["note"] for record in run(data, times, rounds=3).records)
    with pytest.raises(InputError, match="bandwidth_cap"):
        run(data, times, bandwidth_cap=0.5, options={"overlap": True}, rounds=1)


def test_server_momentum_brings_more_arrivals(data, times):
    share = np.full(40, 1 / 40)
    waits = [Tempo(setting(share, server_momentum=m)).plan(context()).wait_for for m in (0.0, 0.5, 0.9)]
    assert waits[0] < waits[1] < waits[2] <= 40
    late = [
        np.mean([len(record["members"]) for record in run(data, times, server_momentum=m).records[20:]])
        for m in (0.0, 0.8)
    ]
    assert late[1] >= 2 * late[0]


@pytest.mark.parametrize(
    ("momentum", "floor", "largest", "arrivals"), [(0, 0.1, 4, 1), (0.5, 0.225, 8, 2), (0.8, 0.3, 20, 4)]
)
def test_a_memory_that_lags_is_dealt_with_under_momentum(momentum, floor, largest, arrivals):
    policy = Tempo(setting(np.full(40, 1 / 40), server_momentum=momentum))
    assert [policy.floor, policy.largest_factor, policy.usual_arrivals] == pytest.approx([floor, largest, arrivals])
    chosen = Tempo(setting(SHARE, server_momentum=momentum, options={"floor": 0.2, "largest_factor": 3.0}))
    assert [chosen.floor, chosen.largest_factor] == [0.2, 3.0]


@pytest.mark.parametrize(("momentum", "most"), [(0.0, 6), (0.5, 12), (0.8, 30)])
def test_steps_take_more_arrivals_while_the_memory_fails_and_fall_back_slowly(momentum, most):
    fleet = {"compute_time": 4.0}
    policy = Tempo(setting(np.full(40, 1 / 40), server_momentum=momentum, cohort_size=6, fleet=fleet))
    policy.novelty.heard, policy.follows_memory = 1.0, True
    usual = policy._number_of_arrivals()
    assert len(policy.plan(context()).start) == usual + 5, "five compute ahead"
    policy.novelty.whole[:], policy.novelty.before[:] = 1.0, 1.0

    def observe(surprise, steps):
        policy.novelty.new_part[:] = surprise
        for _ in range(steps):
            policy.flying, policy.novelty.news = 0, True
            plan = policy.plan(context())
        return len(plan.start)

    observe(1.5, 5)
    raised = policy.caution
    assert raised == pytest.approx(2.5**0.5)
    observe(0.3, 1)
    assert policy.caution == pytest.approx(raised * 0.5 ** (0.1 * (1 - momentum)))
    assert observe(1.5, 100) == most + 1
    assert policy._number_of_arrivals() == most
    observe(0.3, 1000)
    assert policy._number_of_arrivals() == usual


def test_the_memory_is_followed_once_it_was_seen_to_hold_and_no_longer_where_the_greatest_caution_does_not_help():
    policy = Tempo(setting(np.full(40, 1 / 40), cohort_size=6))

    def step(surprise=None):
        if surprise is not None:
            policy.novelty.whole[:], policy.novelty.before[:], policy.novelty.new_part[:] = 1.0, 1.0, surprise
        policy.flying, policy.novelty.news = 0, surprise is not None
        return policy.plan(context())

    plan = step()
    assert not plan.follow_memory, "nobody told twice"
    assert (plan.wait_for, plan.weights.tolist()) == (6, pytest.approx([1 / 6] * len(plan.start)))
    assert not step(1.0).follow_memory
    assert not step(0.72).follow_memory
    assert step(0.65).follow_memory
    followed = [step(1.5).follow_memory for _ in range(40)]
    assert followed == sorted(followed, reverse=True), "once only does it give up"
    assert 10 < sum(followed) < 30
    assert not step(0.9).follow_memory
    assert not any(step(0.65).follow_memory for _ in range(50)), "caution is at its greatest, and stays there"
    assert step(0.3).follow_memory
    caution = policy.caution
    assert [step().follow_memory for _ in range(50)] == [True] * 50
    assert policy.caution == caution, "nobody told anything new"


@pytest.mark.parametrize(
    ("clients", "surprise", "follow"), [(1, 0.25, False), (1, 0.2, True), (4, 0.6, False), (4, 0.55, True)]
)
def test_a_memory_that_few_have_tried_must_hold_better(clients, surprise, follow):
    policy = Tempo(setting(np.full(40, 1 / 40), cohort_size=6))
    for name, value in (("whole", 1.0), ("before", 1.0), ("new_part", surprise)):
        getattr(policy.novelty, name)[:clients] = value
    policy.novelty.news = True
    assert policy.plan(context()).follow_memory == follow


def test_a_mean_is_drawn_by_data_alone_and_along_a_memory_by_what_is_new():
    policy = Tempo(setting(np.full(40, 1 / 40), cohort_size=6))
    policy.novelty.first_count, policy.novelty.told[:] = 1, 0
    policy.novelty.square[:] = np.where(np.arange(40) < 20, 1.0, 1e-6)  # half of them have small updates
    policy.plan(context(round_index=1))
    np.testing.assert_allclose(policy.sampling_prob, 1 / 40)
    policy.follows_memory, policy.flying = True, 0
    policy.plan(context(round_index=2))
    assert policy.sampling_prob[:20].min() > 5 * policy.sampling_prob[20:].max()


@pytest.mark.parametrize("options", [{"largest_factor": math.inf}, {"memory": False}])
def test_steps_that_are_to_be_unbiased_have_their_weights_from_the_start(options):
    policy = Tempo(setting(SHARE, options=options))
    policy.novelty.whole[:], policy.novelty.before[:], policy.novelty.new_part[:] = 1.0, 1.0, 2.0
    for _ in range(100):
        policy.flying, policy.novelty.news = 0, True
        assert policy.plan(context()).follow_memory


@pytest.mark.parametrize("overlap", [True, False])
@pytest.mark.parametrize("momentum", [0.0, 0.8])
def test_steps_are_shorter_where_directions_turn_back_and_never_longer_than_the_engines(overlap, momentum):
    policy = Tempo(setting(np.full(40, 1 / 40), server_momentum=momentum, options={"overlap": overlap}))

    def step(cosine):
        policy.novelty.whole[:], policy.novelty.before[:] = 4.0, 1.0
        policy.novelty.new_part[:] = 5.0 - 4.0 * cosine  # ‖D - y‖² with ‖D‖ = 2 and ‖y‖ = 1
        policy.flying, policy.novelty.news = 0, True
        return policy.plan(context()).step_factor

    assert policy.plan(context()).step_factor == 1.0
    assert [step(0.9) for _ in range(3)] == [1.0] * 3
    assert step(-0.5) == pytest.approx(math.exp(-0.3 * 0.5))
    assert step(0.5) == pytest.approx(math.exp(-0.3 * 0.5 + 0.1 * (1 - momentum) * 0.5))
    assert [step(-1.0) for _ in range(20)][-1] == pytest.approx(0.1), "never so short that training stands still"
    assert [step(1.0) for _ in range(200)][-1] == 1.0


def test_the_agreement_is_the_cosine_of_what_was_told_last_and_before():
    rng, novelty = np.random.default_rng(1), Novelty(np.array([1.0]), grows=True)
    server, model = Aggregator(np.ones(1), memory=True), np.zeros(7, dtype=np.float32)
    told = []
    for round_index in range(4):
        update = rng.standard_normal((1, 7)).astype(np.float32)
        step = server.apply(model, np.array([0]), update, np.ones(1), 0.5)
        told.append(update[0])
        report = report_of(RoundPlan(members=[0], weights=[1.0]), round_index, 1.0)
        norm = float(np.linalg.norm(update))
        novelty.observe(
            replace(report, residual_norm=step.residual_norm, update_norm=np.array([norm]), step_size=np.array([0.5])),
            0.0,
        )
        if round_index == 0:
            assert novelty.agreement == 0.0, "nobody told twice"
        else:
            y, d = told[-2:]
            assert novelty.agreement == pytest.approx(float(y @ d) / np.linalg.norm(y) / norm, abs=1e-5)


def test_large_norms_count_for_more_in_the_agreement():
    novelty = Novelty(np.array([0.5, 0.5]), grows=True)
    novelty.whole[:], novelty.before[:] = [100.0, 1.0], [100.0, 1.0]
    cosine = np.array([0.9, -1.0])
    novelty.new_part[:] = novelty.whole + novelty.before - 2 * np.sqrt(novelty.whole * novelty.before) * cosine
    assert novelty.agreement == pytest.approx((100 * 0.9 - 1.0) / 101)


def test_training_is_better_by_shorter_steps_where_it_would_swing(monkeypatch):
    """Long steps, small batches and few clients; losses in the end, over eight federations."""

    def loss(seed):
        data = synthetic_data(alpha=1.0, beta=1.0, num_clients=6, num_samples=600, seed=seed)
        times = {"compute_time": np.full(6, 0.5), "upload_time": np.linspace(0.5, 2.0, 6)}
        result = run(data, times, step_size=0.3, batch_size=4, rounds=200, evaluate_every=10, seed=seed)
        return np.mean([record["loss"] for record in result.records if record["loss"] is not None][-5:])

    shorter = [loss(seed) for seed in range(8)]
    monkeypatch.setattr(tempo, "SHORTEN", 1e-9)
    ratios = np.array(shorter) / [loss(seed) for seed in range(8)]
    assert np.exp(np.mean(np.log(ratios))) < 0.8


@pytest.mark.parametrize("overlap", [True, False])
def test_a_factor_of_the_step_size_is_one_of_the_engines_schedule(data, times, overlap):
    """All steps at half the step size are the steps of an engine that has half of it."""

    class Halved(Tempo):
        def plan(self, context):
            return replace(super().plan(context), step_factor=0.5)

    ends = [
        run(data, times, policy, step_size=size, server_momentum=0.5, options={"overlap": overlap}).records[-1]["loss"]
        for policy, size in ((Halved, 0.02), (Tempo, 0.01))
    ]
    assert ends[0] == pytest.approx(ends[1], rel=1e-6)


def test_a_slow_link_of_its_own_makes_a_client_dear(data, times):
    cap = np.where(np.arange(SIZE) % 2, 0.01, 1.0)
    same = {"compute_time": np.full(SIZE, 1.0), "upload_time": np.full(SIZE, 1.0)}
    counts = np.zeros(SIZE)
    for record in run(data, same, rounds=60, link="shared", bandwidth_cap=cap).records:
        counts[record["members"]] += 1
    assert counts[1::2].sum() < 0.7 * counts[::2].sum()


def test_a_memory_that_does_not_hold_costs_a_network_nothing():
    """Directions that have nothing to do with those before: steps are those of a mean, however old the memory is."""
    rng, share = np.random.default_rng(0), np.full(6, 1 / 6)
    kept, without = Aggregator(share, memory=True), Aggregator(share)
    model = np.zeros(5, dtype=np.float32)
    for _ in range(10):
        members = np.sort(rng.choice(6, 3, replace=False))
        updates, weights = rng.standard_normal((3, 5)).astype(np.float32), np.full(3, 1 / 3)
        step = kept.apply(model, members, updates, weights, 0.1, follow_memory=False)
        expected = without.apply(model, members, updates, weights, 0.1)
        np.testing.assert_allclose(step.model, expected.model, rtol=1e-5)
        assert step.direction_norm == pytest.approx(expected.direction_norm)
        model = step.model
    assert set(kept.remembered) == set(range(6)), "it is kept up to date all the same"


def test_surprise_counts_each_client_by_its_data_however_seldom_it_tells():
    """A client of half the data, slow and remembered badly, is not forgotten while others tell what is known."""
    novelty = Novelty(np.array([0.5, 0.3, 0.2]), grows=True)

    def tell(client, new, round_index):
        plan = RoundPlan(members=[client], weights=[1.0])
        novelty.observe(replace(report_of(plan, round_index, 1.0), residual_norm=np.array([new])), 0.0)

    for round_index, client in enumerate((0, 1, 2)):
        tell(client, 2.0, round_index)
    assert novelty.surprise == 0.0, "at first all is new, which says nothing of the memory"
    tell(0, 2.0, 3)
    assert novelty.surprise == pytest.approx(4.0)
    for round_index in range(4, 104):
        tell(1 + round_index % 2, 0.0, round_index)
    assert novelty.surprise == pytest.approx(0.5 * 4.0)
    tell(0, 0.0, 104)
    assert novelty.surprise == 0.0


def test_surprise_does_not_depend_on_how_fast_the_step_size_shrinks(data):
    """Nothing is learned in steps of next to nothing: what clients tell is noise, and the same under both schedules."""
    tau = np.linspace(0.1, 5.0, data.num_clients)
    seen = []
    for schedule in ("constant", "inverse"):
        policies = []

        class Kept(Tempo):
            def __init__(self, given, kept=policies):
                super().__init__(given)
                kept.append(self)

        simulate(
            data, policy=Kept, compute_time=tau, upload_time=0.1, cohort_size=3, local_steps=1, step_size=1e-6,
            schedule=schedule, max_rounds=60,
        )  # fmt: skip
        seen.append(policies[0].novelty.surprise)
    assert seen[1] == pytest.approx(seen[0], rel=0.02)


@pytest.mark.parametrize("overlap", [True, False])
@pytest.mark.parametrize("largest", [1.5, 5.0])
def test_weights_never_exceed_the_largest_factor(data, times, overlap, largest):
    options = {"largest_factor": largest, "overlap": overlap}
    channel = WithAbsences(StaticChannel(**times), present_share=0.4, seed=1)

    class Following(Tempo):
        """Tempo that follows its memory from the first step on."""

        def plan(self, context):
            self.follows_memory, self.caution = True, 1.0
            return super().plan(context)

    result = run(data, times, Following, options=options, channel=channel, rounds=60)
    factors = np.concatenate(
        [np.array(record["weights"]) / data.data_share[record["members"]] for record in result.records]
    )
    assert factors.max() <= largest * (1 + 1e-12)
    assert factors.max() == pytest.approx(largest), "the bound was reached"


class Drawing(Tempo):
    """Tempo with one q for the whole run, all data heard, so that only its draws and weights are left."""

    def __init__(self, given, q):
        super().__init__(given)
        self.q, self.novelty.heard, self.follows_memory = q, 1.0, True

    def _solve(self, round_index, tau, t):
        super()._solve(round_index, tau, t)
        return self.q


class Arrival:
    """The part of a report that is left then."""

    def __init__(self, members):
        self.plan, self.failed = RoundPlan(members=members, weights=1.0), np.zeros(len(members), dtype=bool)


def mean_weight(policy, steps, seed, there=1.0):
    """Let those who start first arrive first; return the mean weight of each client in a step, with its error."""
    rng, size = np.random.default_rng(seed), len(policy.q)
    flight, weight = deque(), np.zeros((steps, size))
    for row in weight:
        available = rng.random(size) < there
        available[rng.integers(size)] |= not available.any()
        available[[client for client, _ in flight]] = False
        plan = policy.plan(context(available, rng))
        flight.extend(zip(plan.start.tolist(), plan.weights.tolist(), strict=True))
        landed = [flight.popleft() for _ in range(min(plan.wait_for, len(flight)))]
        for client, value in landed:
            row[client] += value
        policy.flying -= len(landed)
        policy.presence.observe(Arrival([client for client, _ in landed]))
    weight = weight[steps // 10 :]
    return weight.mean(axis=0), weight.std(axis=0) / math.sqrt(len(weight))


SHARE = np.array([0.05, 0.2, 0.15, 0.1, 0.25, 0.05, 0.12, 0.08])
Q = np.array([0.1, 0.05, 0.25, 0.1, 0.2, 0.02, 0.08, 0.2])


@pytest.mark.parametrize(("momentum", "compute_time"), [(0.0, 0.0), (0.75, 0.0), (0.0, 0.5), (0.75, 0.5)])
def test_the_unbiased_form_gives_each_client_its_share_in_a_step(momentum, compute_time):
    """Within five standard errors, and 5 % where one client computes ahead: it is then busy for a step or part of one.

    One arrival ends a step without momentum, four with 0.75.
    """
    given = setting(
        SHARE, server_momentum=momentum, fleet={"compute_time": compute_time}, options={"largest_factor": math.inf}
    )
    policy = Drawing(given, Q)
    mean, error = mean_weight(policy, 2500, seed=7)
    assert policy.arrivals == (4 if momentum else 1)
    assert (np.abs(mean - SHARE) <= 5 * error + (0.05 if compute_time else 1e-9) * SHARE).all(), mean / SHARE


def test_the_unbiased_form_makes_up_for_absences():
    """Within five standard errors and 3 %; each client is there in a share of its own of the steps."""
    there = np.array([1.0, 0.4, 0.9, 0.6, 1.0, 0.7, 0.3, 0.8])
    policy = Drawing(setting(SHARE, options={"largest_factor": math.inf}), Q)
    mean, error = mean_weight(policy, 2500, seed=8, there=there)
    assert (np.abs(mean - SHARE) <= 5 * error + 0.03 * SHARE).all(), mean / SHARE


def test_cut_weights_give_rare_clients_less():
    policy = Drawing(setting(SHARE, options={"largest_factor": 2.0}), Q)
    mean, error = mean_weight(policy, 2500, seed=7)
    assert (np.abs(mean - SHARE * np.minimum(1, 2 * Q)) <= 5 * error).all(), mean / SHARE
    assert (mean < 0.7 * SHARE).all()


def federation(rng, size, heterogeneity):
    """A small softmax problem: each client has its own centre, and its own model beside the common one."""
    sizes, common = rng.integers(8, 80, size), rng.standard_normal((6, 3))
    inputs, labels = [], []
    for samples in sizes:
        x = heterogeneity * rng.standard_normal(6) + rng.standard_normal((samples, 6))
        own = common + heterogeneity * rng.standard_normal((6, 3))
        inputs.append(x)
        labels.append((x @ own + rng.gumbel(size=(samples, 3))).argmax(axis=1))
    inputs, labels = np.concatenate(inputs), np.concatenate(labels)
    labels[:3] = [0, 1, 2]
    return FederatedData(inputs, labels, np.append(0, np.cumsum(sizes)), inputs[:9], labels[:9], 3, (6,), "small")


def random_federation(seed):
    rng = np.random.default_rng([seed, 12])
    size = int(rng.integers(2, 16))
    data = federation(rng, size, float(rng.choice([0.0, 0.5, 2.0])))
    times = {name: 10 ** rng.uniform(-1.5, 1.5, size) for name in ("compute_time", "upload_time")}
    training = {
        "cohort_size": int(rng.integers(1, 7)), "step_size": float(10 ** rng.uniform(-2, 0)), "batch_size": 8,
        "schedule": str(rng.choice(["constant", "inverse"])), "local_steps": int(rng.integers(1, 11)),
        "server_momentum": float(rng.choice([0.0, 0.0, 0.5, 0.9])),
    }  # fmt: skip
    return data, times, training


def final_loss(data, times, training, policy, seed, **more):
    try:
        return run(data, times, policy, rounds=60, seed=seed, **training, **more).summary["loss"]
    except DivergedError:
        return math.inf


@pytest.mark.parametrize("options", [{}, {"overlap": False}], ids=["plain", "rounds"])
def test_it_does_not_diverge_where_weighted_sampling_converges(options):
    """In random federations, 60 steps each, wherever weighted sampling with the same settings ends below the start."""
    converged, wrong = 0, []
    for seed in range(60):
        data, times, training = random_federation(seed)
        weighted = final_loss(data, times, training, "weighted", seed)
        tempo = final_loss(data, times, training, "tempo", seed, options=options)
        first = start_loss(data)
        converged += weighted < first
        if weighted < first and not tempo < first:
            wrong.append((seed, len(data.data_share), weighted, tempo, training))
    assert converged >= 45, "cases worth running"
    assert not wrong


@pytest.mark.parametrize(("clients", "cohort_size"), [(1, 3), (2, 5), (4, 8)])
def test_without_memory_a_cohort_larger_than_the_fleet_is_everyone(clients, cohort_size):
    times, options = {"compute_time": 1.0, "upload_time": 1.0}, {"memory": False}
    result = run(noise(clients), times, options=options, cohort_size=cohort_size, rounds=8)
    for record in result.records:
        assert sum(record["weights"]) == pytest.approx(1.0)


def test_the_unbiased_form_where_fewer_are_there_than_a_step_takes():
    policy = Drawing(setting(SHARE, server_momentum=0.75, options={"largest_factor": math.inf}), Q)
    mean, error = mean_weight(policy, 2500, seed=8, there=0.3)
    assert (np.abs(mean - SHARE) <= 5 * error + 0.05 * SHARE).all()


@pytest.mark.parametrize("number", [1, 4])
@pytest.mark.parametrize("there", [None, 0.6])
@pytest.mark.parametrize("spread", [1.0, 3.5])
def test_draws_from_a_large_fleet_are_as_good_as_those_from_a_small_one(monkeypatch, number, there, spread):
    """Each client is drawn with the probability that its weight counts with, and nobody who is away.

    With a spread of 3.5 a few clients are drawn nearly every time.
    """
    size, draws = 2000, 4000
    monkeypatch.delattr("fedtempo.policies.tempo.draw_systematically")
    rng = np.random.default_rng(3)
    q = rng.lognormal(sigma=spread, size=size)
    q /= q.sum()
    available = None if there is None else rng.random(size) < there
    policy = Tempo(setting(np.full(size, 1 / size), options={"largest_factor": math.inf}))
    seen = np.zeros(size)
    for _ in range(draws):
        start, inclusion = policy._draw(q, number, context(available, rng))
        assert len(set(start.tolist())) == number
        seen[start] += 1 / inclusion
    free = np.ones(size, dtype=bool) if available is None else available
    assert not seen[~free].any()
    everyone = inclusion_with_sum(np.where(free, q, 0.0), number)
    ordered = np.flatnonzero(free)[np.argsort(q[free])]
    for group in [*np.array_split(ordered, 4), *np.split(ordered[-10:], 10)]:
        pi = everyone[group]
        error = np.sqrt((1 / pi).sum() / draws) / len(group)
        assert seen[group].mean() / draws == pytest.approx(1, abs=4 * error + 0.01)


IN_TURN = {
    "as it is": ({}, True),
    "unbiased": ({"largest_factor": math.inf}, False),
    "no memory": ({"memory": False}, False),
}


@pytest.mark.parametrize("large", [10_000, 0])
@pytest.mark.parametrize(("options", "in_turn"), IN_TURN.values(), ids=IN_TURN)
def test_clients_come_in_turn_unless_each_step_is_to_be_unbiased(monkeypatch, options, in_turn, large):
    """Some are in flight at all times, q changes, and the fleet may be one of which not everyone is looked at."""
    monkeypatch.setattr("fedtempo.policies.tempo.LARGE_FLEET", {True: large, False: 10_000})
    monkeypatch.setattr("fedtempo.theory.turns.NEAR", 30)
    size, rng = 60, np.random.default_rng(2)
    shapes = rng.lognormal(sigma=0.7, size=(2, size))
    policy = Drawing(setting(np.full(size, 1 / size), options=options, cohort_size=1), shapes[0])
    flight, expected, drawn = deque(), np.zeros(size), np.zeros(size)
    for step in range(3000):
        q = policy.q = shapes[step // 50 % 2] / shapes[step // 50 % 2].sum()
        free = np.ones(size, dtype=bool)
        free[list(flight)] = False
        policy.flying = 0
        (start,) = policy.plan(context(free, rng)).start
        expected += np.where(free, q, 0.0) / q[free].sum()
        drawn[start] += 1
        flight.append(start)
        if len(flight) > 5:
            flight.popleft()
    assert bool(np.abs(drawn - expected).max() < 3) == in_turn


def test_a_step_takes_one_arrival_once_nearly_all_data_were_heard():
    policy = Drawing(setting(SHARE), Q)
    for heard, arrivals in ((0.0, 3), (0.5, 2), (0.74, 2), (0.76, 1), (1.0, 1)):
        policy.novelty.heard = heard
        assert policy._number_of_arrivals() == arrivals


def test_without_a_memory_nothing_is_cut():
    with pytest.raises(InputError, match="largest_factor must be left out without a server memory"):
        Tempo(setting(SHARE, options={"memory": False, "largest_factor": 5.0}))


def test_a_large_fleet_in_which_hardly_anybody_is_free_is_drawn_from_all_the_same():
    size = 20_000
    available = np.zeros(size, dtype=bool)
    available[[5, 17_000]] = True
    start, inclusion = Tempo(setting(np.full(size, 1 / size)))._draw(np.full(size, 1 / size), 2, context(available))
    assert (start.tolist(), inclusion.tolist()) == ([5, 17_000], [1.0, 1.0])
