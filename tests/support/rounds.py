"""Rounds of a policy by themselves: fleets, plans and reports without an engine."""

import itertools

import numpy as np
import pytest

from fedtempo import Fleet
from fedtempo.policies.policy import PolicySetting, Probe, RoundContext, RoundPlan, RoundReport
from fedtempo.randomness import stream
from fedtempo.state import read_state, write_state


def make(policy, fleet, cohort_size, **options):
    return policy(PolicySetting(fleet=fleet, cohort_size=cohort_size, options=options))


def carry_over(first, second):
    """Give a policy, or a learner, the state of another of the same setting, as a new process would."""
    arrays = {name: array.copy() for name, array in write_state(first.state).items()}
    second.state = read_state(type(second.state), arrays)
    return second


def written(one):
    """Return the state of a policy, or a learner, in a form that can be compared."""
    return {name: array.tobytes() for name, array in write_state(one.state).items()}


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
    asked = answers = None
    while True:
        plan = policy.plan(
            RoundContext(
                round_index=round_index, time=0.0, step_size=0.1, local_steps=5, rng=rng, asked=asked, answers=answers,
                **more,
            )
        )  # fmt: skip
        if isinstance(plan, RoundPlan):
            return plan
        assert isinstance(plan, Probe)
        asked, answers = plan.clients, losses[plan.clients]


def play(policy, fleet, rounds, *, seed=0, first=0, absences=True):
    """Run a policy for some rounds in a made-up world where clients come, go and fail and times vary."""
    size, plans = len(fleet), []
    for r in range(first, rounds):
        world = stream(seed, "world", r)
        losses = world.exponential(size=size) * 2 / (1 + r)
        times = {"compute_time": fleet.compute_time, "upload_time": fleet.upload_time * world.uniform(0.5, 2, size)}
        available = world.random(size) < 0.7 if absences else None
        known = times if r % 3 else {}
        plan = plan_of(policy, r, losses, seed=seed, available=available, **known)
        failed = [client for client in plan.members if absences and world.random() < 0.3]
        policy.observe(report_of(plan, r, losses, failed=failed, **times))
        plans.append(plan)
        able = np.arange(size) if available is None else np.flatnonzero(available)
        assert np.isin(plan.members, able).all(), "only available clients"
        assert bool(plan.members.size) == bool(able.size)
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


TIMES = {"compute_time": np.linspace(0.1, 2.0, 8), "upload_time": np.linspace(1.5, 0.2, 8)}
