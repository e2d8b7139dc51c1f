"""Oort, Power-of-Choice, FedCS and TiFL: each formula and rule against numbers by hand or by brute force."""

import itertools
import json
import math

import numpy as np
import pytest
from conftest import random_fleet

from fedtempo import Fleet, InputError
from fedtempo.data.synthetic import synthetic_data
from fedtempo.engine.settings import StopSettings, TrainingSettings
from fedtempo.learning.softmax import SoftmaxTrainer
from fedtempo.policies.fedcs import FedCS, select_greedily
from fedtempo.policies.oort import Oort, draw_in_proportion
from fedtempo.policies.policy import PolicySetting, Probe, RoundContext, RoundPlan, RoundReport
from fedtempo.policies.power_of_choice import PowerOfChoice
from fedtempo.policies.tifl import TiFL, tier_probabilities
from fedtempo.policies.times import Durations
from fedtempo.randomness import stream
from fedtempo.simulator.api import assemble, simulate
from fedtempo.simulator.markov import FadingChannel, WithAbsences

RIVALS = [Oort, PowerOfChoice, FedCS, TiFL]


def make(policy, fleet, cohort_size, **options):
    return policy(PolicySetting(fleet=fleet, cohort_size=cohort_size, options=options))


def equal_fleet(size, **more):
    return Fleet(np.full(size, 1 / size), 1.0, **({"compute_time": np.ones(size), "upload_time": np.ones(size)} | more))


def context(round_index=0, seed=0, **more):
    return RoundContext(
        round_index=round_index, time=0.0, step_size=0.1, local_steps=5, rng=stream(seed, "policy", round_index), **more
    )


def report_of(plan, round_index, loss, *, failed=(), compute_time=1.0, upload_time=1.0):
    """Return what an engine would say, with one loss and one pair of times for each client of the fleet, or for all."""
    members = plan.members
    one = np.ones(members.size)

    def of(values):
        return np.asarray(values, dtype=float)[members] if np.ndim(values) else one * values

    return RoundReport(
        plan=plan, round_index=round_index, round_time=1.0, compute_time=of(compute_time), upload_time=of(upload_time),
        step_size=one, local_steps=np.ones(members.size, dtype=np.int64), largest_gradient_norm=one,
        mean_gradient_norm=one, update_norm=one, mean_loss=of(loss),
        failed=np.isin(members, failed), residual_norm=one, aggregate_norm=1.0, direction_norm=1.0, loss=None,
        accuracy=None,
    )  # fmt: skip


def teach(policy, members, round_index, loss, **more):
    """Let a policy learn of a round with these members."""
    plan = RoundPlan(members=np.array(members), weights=np.ones(len(members)))
    policy.observe(report_of(plan, round_index, loss, **more))


def plan_of(policy, round_index, losses, **more):
    """Return the plan of a round, after answering what the policy asks."""
    rng = stream(more.pop("seed", 0), "policy", round_index)
    answers = None
    while True:
        asked = policy.plan(
            RoundContext(
                round_index=round_index, time=0.0, step_size=0.1, local_steps=5, rng=rng, answers=answers, **more
            )
        )
        if isinstance(asked, RoundPlan):
            return asked
        assert isinstance(asked, Probe)
        answers = losses[asked.clients]


def play(policy, fleet, rounds, *, seed=0, first=0, absences=True):
    """Run a policy for some rounds in a made-up world where clients come, go and fail and times vary."""
    size, plans = len(fleet), []
    for r in range(first, rounds):
        world = stream(seed, "world", r)
        losses = world.exponential(size=size) * 2 / (1 + r)
        times = {"compute_time": fleet.compute_time, "upload_time": fleet.upload_time * world.uniform(0.5, 2, size)}
        available = world.random(size) < 0.7 if absences else None
        told = times if r % 3 else {}
        plan = plan_of(policy, r, losses, seed=seed, available=available, **told)
        failed = [client for client in plan.members if absences and world.random() < 0.3]
        policy.observe(report_of(plan, r, losses, failed=failed, **times))
        plans.append(plan)
        there = np.arange(size) if available is None else np.flatnonzero(available)
        assert np.isin(plan.members, there).all(), "only clients that are there"
        assert bool(plan.members.size) == bool(there.size)
        if plan.members.size:
            assert plan.weights.sum() == pytest.approx(1)
    return plans


def in_turn(values, count):
    """Return the chance of each client to be among so many drawn in turn in proportion to values: by enumeration."""
    included = np.zeros(len(values))
    for order in itertools.permutations(range(len(values)), count):
        chance, left = 1.0, sum(values)
        for i in order:
            chance, left = chance * values[i] / left, left - values[i]
        included[list(order)] += chance
    return included


def inclusion_of(draw, size, times=1500):
    """Return how often each client is drawn, and four standard errors."""
    counts = np.zeros(size)
    for n in range(times):
        counts[draw(np.random.default_rng(n))] += 1
    share = counts / times
    return share, 4 * np.sqrt(share * (1 - share) / times) + 1e-3


@pytest.mark.parametrize("policy", RIVALS)
@pytest.mark.parametrize("size", [1, 2, 5, 12])
@pytest.mark.parametrize("cohort_size", [1, 3, 20])
def test_any_fleet_and_any_absence(policy, size, cohort_size):
    fleet = random_fleet(np.random.default_rng(size), size)
    for plan in play(make(policy, fleet, cohort_size), fleet, 40, seed=size):
        if policy is not FedCS:
            assert plan.members.size <= cohort_size
        if policy is PowerOfChoice:
            expected = np.full(plan.members.size, 1 / max(plan.members.size, 1))
        else:
            share = fleet.data_share[plan.members]
            expected = share / share.sum()
        np.testing.assert_allclose(plan.weights, expected)


@pytest.mark.parametrize("policy", RIVALS)
def test_a_fleet_that_is_always_there_gives_full_cohorts(policy):
    fleet = equal_fleet(12)
    for plan in play(make(policy, fleet, 4), fleet, 20, absences=False):
        if policy is not FedCS:
            assert plan.members.size == 4


@pytest.mark.parametrize("policy", RIVALS)
def test_nobody_there_and_everybody_failing(policy):
    fleet = equal_fleet(6)
    rival = make(policy, fleet, 2)
    for r in range(25):
        plan = plan_of(rival, r, np.ones(6), available=None if r % 5 else np.zeros(6, dtype=bool))
        assert plan.members.size == (2 if r % 5 else 0) or policy is FedCS
        rival.observe(report_of(plan, r, 1.0, failed=plan.members))


@pytest.mark.parametrize("policy", RIVALS)
@pytest.mark.parametrize("stop", [0, 1, 7, 20, 45])
def test_a_policy_carried_over_as_json_goes_on_alike(policy, stop):
    fleet = random_fleet(np.random.default_rng(3), 11)
    options = {Oort: {"window": 3, "most_picks": 9}, TiFL: {"tiers": 3, "interval": 4, "credits": 6}}.get(policy, {})
    whole = play(make(policy, fleet, 3, **options), fleet, 50)
    first, second = make(policy, fleet, 3, **options), make(policy, fleet, 3, **options)
    begun = play(first, fleet, stop)
    second.restore(json.loads(json.dumps(first.state(), allow_nan=False)))
    assert second.state() == first.state()
    if policy is TiFL:
        assert second.current == first.current
    for ours, theirs in zip(begun + play(second, fleet, 50, first=stop), whole, strict=True):
        assert ours.members.tolist() == theirs.members.tolist()
        assert ours.weights.tolist() == theirs.weights.tolist()
        assert ours.note == theirs.note
    assert second.state() == play_to_the_end(policy, fleet, options)


def play_to_the_end(policy, fleet, options):
    rival = make(policy, fleet, 3, **options)
    play(rival, fleet, 50)
    return rival.state()


@pytest.mark.parametrize(
    ("policy", "options", "said"),
    [
        (Oort, {"windw": 3}, "did you mean 'window'"),
        (Oort, {"window": 0}, "window must be a whole number"),
        (Oort, {"exploration": 1.5}, "exploration must lie between 0 and 1"),
        (Oort, {"exploration_decay": -0.1}, "exploration_decay must lie"),
        (Oort, {"least_exploration": "a"}, "least_exploration must lie"),
        (Oort, {"clip": 2}, "clip must lie"),
        (Oort, {"cutoff": True}, "cutoff must lie"),
        (Oort, {"penalty": -1.0}, "penalty must be zero or positive"),
        (Oort, {"preferred_duration": 0.0}, "preferred_duration must be positive"),
        (Oort, {"pacer_step": math.inf}, "pacer_step must be positive"),
        (Oort, {"most_picks": 0}, "most_picks must be a whole number"),
        (PowerOfChoice, {"candidates": 2}, "candidates must be at least the cohort of 3, got 2"),
        (PowerOfChoice, {"candidates": 4.5}, "candidates must be a whole number"),
        (PowerOfChoice, {"d": 5}, "it takes candidates"),
        (FedCS, {"fraction": 0.0}, "fraction must be positive"),
        (FedCS, {"fraction": 1.1}, "fraction must lie between 0 and 1"),
        (FedCS, {"deadline": -1.0}, "deadline must be positive"),
        (FedCS, {"dedline": 1.0}, "did you mean 'deadline'"),
        (TiFL, {"tiers": 0}, "tiers must be a whole number"),
        (TiFL, {"interval": 2.5}, "interval must be a whole number"),
        (TiFL, {"credits": 0}, "credits must be a whole number"),
        (TiFL, {"tires": 4}, "did you mean 'tiers'"),
    ],
)
def test_options_that_cannot_be_are_refused(policy, options, said):
    with pytest.raises(InputError, match=said):
        make(policy, equal_fleet(6), 3, **options)


@pytest.fixture(scope="module")
def data():
    return synthetic_data(alpha=1.0, beta=1.0, num_clients=8, num_samples=800, seed=1)


TIMES = {"compute_time": np.linspace(0.1, 2.0, 8), "upload_time": np.linspace(1.5, 0.2, 8)}


@pytest.mark.parametrize("policy", RIVALS)
def test_training_makes_progress_and_runs_are_repeatable(data, policy):
    def run(seed):
        return simulate(data, **TIMES, policy=policy, cohort_size=3, local_steps=10, max_rounds=15, seed=seed)

    result = run(0)
    assert result.summary["loss"] < 0.8 * SoftmaxTrainer(data).evaluate(np.zeros_like(result.model)).loss
    assert result.records == run(0).records
    assert [r["members"] for r in result.records] != [r["members"] for r in run(1).records]


@pytest.mark.parametrize("policy", RIVALS)
def test_a_run_on_a_changing_channel_resumes_to_the_byte(data, policy):
    def start():
        fleet = Fleet(data.data_share, 1.0, **TIMES)
        channel = FadingChannel(fleet.compute_time, fleet.upload_time, correlation=0.5, seed=2)
        return assemble(
            data=data, trainer=SoftmaxTrainer(data), fleet=fleet,
            channel=WithAbsences(channel, present_share=0.7, seed=3), policy=policy, options={}, seed=0,
            stop=StopSettings(max_rounds=14), training=TrainingSettings(cohort_size=3, local_steps=3),
        )  # fmt: skip

    whole = list(start().rounds())
    for stop in (1, 6, 11):
        first, second = start(), start()
        rounds = first.rounds()
        begun = [next(rounds) for _ in range(stop)]
        values, arrays = first.state()
        second.restore(json.loads(json.dumps(values)), {name: array.copy() for name, array in arrays.items()})
        assert begun + list(second.rounds()) == whole


def test_a_client_takes_its_fair_share_of_the_uplink():
    shares = {"data_share": np.full(3, 1 / 3), "gradient_bound": 1.0}
    times = {"compute_time": np.array([1.0, 2.0, 0.0]), "upload_time": np.array([3.0, 1.0, 5.0])}
    plain = Durations(Fleet(**shares, **times, total_bandwidth=2.0), 2)
    np.testing.assert_allclose(plain.seconds, [1 + 2 * 3 / 2, 2 + 2 * 1 / 2, 2 * 5 / 2])
    np.testing.assert_allclose(Durations(plain.fleet, 9).seconds, [1 + 3 * 3 / 2, 2 + 3 * 1 / 2, 3 * 5 / 2])
    links = {"bandwidth_cap": np.array([0.5, 3.0, 1.0]), "download_time": np.array([0.1, 0.2, 0.3])}
    capped = Durations(Fleet(**shares, **times, **links, total_bandwidth=2.0), 2)
    np.testing.assert_allclose(capped.seconds, [0.1 + 1 + 3 / 0.5, 0.2 + 2 + 1, 0.3 + 5])

    now = np.array([1.0, 1.0, 1.0])
    plain.look(context())
    np.testing.assert_allclose(plain.seconds, [4, 3, 5])
    plan = RoundPlan(members=[0, 2], weights=[0.5, 0.5])
    plain.observe(report_of(plan, 0, 1.0, failed=[2], compute_time=7.0, upload_time=2.0))
    np.testing.assert_allclose(plain.seconds, [9, 3, 5], err_msg="measured, but for the one that failed")
    plain.look(context(compute_time=now, upload_time=2 * now))
    np.testing.assert_allclose(plain.seconds, [3, 3, 3])
    plain.observe(report_of(plan, 0, 1.0, compute_time=7.0))
    np.testing.assert_array_equal(now, [1, 1, 1])


def test_the_utility_by_hand():
    """Five clients with durations 2, 2, 4, 8, 2 s and U of 1, 2, 3, 4, 100 in units of 1/15; T = 4 s."""
    share = np.array([1, 2, 3, 4, 5]) / 15
    fleet = Fleet(share, 1.0, np.array([1.0, 1.0, 3.0, 7.0, 1.0]), np.ones(5))
    rival = make(Oort, fleet, 1, clip=0.75, preferred_duration=4.0)
    for round_index, members in enumerate(([0, 1], [2], [3], [4])):
        teach(rival, members, round_index, [1.0, 1.0, 1.0, 1.0, 20.0], compute_time=fleet.compute_time)
    # The 75th percentile of five numbers is the fourth: 100 is clipped to 4. Then 1 … 4 is scaled to 0 … 1.
    bonus = [math.sqrt(0.1 * math.log(9) / last) for last in (1, 1, 2, 3, 4)]
    expected = [bonus[0], 1 / 3 + bonus[1], 2 / 3 + bonus[2], (1 + bonus[3]) * (4 / 8) ** 2, 1 + bonus[4]]
    np.testing.assert_allclose(rival.utilities(np.arange(5), 9), expected)
    # Of fewer clients, the percentile and the scale are their own: 3 and 3.75 become 0 and 1.
    np.testing.assert_allclose(rival.utilities(np.array([2, 3]), 9), [bonus[2], (1 + bonus[3]) / 4])
    np.testing.assert_allclose(rival.utilities(np.array([1]), 9), [1 + bonus[1]])
    assert rival.utilities(np.empty(0, dtype=np.int64), 9).size == 0
    asked = []
    rival.utilities = lambda clients, now: asked.append(now) or np.ones(clients.size)
    rival.plan(context(8))
    assert asked == [9], "rounds are counted from 1"


def test_equal_and_zero_losses_leave_equal_utilities():
    for loss in (0.0, 2.0):
        rival = make(Oort, equal_fleet(4), 2)
        teach(rival, [0, 1, 2, 3], 0, loss)
        np.testing.assert_allclose(rival.utilities(np.arange(4), 1), [1, 1, 1, 1], atol=1e-12)


def test_utilities_are_clipped_at_the_95th_percentile():
    rng = np.random.default_rng(0)
    losses = rng.exponential(size=40)
    rival = make(Oort, equal_fleet(40), 40, penalty=0)
    teach(rival, range(40), 0, losses)
    ordered = sorted(losses)
    ceiling = ordered[37] + 0.05 * (ordered[38] - ordered[37])  # at place 0.95 · 39 = 37.05
    expected = [(min(x, ceiling) - ordered[0]) / (ceiling - ordered[0]) for x in losses]
    np.testing.assert_allclose(rival.utilities(np.arange(40), 1), expected, atol=1e-12)


def test_exploration_decays_to_its_least():
    rival = make(Oort, equal_fleet(4), 2)
    assert rival.epsilon(0) == 0.9
    assert rival.epsilon(10) == pytest.approx(0.9 * 0.98**10)
    assert rival.epsilon(74) == pytest.approx(0.9 * 0.98**74)
    assert rival.epsilon(75) == rival.epsilon(5000) == 0.2


def test_oort_starts_with_the_fast_and_explores_by_speed():
    fleet = Fleet(np.full(4, 0.25), 1.0, np.array([1.0, 2.0, 3.0, 9.0]), np.full(4, 0.5))  # durations 2, 3, 4, 10
    share, error = inclusion_of(
        lambda rng: make(Oort, fleet, 2).plan(RoundContext(
            round_index=0, time=0.0, step_size=0.1, local_steps=5, rng=rng)).members, 4,
    )  # fmt: skip
    np.testing.assert_array_less(abs(share - in_turn([1 / 2, 1 / 3, 1 / 4, 1 / 10], 2)), error)


def test_so_many_are_explored_as_epsilon_says():
    rival = make(Oort, equal_fleet(12), 3)
    teach(rival, range(6), 0, 1.0)
    for r in (0, 20, 90):
        explored = [rival.plan(context(r, seed=seed)).note["explored"] for seed in range(300)]
        assert set(explored) <= {math.floor(3 * rival.epsilon(r)), math.ceil(3 * rival.epsilon(r))}
        assert np.mean(explored) == pytest.approx(3 * rival.epsilon(r), abs=0.12)
        members = rival.plan(context(r)).members
        assert (members >= 6).sum() == rival.plan(context(r)).note["explored"]


def test_what_one_side_cannot_fill_the_other_does():
    rival = make(Oort, equal_fleet(6), 4, exploration=1.0, least_exploration=1.0)
    teach(rival, range(5), 0, 1.0)
    assert 5 in rival.plan(context(1)).members
    assert rival.plan(context(1)).members.size == 4
    greedy = make(Oort, equal_fleet(6), 4, exploration=0.0, least_exploration=0.0)
    assert greedy.plan(context(0)).members.size == 4
    teach(greedy, [1, 2], 0, 1.0)
    members = greedy.plan(context(1)).members
    assert members.size == 4
    assert {1, 2} <= set(members.tolist())


def test_exploitation_cuts_off_and_draws_by_utility():
    """Known to all rounds alike and R = 1, so that U alone decides: 0, 0.5, 0.95, 0.96, 0.98, 1 after scaling."""
    losses = np.array([1.0, 1.5, 1.95, 1.96, 1.98, 2.0])
    rival = make(Oort, equal_fleet(6), 2, exploration=0.0, least_exploration=0.0, clip=1.0, preferred_duration=99.0)
    teach(rival, range(6), 0, losses)
    utility = rival.utilities(np.arange(6), 1)
    np.testing.assert_allclose(utility, losses - 1)
    admitted = [i for i in range(6) if utility[i] >= 0.95 * sorted(utility)[-2]]  # 0.931
    assert admitted == [2, 3, 4, 5]
    expected = np.zeros(6)
    expected[admitted] = in_turn(utility[admitted].tolist(), 2)
    share, error = inclusion_of(
        lambda rng: rival.plan(RoundContext(round_index=0, time=0.0, step_size=0.1, local_steps=5, rng=rng)).members, 6
    )
    np.testing.assert_array_less(abs(share - expected), error)
    rival.options = rival.options | {"cutoff": 1.0}
    assert rival.plan(context(0)).members.tolist() == [4, 5]


def test_slow_clients_are_chosen_less():
    fleet = equal_fleet(4, compute_time=np.array([1.0, 1.0, 1.0, 50.0]))
    rival = make(Oort, fleet, 3, exploration=0.0, least_exploration=0.0)
    assert rival.preferred_duration == 4.0, "1 s and three uploads that share the link"
    teach(rival, range(4), 0, 1.0, compute_time=fleet.compute_time)
    assert all(rival.plan(context(r)).members.tolist() == [0, 1, 2] for r in range(10))


def test_draws_without_values_are_uniform_and_never_too_few():
    rng = np.random.default_rng(0)
    for values in (np.zeros(4), np.array([0.0, 0.0, 0.0, 1.0])):
        assert len(set(draw_in_proportion(rng, np.arange(4), values, 3).tolist())) == 3
    share, error = inclusion_of(lambda rng: draw_in_proportion(rng, np.arange(4), np.zeros(4), 1), 4)
    np.testing.assert_array_less(abs(share - 0.25), error)


def test_the_pacer_gives_slow_clients_a_chance_when_utility_falls():
    rival = make(Oort, equal_fleet(4), 1, window=2, preferred_duration=3.0, pacer_step=0.5)
    seen = []
    for r, loss in enumerate([5, 5, 4, 5, 4, 4, 2, 6, 9, 0, 1, 1]):  # windows 10, 9, 8, 8, 9, 2
        teach(rival, [r % 4], r, float(loss))
        seen.append(rival.preferred_duration)
    assert seen == [3.0, 3.0, 3.0, 3.5, 3.5, 4.0, 4.0, 4.0, 4.0, 4.0, 4.0, 4.5]
    default = make(Oort, equal_fleet(11, compute_time=np.arange(11.0)), 1)
    assert default.preferred_duration == default.pacer_step == 3 + 1, "the 30th percentile of 1, 2, … 11"
    assert make(Oort, equal_fleet(3), 1, preferred_duration=7.0).pacer_step == 7.0


def test_clients_picked_too_often_are_left_out_while_others_remain():
    rival = make(Oort, equal_fleet(5), 2, most_picks=2, exploration=0.0, least_exploration=0.0)
    teach(rival, [0, 1, 2, 3, 4], 0, np.array([9.0, 9.0, 1.0, 1.0, 1.0]))
    assert set(rival.plan(context(1)).members) <= {0, 1}
    teach(rival, [0, 1], 1, 9.0)
    members = rival.plan(context(2)).members
    assert set(members) <= {2, 3, 4}
    assert members.size == 2
    teach(rival, [2, 3, 4], 2, 1.0)
    assert set(rival.plan(context(3)).members) <= {0, 1}, "all were picked too often, so nobody is left out"
    few = np.array([True, False, False, True, False])
    assert rival.plan(context(4, available=few)).members.tolist() == [0, 3]


def test_oort_learns_nothing_from_those_who_fail():
    rival = make(Oort, equal_fleet(3), 2)
    teach(rival, [0, 1], 4, 2.0, failed=[1])
    assert np.isfinite(rival.statistical).tolist() == [True, False, False]
    assert rival.last_round.tolist() == [5, 0, 0]
    assert rival.picks.tolist() == [1, 1, 0]
    assert rival.gained == [pytest.approx(2.0 / 3)]


def test_candidates_are_drawn_by_data_and_the_largest_losses_train():
    share = np.array([0.05, 0.3, 0.15, 0.1, 0.4])
    rival = make(PowerOfChoice, Fleet(share, 1.0, np.ones(5), np.ones(5)), 2, candidates=3)

    def draw(rng):
        return rival.plan(RoundContext(round_index=0, time=0.0, step_size=0.1, local_steps=5, rng=rng)).clients

    drawn, error = inclusion_of(draw, 5)
    np.testing.assert_array_less(abs(drawn - in_turn(share.tolist(), 3)), error)
    losses = np.array([3.0, 1.0, 4.0, 1.5, 5.0])
    for seed in range(20):
        probe = rival.plan(context(0, seed=seed))
        plan = rival.plan(context(0, seed=seed, answers=losses[probe.clients]))
        assert plan.members.tolist() == sorted(sorted(probe.clients.tolist(), key=lambda i: -losses[i])[:2])
        assert plan.weights.tolist() == [0.5, 0.5]


def test_ties_are_broken_at_random_and_silence_comes_last():
    rival = make(PowerOfChoice, equal_fleet(4), 1, candidates=4)
    rival.asked = np.arange(4)

    def draw(rng):
        answers = np.array([2.0, 2.0, np.nan, 1.0])
        return rival.plan(
            RoundContext(round_index=0, time=0.0, step_size=0.1, local_steps=5, rng=rng, answers=answers)
        ).members

    share, error = inclusion_of(draw, 4, 1000)
    np.testing.assert_array_less(abs(share - [0.5, 0.5, 0, 0]), error)
    silent = rival.plan(context(answers=np.full(4, np.nan)))
    assert silent.members.size == 1


def test_nobody_is_asked_where_there_is_no_choice():
    assert isinstance(make(PowerOfChoice, equal_fleet(6), 6).plan(context()), RoundPlan)
    alone = make(PowerOfChoice, equal_fleet(6), 2, candidates=2)
    assert alone.plan(context()).members.size == 2
    two = np.array([False, True, False, False, True, False])
    assert make(PowerOfChoice, equal_fleet(6), 2).plan(context(available=two)).members.tolist() == [1, 4]
    assert make(PowerOfChoice, equal_fleet(6), 2).plan(context()).clients.size == 4, "twice the cohort"
    assert make(PowerOfChoice, equal_fleet(6), 4).plan(context()).clients.size == 6, "or all there are"
    one = np.array([False, True, False, True, True, False])
    assert set(make(PowerOfChoice, equal_fleet(6), 2).plan(context(available=one)).clients) == {1, 3, 4}


def test_the_engine_answers_with_losses_and_charges_the_time(data):
    from fedtempo import cohort_round_time

    settings = {"policy": PowerOfChoice, "cohort_size": 2, "local_steps": 5}
    after_one = simulate(data, **TIMES, **settings, max_rounds=1).model
    record = simulate(data, **TIMES, **settings, max_rounds=2).records[1]
    fleet = Fleet(data.data_share, 1.0, **TIMES)
    asked = make(PowerOfChoice, fleet, 2).plan(context(1)).clients
    losses = SoftmaxTrainer(data).client_losses(after_one, asked)
    assert record["members"] == sorted(asked[np.argsort(losses)[-2:]].tolist())
    members = np.array(record["members"])
    waiting = (fleet.compute_time * data.sizes / 24 / 5)[asked].max()
    expected = waiting + cohort_round_time(fleet.compute_time[members], fleet.upload_time[members])
    assert record["round_time"] == pytest.approx(expected)


def greedy_of_the_paper(download, compute, upload, deadline):
    """Return the members as the paper's listing finds them, trying every candidate."""
    left, chosen, theta = list(range(len(upload))), [], 0.0

    def multicast(members):
        return max((download[i] for i in members), default=0.0)

    while left:

        def prolonged(k, theta=theta, chosen=tuple(chosen)):
            longer = multicast([*chosen, k]) - multicast(chosen)
            return longer + upload[k] + max(0.0, compute[k] - theta)

        x = min(left, key=prolonged)
        left.remove(x)
        longer = theta + upload[x] + max(0.0, compute[x] - theta)
        if multicast([*chosen, x]) + longer <= deadline:
            theta = longer
            chosen.append(x)
    return chosen


def test_fedcs_by_hand():
    """Computing 1, 5, 2, 9 s and uploading 2, 1, 4, 1 s.

    First client 0, ready at 1 and done at 3 (it adds 3, the others 6, 6, 10). Then 1 adds 1 + 2 = 3, client 2 adds 4
    and 3 adds 7: client 1 is done at 6. Then 2 and 3 both add 4: client 2, the first, is done at 10; then 3 adds 1.
    """
    compute, upload = np.array([1.0, 5.0, 2.0, 9.0]), np.array([2.0, 1.0, 4.0, 1.0])
    for deadline, places, seconds in (
        (2, [0], 3),
        (5.9, [0], 3),
        (6, [0, 1], 6),
        (10, [0, 1, 2], 10),
        (11, [0, 1, 2, 3], 11),
    ):
        schedule = select_greedily(np.zeros(4), compute, upload, deadline)
        assert schedule.places.tolist() == places
        assert schedule.seconds == seconds
    # The model reaches client 0 after 4 s and client 2 after 1 s, and all wait for that. First client 1, done at 6 (it
    # adds 6, the others 7, 7, 10). Then 0 adds 4 + 2, client 2 adds 1 + 4 and 3 adds 1 + 3: client 3 is done at 10.
    # Then 0 adds 4 + 2 and 2 adds 1 + 4: client 2 makes it 15. Last, 0 adds 3 + 2.
    download = np.array([4.0, 0.0, 1.0, 0.0])
    for deadline, places, seconds in ((12, [1, 3], 10), (15, [1, 3, 2], 15), (20, [1, 3, 2, 0], 20)):
        schedule = select_greedily(download, compute, upload, deadline)
        assert schedule.places.tolist() == places
        assert schedule.seconds == seconds


@pytest.mark.parametrize("seed", range(150))
def test_fedcs_finds_what_the_papers_listing_finds(seed):
    rng = np.random.default_rng(seed)
    size = rng.integers(1, 13)
    download, compute, upload = rng.exponential(size=(3, size)) * [[rng.integers(0, 2)], [2.0], [1.0]]
    deadline = rng.uniform(0.5, 8.0)
    expected = greedy_of_the_paper(download, compute, upload, deadline)
    schedule = select_greedily(download, compute, upload, deadline)
    if expected:
        assert schedule.places.tolist() == expected
        assert schedule.seconds <= deadline * (1 + 1e-9)
    else:
        alone = download + compute + upload
        assert alone.min() > deadline
        assert schedule.places.tolist() == [alone.argmin()]
    # What the schedule says it takes, by a clock: everybody computes after the last download, uploads go in turn.
    free = start = max(download[schedule.places])
    for client in schedule.places:
        free = max(free, start + compute[client]) + upload[client]
    assert schedule.seconds == pytest.approx(free)


def test_the_deadline_and_the_candidates_of_fedcs():
    rng = np.random.default_rng(0)
    size = 11
    times = {"compute_time": rng.exponential(size=size), "upload_time": rng.exponential(size=size)}
    link = {"bandwidth_cap": rng.uniform(0.1, 3, size), "download_time": rng.exponential(size=size)}
    fleet = Fleet(np.full(size, 1 / size), 1.0, **times, **link, total_bandwidth=2.0)
    alone = [t / min(cap, 2.0) for t, cap in zip(times["upload_time"], link["bandwidth_cap"], strict=True)]
    middle = [sorted(values)[5] for values in (link["download_time"], times["compute_time"], alone)]
    assert make(FedCS, fleet, 3).deadline == pytest.approx(middle[0] + middle[1] + 3 * middle[2])
    assert make(FedCS, fleet, 3, deadline=4).deadline == 4.0
    for size, cohort_size, options, expected in (
        (11, 3, {}, 6), (100, 3, {}, 10), (101, 3, {}, 11), (30, 20, {}, 40),
        (10, 3, {"fraction": 0.3}, 3), (10, 3, {"fraction": 0.31}, 4), (10, 3, {"fraction": 1}, 10),
        (4, 3, {"fraction": 1e-9}, 1),
    ):  # fmt: skip
        rival = make(FedCS, equal_fleet(size), cohort_size, **options)
        assert rival.candidates == expected
        # However long the deadline, only candidates can train; a short one leaves the fastest alone.
        rival.deadline = 1e9
        assert rival.plan(context()).members.size == min(expected, size)
        rival.deadline = 1e-9
        assert rival.plan(context()).members.size == 1


def test_equal_clients_fill_a_cohort_and_any_may_be_a_candidate():
    rival = make(FedCS, equal_fleet(9, upload_time=np.full(9, 0.1)), 3)
    share, error = inclusion_of(
        lambda rng: rival.plan(RoundContext(round_index=0, time=0.0, step_size=0.1, local_steps=5, rng=rng)).members,
        9, 1500,
    )  # fmt: skip
    assert share.sum() == pytest.approx(3)
    np.testing.assert_array_less(abs(share - 1 / 3), error)


def test_fedcs_uses_current_times_and_prefers_the_fast():
    fleet = equal_fleet(6)
    rival = make(FedCS, fleet, 2, fraction=1.0)
    now = np.array([9.0, 9.0, 0.5, 9.0, 0.5, 9.0])
    plan = rival.plan(context(compute_time=now, upload_time=np.full(6, 0.5)))
    assert plan.members.tolist() == [2, 4]
    assert plan.note == {"planned_time": 1.5}
    away = np.array([True, True, False, True, True, True])
    assert rival.plan(context(compute_time=now, upload_time=np.ones(6), available=away)).members.tolist() == [4]


def test_a_link_that_serves_in_turn_keeps_the_schedule(data):
    settings = {"cohort_size": 3, "local_steps": 3, "max_rounds": 10, "link": "shared", "total_bandwidth": 0.7}
    for record in simulate(data, **TIMES, policy=FedCS, **settings).records:
        assert record["round_time"] <= record["note"]["planned_time"] * (1 + 1e-9)
        assert record["failed"] == []


def test_tiers_by_latency_and_credits_by_speed():
    """Latencies of K = 2: τ + 2 t."""
    fleet = equal_fleet(7, compute_time=np.array([5.0, 0.0, 1.0, 8.0, 2.0, 0.5, 3.0]))
    rival = make(TiFL, fleet, 2, tiers=3, credits=100)
    rival.plan(context())
    assert rival.tier.tolist() == [2, 0, 0, 2, 1, 0, 1], "2, 2.5, 3 | 4, 5 | 7, 10"
    given = [100, math.ceil(100 * 2.5 / 4.5), math.ceil(100 * 2.5 / 8.5)]
    given[rival.current] -= 1
    assert rival.credits.tolist() == given
    assert make(TiFL, equal_fleet(100), 10).tiers == 5
    assert make(TiFL, equal_fleet(11), 3).tiers == 3, "each tier must hold a cohort"
    assert make(TiFL, equal_fleet(2), 5).tiers == 1
    assert make(TiFL, equal_fleet(2), 5, tiers=4).tiers == 2


def test_probabilities_of_tiers_by_rank():
    every = np.ones(3, dtype=bool)
    np.testing.assert_allclose(tier_probabilities(np.array([3.0, 1.0, 2.0]), every), [3 / 6, 1 / 6, 2 / 6])
    some = np.array([True, False, True, True])
    np.testing.assert_allclose(tier_probabilities(np.array([1.0, 9.0, np.nan, 2.0]), some), [1 / 6, 0, 3 / 6, 2 / 6])
    np.testing.assert_allclose(tier_probabilities(np.array([2.0, 2.0, 2.0]), every), [3 / 6, 2 / 6, 1 / 6])
    np.testing.assert_allclose(tier_probabilities(np.array([np.nan]), every[:1]), [1])
    np.testing.assert_array_equal(tier_probabilities(np.ones(3), ~every), [0, 0, 0])


def test_the_score_of_a_tier_is_the_mean_loss_lately_reported():
    share = np.array([0.1, 0.3, 0.2, 0.4])
    rival = make(TiFL, Fleet(share, 1.0, np.arange(4.0), np.ones(4)), 1, tiers=2)
    rival.plan(context())
    assert np.isnan(rival.tier_scores()).all()
    teach(rival, [0, 1], 0, np.array([4.0, 2.0, 0.0, 0.0]))
    teach(rival, [1, 2], 1, np.array([9.0, 1.0, 9.0, 9.0]), failed=[2])
    scores = rival.tier_scores()
    assert scores[0] == pytest.approx((0.1 * 4 + 0.3 * 1) / 0.4)
    assert np.isnan(scores[1])
    teach(rival, [3], 2, 5.0)
    assert rival.tier_scores()[1] == pytest.approx(5)


def test_probabilities_change_only_when_the_tier_drawn_last_stalls():
    fleet = equal_fleet(6, compute_time=np.arange(6.0))
    rival = make(TiFL, fleet, 2, tiers=3, interval=2)
    losses = np.array([1.0, 1.0, 2.0, 2.0, 3.0, 3.0])
    rival.plan(context(0))
    teach(rival, range(6), 0, losses, compute_time=fleet.compute_time)
    rival.plan(context(1))
    np.testing.assert_allclose(rival.probability, 1 / 3)
    rival.plan(context(2))  # nothing to compare with yet: change
    np.testing.assert_allclose(rival.probability, [1 / 6, 2 / 6, 3 / 6])
    rival.current = 0
    teach(rival, range(6), 2, losses[::-1] * [1, 1, 1, 1, 0.9, 0.9], compute_time=fleet.compute_time)
    rival.plan(context(3))
    np.testing.assert_allclose(rival.probability, [1 / 6, 2 / 6, 3 / 6])
    rival.current = 2  # the one that improved
    rival.plan(context(4))
    np.testing.assert_allclose(rival.probability, [1 / 6, 2 / 6, 3 / 6])
    rival.current = 1  # no better than before
    rival.plan(context(6))
    np.testing.assert_allclose(rival.probability, [3 / 6, 2 / 6, 1 / 6])


def test_members_come_uniformly_from_the_tier_drawn():
    fleet = equal_fleet(6, compute_time=np.array([0.0, 1.0, 0.5, 9.0, 8.0, 7.0]))
    tiers = []

    def draw(rng):
        plan = make(TiFL, fleet, 2, tiers=2).plan(
            RoundContext(round_index=0, time=0.0, step_size=0.1, local_steps=5, rng=rng)
        )
        tiers.append(plan.note["tier"])
        assert set(plan.members) <= ({3, 4, 5} if tiers[-1] else {0, 1, 2})
        return plan.members

    share, error = inclusion_of(draw, 6, 1500)
    np.testing.assert_array_less(abs(share - 1 / 3), error)
    assert np.mean(tiers) == pytest.approx(0.5, abs=0.06)


def test_credits_limit_a_tier_and_come_back_when_all_are_spent():
    fleet = equal_fleet(4, compute_time=np.array([0.0, 0.0, 2.0, 2.0]), upload_time=np.full(4, 0.5))
    rival = make(TiFL, fleet, 2, tiers=2, credits=6, interval=100)  # latencies 1 and 3: credits 6 and 2
    for period in range(3):
        tiers = [rival.plan(context(1 + 8 * period + r) if period or r else context(0)).note["tier"] for r in range(8)]
        assert tiers.count(0) == 6
        assert tiers.count(1) == 2


def test_a_tier_with_nobody_there_is_not_drawn():
    fleet = equal_fleet(6, compute_time=np.arange(6.0))
    rival = make(TiFL, fleet, 2, tiers=3, credits=2)
    for r in range(20):
        plan = rival.plan(context(r, available=np.array([False, False, True, False, False, False])))
        assert plan.members.tolist() == [2]
        assert plan.weights.tolist() == [1.0]
    rival.probability = np.array([1.0, 0.0, 0.0])
    assert rival.plan(context(21, available=np.arange(6) == 5)).members.tolist() == [5]


def test_tiers_follow_the_mean_latency():
    fleet = equal_fleet(4)
    rival = make(TiFL, fleet, 1, tiers=2, interval=3)
    early, late = np.array([1.0, 2.0, 3.0, 4.0]), np.array([9.0, 1.0, 1.0, 9.0])
    # Round 0 tells 1, 2, 3, 4; rounds 1 to 3 a mean of 19/3, 4/3, 5/3, 22/3; rounds 4 to 6 one of 1, 2, 3, 4 again.
    for r, now in enumerate((early, early, late, late, early, early, early)):
        rival.plan(context(r, compute_time=now, upload_time=np.ones(4)))
        assert rival.tier.tolist() == ([1, 0, 0, 1] if 3 <= r < 6 else [0, 0, 1, 1])
    quiet = make(TiFL, fleet, 1, tiers=2, interval=1)
    quiet.plan(context(0))
    teach(quiet, [0, 1], 0, 1.0, compute_time=5.0)
    quiet.plan(context(1))
    assert quiet.tier.tolist() == [1, 1, 0, 0], "measured where nobody tells"
