"""Whom tempo draws, with which weights, and that steps are unbiased where it says so."""

import math
from collections import deque

import numpy as np
import pytest

from fedtempo import InputError
from fedtempo.policies.policy import RoundPlan
from fedtempo.policies.tempo import Tempo
from fedtempo.policies.tempo.draws import Draws
from fedtempo.simulator.absences import WithAbsences
from fedtempo.simulator.channel import StaticChannel
from fedtempo.theory.inclusion import inclusion_with_sum
from fedtempo.theory.turns import Turns, TurnsState
from support.tempo_cases import DATA, SAME, SHARE, SIZE, TIMES, context, noise, run, setting


@pytest.mark.parametrize("overlap", [True, False])
@pytest.mark.parametrize("largest", [1.5, 5.0])
def test_weights_never_exceed_the_largest_factor(overlap, largest):
    options = {"largest_factor": largest, "overlap": overlap}
    channel = WithAbsences(StaticChannel(**TIMES), present_share=0.4, seed=1)

    class Following(Tempo):
        """Tempo that follows its memory from the first step on."""

        def plan(self, context):
            self.state.caution.follows_memory, self.state.caution.caution = True, 1.0
            return super().plan(context)

    result = run(Following, options=options, channel=channel, rounds=60)
    factors = np.concatenate(
        [np.array(record["weights"]) / DATA.data_share[record["members"]] for record in result.records]
    )
    assert factors.max() <= largest * (1 + 1e-12)
    assert factors.max() == pytest.approx(largest), "the bound was reached"


class Drawing(Tempo):
    """Tempo with one q for the whole run, all data reported, so that only its draws and weights are left."""

    def __init__(self, setting, q):
        super().__init__(setting)
        self.q, self.state.novelty.seen_share, self.state.caution.follows_memory = q, 1.0, True

    def planner(self, known=None):
        planner = super().planner(known)
        solve = planner.solve
        planner.solve = lambda seconds: solve(seconds)._replace(sampling_prob=self.q)
        return planner


class Arrival:
    """The part of a report that is left then."""

    def __init__(self, members):
        self.plan, self.failed = RoundPlan(members=members, weights=1.0), np.zeros(len(members), dtype=bool)


def mean_weight(policy, steps, seed, chance=1.0):
    """Let those who start first arrive first; return the mean weight of each client in a step, with its error."""
    rng, size = np.random.default_rng(seed), len(policy.q)
    flight, weight = deque(), np.zeros((steps, size))
    for row in weight:
        available = rng.random(size) < chance
        available[rng.integers(size)] |= not available.any()
        available[[client for client, _ in flight]] = False
        plan = policy.plan(context(available, rng))
        flight.extend(zip(plan.start.tolist(), plan.weights.tolist(), strict=True))
        landed = [flight.popleft() for _ in range(min(plan.wait_for, len(flight)))]
        for client, value in landed:
            row[client] += value
        for client, _ in landed:
            del policy.state.in_flight[client]
        policy.known.availability.observe(Arrival([client for client, _ in landed]))
    weight = weight[steps // 10 :]
    return weight.mean(axis=0), weight.std(axis=0) / math.sqrt(len(weight))


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
    assert policy.state.steps.arrivals == (4 if momentum else 1)
    assert (np.abs(mean - SHARE) <= 5 * error + (0.05 if compute_time else 1e-9) * SHARE).all(), mean / SHARE


def test_the_unbiased_form_makes_up_for_absences():
    """Within five standard errors and 3 %; each client is available in a share of its own of the steps."""
    chance = np.array([1.0, 0.4, 0.9, 0.6, 1.0, 0.7, 0.3, 0.8])
    policy = Drawing(setting(SHARE, options={"largest_factor": math.inf}), Q)
    mean, error = mean_weight(policy, 2500, seed=8, chance=chance)
    assert (np.abs(mean - SHARE) <= 5 * error + 0.03 * SHARE).all(), mean / SHARE


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"largest_factor": math.inf}, {"memory": False}])
def test_the_unbiased_form_stays_so_while_q_changes_and_one_client_computes_for_long(options):
    """It is in flight most of the time, and how often follows from q: what is known of that must not be too old."""
    compute_time, rounds = np.where(np.arange(SIZE) == 0, 30.0, 0.5), 4000
    given = {"cohort_size": 1, "local_steps": 1, "batch_size": 1, "step_size": 1e-4, "rounds": rounds}
    times, mean = {"compute_time": compute_time, "upload_time": 1.0}, np.zeros(SIZE)
    for seed in range(2):
        records = run(times=times, options=options, seed=seed, **given).records[rounds // 4 :]
        for record in records:
            mean[record["members"]] += np.array(record["weights"]) / (2 * len(records))
    assert (mean / DATA.data_share)[0] == pytest.approx(1.0, abs=0.17)


def test_cut_weights_give_rare_clients_less():
    policy = Drawing(setting(SHARE, options={"largest_factor": 2.0}), Q)
    mean, error = mean_weight(policy, 2500, seed=7)
    assert (np.abs(mean - SHARE * np.minimum(1, 2 * Q)) <= 5 * error).all(), mean / SHARE
    assert (mean < 0.7 * SHARE).all()


@pytest.mark.parametrize(("clients", "cohort_size"), [(1, 3), (2, 5), (4, 8)])
def test_without_memory_a_cohort_larger_than_the_fleet_is_everyone(clients, cohort_size):
    options = {"memory": False}
    result = run(data=noise(clients), times=SAME, options=options, cohort_size=cohort_size, rounds=8)
    for record in result.records:
        assert sum(record["weights"]) == pytest.approx(1.0)


def test_the_unbiased_form_where_fewer_are_available_than_a_step_takes():
    policy = Drawing(setting(SHARE, server_momentum=0.75, options={"largest_factor": math.inf}), Q)
    mean, error = mean_weight(policy, 2500, seed=8, chance=0.3)
    assert (np.abs(mean - SHARE) <= 5 * error + 0.05 * SHARE).all()


@pytest.mark.parametrize("number", [1, 4])
@pytest.mark.parametrize("chance", [None, 0.6])
@pytest.mark.parametrize("spread", [1.0, 3.5])
def test_draws_from_a_large_fleet_are_as_good_as_those_from_a_small_one(monkeypatch, number, chance, spread):
    """Each client is drawn with the probability that its weight counts with, and nobody who is absent.

    With a spread of 3.5 a few clients are drawn nearly every time.
    """
    size, draws = 2000, 4000
    monkeypatch.delattr("fedtempo.policies.tempo.draws.draw_systematically")
    rng = np.random.default_rng(3)
    q = rng.lognormal(sigma=spread, size=size)
    q /= q.sum()
    available = None if chance is None else rng.random(size) < chance
    by_chance, turns = Draws(in_turn=False), Turns(TurnsState.at_first(size))
    seen = np.zeros(size)
    for _ in range(draws):
        start, inclusion = by_chance.draw(q, number, turns, context(available, rng))
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
    monkeypatch.setattr("fedtempo.policies.tempo.constants.LARGE_FLEET_IN_TURN", large)
    monkeypatch.setattr("fedtempo.policies.tempo.constants.LARGE_FLEET_BY_CHANCE", 10_000)
    monkeypatch.setattr("fedtempo.theory.turns.NEAR", 30)
    size, rng = 60, np.random.default_rng(2)
    shapes = rng.lognormal(sigma=0.7, size=(2, size))
    policy = Drawing(setting(np.full(size, 1 / size), options=options, cohort_size=1), shapes[0])
    flight, expected, drawn = deque(), np.zeros(size), np.zeros(size)
    for step in range(3000):
        q = policy.q = shapes[step // 50 % 2] / shapes[step // 50 % 2].sum()
        free = np.ones(size, dtype=bool)
        free[list(flight)] = False
        policy.state.in_flight = {}
        (start,) = policy.plan(context(free, rng)).start
        expected += np.where(free, q, 0.0) / q[free].sum()
        drawn[start] += 1
        flight.append(start)
        if len(flight) > 5:
            flight.popleft()
    assert bool(np.abs(drawn - expected).max() < 3) == in_turn


def test_a_step_takes_one_arrival_once_nearly_all_data_were_reported():
    policy = Drawing(setting(SHARE), Q)
    for seen, arrivals in ((0.0, 3), (0.5, 2), (0.74, 2), (0.76, 1), (1.0, 1)):
        assert policy.known.caution.arrivals(1 - seen, len(SHARE)) == arrivals


def test_without_a_memory_nothing_is_cut():
    with pytest.raises(InputError, match="largest_factor must be left out without a server memory"):
        Tempo(setting(SHARE, options={"memory": False, "largest_factor": 5.0}))


def test_a_large_fleet_in_which_hardly_anybody_is_free_is_drawn_from_all_the_same():
    size = 20_000
    available = np.zeros(size, dtype=bool)
    available[[5, 17_000]] = True
    q, turns = np.full(size, 1 / size), Turns(TurnsState.at_first(size))
    start, inclusion = Draws(in_turn=True).draw(q, 2, turns, context(available))
    assert (start.tolist(), inclusion.tolist()) == ([5, 17_000], [1.0, 1.0])
